//! The audit log: who asked this replica to change something, from where, what, and what the answer was.
//!
//! Every replica keeps the record of the calls that it answered itself, whoever leads: only it knows where they came from.
//! Whoever wants all of it asks all replicas.

mod files;
mod record;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::counter;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use self::files::{Bounds, Files};
pub(crate) use self::record::Record;
use crate::config::AuditSettings;
use crate::metrics::names;

/// Records that wait to be written; calls wait for room.
const QUEUE_MAX: usize = 16_384;
/// Records written at once.
const BATCH_MAX: usize = 4_096;
/// Pause between two syncs: what comes meanwhile shares the next one.
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
    /// The newest record that can be read.
    newest: watch::Receiver<u64>,
}

impl AuditLog {
    /// Opens the log and starts its writer, which ends with the last clone.
    pub(crate) fn open(settings: &AuditSettings, data_dir: &Path) -> io::Result<Self> {
        let folder = settings
            .dir
            .clone()
            .unwrap_or_else(|| data_dir.join("audit"));
        let bounds = Bounds {
            file_bytes_max: settings.file_bytes_max,
            files_max: settings.files_max,
        };
        let files = Files::open(&folder, bounds)?;
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let (told, newest) = watch::channel(0);
        tokio::spawn(write(files, receiver, told));
        Ok(Self {
            folder,
            sender,
            newest,
        })
    }

    /// Takes a record and writes it down, soon. Waits while too many wait to be written; until then the record is left where it
    /// is, for whoever gives up waiting.
    pub(crate) async fn note(&self, record: &mut Option<Record>) {
        let room = self.sender.reserve().await;
        let Some(record) = record.take() else {
            return;
        };
        match room {
            Ok(room) => room.send(Message::Record(Box::new(record))),
            Err(_) => tracing::error!("the writer of the audit log is gone"),
        }
    }

    /// Writes a record down, soon, without waiting: it is lost if too many wait to be written.
    pub(crate) fn note_at_once(&self, record: Record) {
        let sent = self.sender.try_send(Message::Record(Box::new(record)));
        if let Err(error) = sent {
            counter!(names::AUDIT_FAILURES_TOTAL).increment(1);
            tracing::error!(%error, lost = 1, "the audit log takes no record now");
        }
    }

    /// Waits until everything noted so far is on the disk, as far as that works.
    pub(crate) async fn sync(&self) {
        let (sender, synced) = oneshot::channel();
        if self.sender.send(Message::Sync(sender)).await.is_ok() {
            // The writer says at level error what it could not write.
            drop(synced.await);
        }
    }

    /// The newest record that can be read, after each change.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// Reads records after `after` until `take` has had enough. Blocks.
    pub(crate) fn read_after(
        &self,
        after: u64,
        take: &mut dyn FnMut(Record) -> bool,
    ) -> io::Result<()> {
        files::read_after(&self.folder, after, take)
    }
}

/// Writes and syncs what comes, at most so often that the log's own syncs are not in its way.
async fn write(mut files: Files, mut receiver: mpsc::Receiver<Message>, told: watch::Sender<u64>) {
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
        // Only a panic has no outcome, and then there is nothing to write with.
        let Ok((returned, records, written)) = writing.await else {
            tracing::error!("the writer of the audit log has failed");
            return;
        };
        files = returned;
        match written {
            Ok(()) => {
                if let Some(newest) = records.last() {
                    told.send_replace(newest.sequence);
                }
            }
            Err(error) => {
                counter!(names::AUDIT_FAILURES_TOTAL).increment(1);
                let lost = records.len();
                tracing::error!(%error, lost, "the audit log cannot be written");
            }
        }
        if waiting.is_empty() {
            sleep(SYNC_PAUSE).await;
        }
        for sender in waiting {
            // Who waits may have gone.
            let _gone = sender.send(());
        }
    }
}
