//! Bytes that outlive a build: replicated commands, and the state in snapshots.
//!
//! Every piece begins with a format version. Within a version only fields may be added that an older build
//! may ignore; anything else raises the version. Versions that this build does not read are rejected by
//! number, and unknown kinds of commands by name: guessing would let replicas diverge.
//!
//! Messages of the client interface (`muster.v1`) are part of both formats.
#![forbid(unsafe_code)]

mod access;
mod claim;
mod command;
mod defaults;
mod error;
mod health;
mod members;
mod pipeline;
mod replicas;
mod state;

pub use command::{
    COMMAND_FORMAT, OLDEST_COMMAND_FORMAT, decode_command, encode_command, format_of,
};
pub use error::LogError;
pub use state::{RECORD_BYTES_MAX, STATE_FORMAT, read_state, write_state};

/// Package `muster.log.v1`.
#[expect(
    unreachable_pub,
    clippy::large_enum_variant,
    reason = "generated from schema/muster/log/v1, whose comments document the messages"
)]
mod v1 {
    include!(concat!(env!("OUT_DIR"), "/muster.log.v1.rs"));
}
