//! State encoding: a magic and a version, then length-delimited `muster.log.v1.StateRecord`s.
//!
//! ```text
//! "MUSTERST" | version: u32 LE | { length: u32 LE | record } ... | end record
//! ```
//!
//! Records are small (a gang's tasks are split over several), so that neither side holds more than one in
//! memory beside the state. The end record counts the others: a cut is noticed even between two records.

mod host;
mod job;
mod parts;
mod queue;
mod read;
mod write;

pub(super) use job::{run_from_wire, run_to_wire};
pub use read::read_state;
pub use write::write_state;

/// Format version that this build writes, and the newest one that it reads.
pub const STATE_FORMAT: u32 = 5;
/// The oldest format version that this build reads: the first one, as 1 to 4 were never released.
const OLDEST_STATE_FORMAT: u32 = 5;
/// Largest record in bytes. The largest is a topology of `CONFIGURATION_BYTES_MAX`.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// First bytes of a written state.
const MAGIC: [u8; 8] = *b"MUSTERST";
/// Tasks in one record: about 64 KiB of them with eight GPUs each.
const TASKS_PER_RECORD_MAX: usize = 384;
