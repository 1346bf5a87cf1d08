//! Settings of the long-running roles, from one description each: the struct that a role works with.
//!
//! Names, types, defaults and texts of all options are read off that struct ([`options`]); files, environment variables, flags and
//! the documentation follow from them. Of what is given for an option, a flag counts before a variable, a variable before the file,
//! the file before the default ([`load`]).
#![forbid(unsafe_code)]

mod given;
mod load;
mod logging;
mod option;
mod position;
mod print;
mod problem;
mod reload;
mod tracing;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use given::{Given, Origin};
pub use load::{Loaded, load};
pub use logging::{LogFormat, LoggingSettings};
pub use option::{Kind, SettingsOption, options};
pub use print::{default_file, reference};
pub use problem::{Problem, Problems, misspelt};
pub use reload::{Changes, changes};
pub use tracing::TracingSettings;

/// The version in which an option appeared that does not say otherwise.
pub const FIRST_VERSION: &str = "0.1.0";

/// The settings of a role.
///
/// Fields are options, fields that are structs are tables of options. A field may carry, as `#[schemars(extend("x-..." = ...))]`:
/// `x-since` (version), `x-reload` (true: it takes effect without a restart), `x-flag`, `x-alias` and `x-variable` (other names
/// than those that follow from the key).
pub trait Settings: Serialize + DeserializeOwned + Default + JsonSchema {
    /// The role's word, as in `muster scheduler`.
    const ROLE: &'static str;

    /// The first rule that these settings break.
    fn broken_rule(&self) -> Option<BrokenRule>;
}

/// An option whose value cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting `{key}`: {rule}")]
pub struct BrokenRule {
    /// The option, with dots: `raft.heartbeat_ms`. An entry of a list or a map is written `peers[2]`.
    pub key: String,
    /// What it must be.
    pub rule: String,
}
