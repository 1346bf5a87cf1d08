//! Exit of a proxy process in the same way as the process it represents.

use std::process::ExitCode;

use crate::sys;

/// Exit code of a proxy that could not follow its process to the end, as in docker.
pub(super) const FAILED: u8 = 125;
/// An exit code above this stands for the signal that ended the process.
const SIGNAL_BASE: i32 = 128;
/// Largest signal number.
const SIGNAL_MAX: i32 = 64;
/// Signals that would stop this process instead of ending it.
const STOPPING: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Exits with an exit code, or by the signal that the code stands for.
pub(super) fn end_like(code: i32) -> ExitCode {
    let signal = code - SIGNAL_BASE;
    if (1..=SIGNAL_MAX).contains(&signal) && !STOPPING.contains(&signal) {
        sys::end_by_signal(signal);
    }
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}
