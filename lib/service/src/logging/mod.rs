//! Logs of a process: what is logged, in which form, and the newest lines for whoever asks why something goes wrong.
//!
//! | part | what |
//! |---|---|
//! | [`start`] | begins to log on stderr, once per process |
//! | [`LogControl`] | changes what is logged, for good or for a while |
//! | [`recent_lines`] | the newest lines, kept in memory |
//! | [`redact`] | takes out of a text what is nobody's to read |
#![forbid(unsafe_code)]

mod control;
mod levels;
mod recent;
mod redact;

pub use control::{LogControl, StartError, control, start};
pub use levels::{InvalidLevel, LEVEL_MS_MAX, LevelChange, RAISED_MAX};
pub use recent::{RECENT_BYTES_MAX, recent_lines};
pub use redact::{REDACTED, redact, redact_value};
