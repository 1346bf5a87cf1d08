//! Audit log: user, address, request and answer of every call that asked this replica for a change.
//!
//! Every replica records the calls that it answered itself, whether it leads or not: only it knows the
//! callers'
//! addresses. To read the complete log, query all replicas.

mod files;
mod record;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::counter;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use self::files::{Files, Retention};
pub(crate) use self::record::Record;
use crate::config::AuditSettings;
use crate::metrics::names;

/// Records that may wait to be written; calls wait for room beyond that.
const QUEUE_MAX: usize = 16_384;
/// Records per write.
const BATCH_MAX: usize = 4_096;
/// Pause between two syncs; records that arrive meanwhile share the next one.
const SYNC_PAUSE: Duration = Duration::from_millis(100);

enum Message {
    Record(Box<Record>),
    Sync(oneshot::Sender<()>),
}

/// The audit log of this replica; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    folder: PathBuf,
    sender: mpsc::Sender<Message>,
    /// Sequence number of the newest readable record.
    newest: watch::Receiver<u64>,
}

impl AuditLog {
    /// Opens the log and starts its writer task, which ends with the last clone.
    pub(crate) fn open(settings: &AuditSettings, data_dir: &Path) -> io::Result<Self> {
        let folder = settings
            .dir
            .clone()
            .unwrap_or_else(|| data_dir.join("audit"));
        let bounds = Retention {
            file_bytes_max: settings.file_bytes_max,
            files_max: settings.files_max,
        };
        let files = Files::open(&folder, bounds)?;
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let (newest_sequence, newest) = watch::channel(0);
        tokio::spawn(write(files, receiver, newest_sequence));
        Ok(Self {
            folder,
            sender,
            newest,
        })
    }

    /// Queues a record for writing. Waits while the queue is full; `record` keeps its value until then, so a
    /// caller that gives up still has it.
    pub(crate) async fn record(&self, record: &mut Option<Record>) {
        let room = self.sender.reserve().await;
        let Some(record) = record.take() else {
            return;
        };
        match room {
            Ok(room) => room.send(Message::Record(Box::new(record))),
            Err(_) => tracing::error!("the audit log writer is gone"),
        }
    }

    /// Queues a record without waiting; the record is lost if the queue is full.
    pub(crate) fn try_record(&self, record: Record) {
        let sent = self.sender.try_send(Message::Record(Box::new(record)));
        if let Err(error) = sent {
            counter!(names::AUDIT_FAILURES_TOTAL).increment(1);
            tracing::error!(%error, lost = 1, "the audit log queue is full");
        }
    }

    /// Waits until all records queued so far are synced, or the sync has failed.
    pub(crate) async fn sync(&self) {
        let (sender, synced) = oneshot::channel();
        if self.sender.send(Message::Sync(sender)).await.is_ok() {
            // The writer logs write errors itself.
            drop(synced.await);
        }
    }

    /// Watches the sequence number of the newest readable record.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// Reads records after `after` until `take` returns false. Blocking.
    pub(crate) fn read_after(
        &self,
        after: u64,
        take: &mut dyn FnMut(Record) -> bool,
    ) -> io::Result<()> {
        files::read_after(&self.folder, after, take)
    }
}

/// Writes and syncs records, paced so that it does not compete with the syncs of the replication log.
async fn write(
    mut files: Files,
    mut receiver: mpsc::Receiver<Message>,
    newest_sequence: watch::Sender<u64>,
) {
    let mut messages = Vec::new();
    while receiver.recv_many(&mut messages, BATCH_MAX).await > 0 {
        let mut records = Vec::new();
        let mut waiting = Vec::new();
        for message in messages.drain(..) {
            match message {
                Message::Record(record) => records.push(*record),
                Message::Sync(sender) => waiting.push(sender),
            }
        }
        let writing = tokio::task::spawn_blocking(move || {
            let written = files.append(&mut records).and_then(|()| files.sync());
            (files, records, written)
        });
        // Only a panic has no outcome, and then there is no file left to write to.
        let Ok((returned, records, written)) = writing.await else {
            tracing::error!("the audit log writer failed");
            return;
        };
        files = returned;
        match written {
            Ok(()) => {
                if let Some(newest) = records.last() {
                    newest_sequence.send_replace(newest.sequence);
                }
            }
            Err(error) => {
                counter!(names::AUDIT_FAILURES_TOTAL).increment(1);
                let lost = records.len();
                tracing::error!(%error, lost, "cannot write the audit log");
            }
        }
        if waiting.is_empty() {
            sleep(SYNC_PAUSE).await;
        }
        for sender in waiting {
            // The waiting caller may be gone.
            let _gone = sender.send(());
        }
    }
}
