//! Non-blocking pipes and timeouts of the proxy processes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

const MS_PER_SECOND: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;

/// Duplicates a pipe in non-blocking mode.
pub(super) fn own(pipe: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
    pipe.try_clone_to_owned()
}

/// Converts milliseconds to a kernel time span.
pub(super) const fn span(span_ms: u64) -> Timespec {
    Timespec {
        tv_sec: (span_ms / MS_PER_SECOND).cast_signed(),
        tv_nsec: (span_ms % MS_PER_SECOND * NS_PER_MS).cast_signed(),
    }
}
