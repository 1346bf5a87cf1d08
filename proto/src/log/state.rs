//! The state: a magic and a version, then length-delimited `muster.log.v1.StateRecord`s.
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
mod read;
mod write;

pub use read::read_state;
pub use write::write_state;

/// Format version that this build writes; it reads this one and older ones.
pub const STATE_FORMAT: u32 = 1;
/// Bytes of one record at most. The largest is a job with a specification of `SPEC_BYTES_MAX`.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// First bytes of a written state.
const MAGIC: [u8; 8] = *b"MUSTERST";
/// Tasks in one record: about 64 KiB of them with eight GPUs each.
const TASKS_PER_RECORD_MAX: usize = 384;
