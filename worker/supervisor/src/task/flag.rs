//! Preempt flag file, which explains a stop request to the task before the signal is sent.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::{io, thread};

use muster_model::time::MonotonicMs;

use crate::files;
use crate::link::protocol::PreemptFlag;
use crate::link::wake::Wake;
use crate::output::log_error;

/// Stack of the writing thread.
const STACK_BYTES: usize = 128 << 10;

/// A write of the flag file on a separate thread: a disk may hang, a lease must not.
#[derive(Debug)]
pub(crate) struct FlagFile {
    done: Receiver<()>,
    until: MonotonicMs,
    wake: Wake,
}

impl FlagFile {
    /// Starts the write; the handle is readable once it has ended. Callers must not wait longer than `until`.
    pub(crate) fn start(path: PathBuf, flag: PreemptFlag, until: MonotonicMs) -> io::Result<Self> {
        let wake = Wake::new()?;
        let written_wake = wake.clone();
        let (done_sender, done) = sync_channel(1);
        thread::Builder::new()
            .name("flag".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let written = files::json_bytes(&flag)
                    .and_then(|bytes| files::replace_for_owner(&path, &bytes));
                if let Err(error) = written {
                    log_error(&format!("writing the preempt flag failed: {error}"));
                }
                // The receiver may have given up waiting.
                let _ = done_sender.send(());
                written_wake.raise();
            })?;
        Ok(Self { done, until, wake })
    }

    /// Deadline of waiting for it.
    pub(crate) const fn until(&self) -> MonotonicMs {
        self.until
    }

    /// Whether the signal may follow: the write succeeded, failed, or took too long.
    pub(crate) fn is_settled(&self, now: MonotonicMs) -> bool {
        now >= self.until || !matches!(self.done.try_recv(), Err(TryRecvError::Empty))
    }
}

impl AsFd for FlagFile {
    /// Readable once the write has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
