//! Gauges of the log's database, for metrics.
//!
//! A separate thread reads them: when the database stalls, no sync completes, and that is what the metrics
//! must show.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rocksdb::DB;

use crate::replica::telemetry;
use crate::storage::disk::rocks::LOG;

/// Interval of readings: each briefly takes RocksDB's lock.
const PAUSE: Duration = Duration::from_secs(1);

/// Thread that reads the gauges periodically until this is dropped.
#[derive(Debug)]
pub(super) struct GaugeReader {
    /// Nothing is sent: the thread ends when this sender is dropped.
    owner: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl GaugeReader {
    /// Starts the thread; it calls `read` at once and after every interval.
    pub(super) fn start<F>(read: F) -> io::Result<Self>
    where
        F: Fn() + Send + 'static,
    {
        let (owner, end) = sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("muster-log-stat".to_owned())
            .spawn(move || {
                read();
                while end.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    read();
                }
            })?;
        Ok(Self {
            owner: Some(owner),
            thread: Some(thread),
        })
    }
}

impl Drop for GaugeReader {
    fn drop(&mut self) {
        self.owner = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads the database gauges panicked");
        }
    }
}

/// Reads the properties. A gauge whose property is unreadable keeps its last value.
pub(super) fn read(database: &DB) {
    let Some(family) = database.cf_handle(LOG) else {
        return;
    };
    for (property, gauge, _) in telemetry::DATABASE {
        match database.property_int_value_cf(family, property) {
            Ok(Some(value)) => telemetry::database(gauge, value),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, property, "cannot read a database property");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use super::*;

    /// Timeout of a reading on a loaded machine.
    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn gauges_are_read_regularly_until_their_owner_is_dropped() {
        let (sender, reads) = sync_channel(8);
        let reader = GaugeReader::start(move || {
            let _ = sender.try_send(());
        })
        .expect("a thread starts");
        for _ in 0..2 {
            reads.recv_timeout(TIMEOUT).expect("it is read again");
        }
        drop(reader);
        while reads.try_recv().is_ok() {}
        assert_eq!(reads.try_recv(), Err(TryRecvError::Disconnected));
    }
}
