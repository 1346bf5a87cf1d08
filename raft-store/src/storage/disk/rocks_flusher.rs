//! Thread that syncs RocksDB's write-ahead log for all waiting writers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::time::Instant;

use crate::replica::telemetry;
use crate::storage::disk::Synced;

/// Most queued syncs; beyond that the writer blocks.
const WAITING_MAX: usize = 65_536;

/// Groups syncs: one sync serves every writer that is waiting when it starts.
pub(crate) struct Flusher {
    queue: Option<SyncSender<Synced>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

impl Flusher {
    /// Starts the thread; `flush` writes out and syncs the log.
    pub(crate) fn start<F>(flush: F) -> io::Result<Self>
    where
        F: Fn() -> io::Result<()> + Send + 'static,
    {
        let (queue, waiting) = sync_channel(WAITING_MAX);
        let failed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&failed);
        let thread = std::thread::Builder::new()
            .name("muster-log-sync".to_owned())
            .spawn(move || run(&waiting, &flush, &flag))?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            failed,
        })
    }

    /// Queues a sync of everything written so far.
    pub(crate) fn submit(&self, done: Synced) {
        let Some(queue) = &self.queue else {
            return done(Err(stopped()));
        };
        if let Err(rejected) = queue.send(done) {
            (rejected.0)(Err(stopped()));
        }
    }

    /// Fails once a write or a sync has failed: the content of the medium is unknown from then on.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(io::Error::other(
                "the log disk failed earlier; the replica must stop",
            ));
        }
        Ok(())
    }

    /// Records a failed write.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the log sync thread panicked");
        }
    }
}

fn run(waiting: &Receiver<Synced>, flush: &impl Fn() -> io::Result<()>, failed: &AtomicBool) {
    while let Ok(first) = waiting.recv() {
        let mut group = vec![first];
        group.extend(waiting.try_iter());
        let result = sync_once(flush, failed);
        for done in group {
            done(match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            });
        }
    }
}

fn sync_once(flush: &impl Fn() -> io::Result<()>, failed: &AtomicBool) -> io::Result<()> {
    if failed.load(Ordering::Acquire) {
        return Err(io::Error::other(
            "the log disk failed earlier; a sync is never retried",
        ));
    }
    let started = Instant::now();
    let result = flush();
    telemetry::log_synced(started.elapsed());
    if result.is_err() {
        failed.store(true, Ordering::Release);
    }
    result
}

fn stopped() -> io::Error {
    io::Error::other("the log disk is closed")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_failed_sync_is_never_retried_and_fails_all_that_follow() {
        let syncs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&syncs);
        let flusher = Flusher::start(move || {
            if counter.fetch_add(1, Ordering::SeqCst) == 1 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Ok(())
        })
        .expect("a thread starts");
        let sync = || {
            let (sender, result) = sync_channel(1);
            flusher.submit(Box::new(move |synced| {
                sender.send(synced).expect("the test waits");
            }));
            result.recv().expect("every sync is answered")
        };
        assert!(sync().is_ok());
        assert!(flusher.check().is_ok());
        let failure = sync().expect_err("the second sync fails");
        assert_eq!(failure.kind(), io::ErrorKind::StorageFull);
        assert!(sync().is_err());
        assert!(flusher.check().is_err());
        assert_eq!(syncs.load(Ordering::SeqCst), 2);
    }
}
