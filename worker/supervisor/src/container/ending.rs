//! How a process that stands in for others ends: as they did.

use std::process::ExitCode;

use crate::sys;

/// The exit code of one that did not see them to their end, as docker's has it.
pub(super) const FAILED: u8 = 125;
/// Above it, an exit code means the signal that ended the first of them.
const SIGNAL_BASE: i32 = 128;
/// Signals lie within this.
const SIGNAL_MAX: i32 = 64;
/// Signals that end nobody, but would have us stand still for ever.
const STOPPING: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Ends with an exit code, or by the signal that the code stands for.
pub(super) fn end_like(code: i32) -> ExitCode {
    let signal = code - SIGNAL_BASE;
    if (1..=SIGNAL_MAX).contains(&signal) && !STOPPING.contains(&signal) {
        sys::die_by(signal);
    }
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}
