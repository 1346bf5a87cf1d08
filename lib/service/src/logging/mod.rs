//! Logs of a process: levels, line format, and the newest lines for troubleshooting.
//!
//! | part | content |
//! |---|---|
//! | [`start`] | starts logging on stderr, once per process |
//! | [`LogControl`] | changes log levels, permanently or for a while |
//! | [`recent_lines`] | the newest lines, kept in memory |
//! | [`redact`] | removes secrets from a text |
#![forbid(unsafe_code)]

mod control;
mod levels;
mod recent;
mod redact;

pub use control::{LogControl, StartError, control, start};
pub use levels::{InvalidLevel, LEVEL_MS_MAX, LevelChange, RAISED_MAX};
pub use recent::{RECENT_BYTES_MAX, recent_lines};
pub use redact::{REDACTED, redact, redact_value};
