//! A task's checkpoints, on a thread of its own: shared file systems hang, leases must not. It also records
//! the task's process, for the same reason.
//!
//! A task registers a checkpoint by a line on its control socket, or by files alone: it writes
//! `step_N.tmp/`, syncs, renames it to `step_N/` and writes `_COMMITTED` into it ([`crate::marker`]). One that holds another
//! attempt's `MUSTER_EPOCH` is not this task's checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use muster_engine::state::{interval_ms, median_save_ms};
use muster_model::beat::{CheckpointReport, SpoilReport};
use muster_model::desired::CheckpointCare;
use muster_model::limits::SPOILS_TOLD_MAX;

use crate::checkpoint_folder::CheckpointFolder;
use crate::directory::TaskDirectory;
use crate::limits::{CHECKPOINT_ENTRIES_MAX, CHECKPOINT_LAST_SCAN_MAX, COMMITS_WAITING_MAX};
use crate::marker::{MARKER, Marker, save_ms, written_at};
use crate::output::complain;
use crate::process::ProcessIdentity;
use crate::protocol::ControlAnswer;
use crate::said::Newest;
use crate::spec::TaskSpec;
use crate::wake::Wake;

const MS_PER_SECOND: u64 = 1_000;
/// Stack of the checkpoint thread.
const STACK_BYTES: usize = 256 << 10;

/// Which connection to a task's control socket; counts from 0.
pub(crate) type ConnectionId = u64;

/// What the checkpoint thread has to say.
#[derive(Debug)]
pub(crate) enum CheckpointNews {
    /// The task is watched, and its process on record if the disk takes it.
    Watched,
    /// A checkpoint is on record; the agent should hear of it.
    Committed(CheckpointReport, Finality),
    /// It is on record that a checkpoint cannot be read; the agent should hear of it.
    Spoiled(SpoilReport),
    /// The answer to a request on a connection.
    Answer(ConnectionId, ControlAnswer),
}

enum Request {
    Task(ConnectionId, Registration),
    Finish,
}

/// What a task wants to be on record.
#[derive(Debug)]
pub(crate) enum Registration {
    /// A checkpoint is complete.
    Commit(CheckpointReport, Finality),
    /// One of an earlier attempt cannot be read.
    Spoil(SpoilReport),
}

/// What tells whether a checkpoint is the last one of a task that is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finality {
    /// The task said that it is, or that more follow.
    Said(bool),
    /// The task did not say; whether it had been asked to stop when it registered the checkpoint.
    Registered {
        /// It had.
        asked: bool,
    },
    /// Files do not say; when the marker was written.
    Marked(SystemTime),
}

/// The checkpoint thread as its supervisor sees it.
#[derive(Debug)]
pub(crate) struct CheckpointKeeper {
    requests: SyncSender<Request>,
    news: Arc<Mutex<Vec<CheckpointNews>>>,
    wake: Wake,
    done: Receiver<()>,
}

impl CheckpointKeeper {
    /// Starts the thread, which first records the task's process; it is readable whenever there is news.
    pub(crate) fn start(
        spec: &TaskSpec,
        directory: &TaskDirectory,
        folder: CheckpointFolder,
        process: Option<ProcessIdentity>,
    ) -> io::Result<Self> {
        let wake = Wake::new()?;
        let (requests, inbox) = sync_channel(COMMITS_WAITING_MAX);
        let (tell_done, done) = sync_channel(1);
        let news = Arc::new(Mutex::new(Vec::new()));
        let mut ledger = Ledger::new(spec, directory, folder, Arc::clone(&news), wake.clone());
        ledger.unrecorded = process;
        thread::Builder::new()
            .name("checkpoints".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if ledger.unrecorded.is_some() {
                    if let Err(error) = ledger.record_process() {
                        complain(&format!("recording the task's process failed: {error}"));
                    }
                    ledger.tell(CheckpointNews::Watched);
                }
                ledger.run(&inbox);
                // The receiver may have given up waiting.
                let _ = tell_done.send(());
            })?;
        Ok(Self {
            requests,
            news,
            wake,
            done,
        })
    }

    /// Hands over what is to be put on record; the answer comes as news. An error at once if too many wait for the disk.
    pub(crate) fn register(
        &self,
        connection: ConnectionId,
        registration: Registration,
    ) -> Result<(), ControlAnswer> {
        self.requests
            .try_send(Request::Task(connection, registration))
            .map_err(|error| match error {
                TrySendError::Full(_) => ControlAnswer::refused(format!(
                    "too many commits wait for the disk (COMMITS_WAITING_MAX = {COMMITS_WAITING_MAX})"
                )),
                TrySendError::Disconnected(_) => {
                    ControlAnswer::refused("the task is ending: commits are closed")
                }
            })
    }

    /// Takes the news there is.
    pub(crate) fn news(&self) -> Vec<CheckpointNews> {
        self.wake.lower();
        std::mem::take(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the directory a last time, for a bounded time; then [`Self::news`] gives the last of it. False: that goes on.
    pub(crate) fn finish(&self) -> bool {
        let has_settled = self.requests.try_send(Request::Finish).is_ok()
            && self.done.recv_timeout(CHECKPOINT_LAST_SCAN_MAX).is_ok();
        if !has_settled {
            complain("the last look at the checkpoint directory took too long");
        }
        has_settled
    }
}

/// What the thread knows.
struct Ledger {
    directory: TaskDirectory,
    folder: CheckpointFolder,
    interval: Duration,
    epoch: u64,
    /// What was known when the attempt began of how often it had better save.
    care: CheckpointCare,
    /// Checkpoints that this attempt has on record, the newest ones.
    own: Newest,
    /// Step of the checkpoint that the attempt was told to begin from, unless that cannot be read.
    told_step: Option<u64>,
    /// Checkpoints of earlier attempts that cannot be read, on record.
    spoiled: Vec<SpoilReport>,
    /// The task's process until it is on record. A full disk ends no task: it is tried again with every scan.
    unrecorded: Option<ProcessIdentity>,
    news: Arc<Mutex<Vec<CheckpointNews>>>,
    wake: Wake,
}

impl Ledger {
    fn new(
        spec: &TaskSpec,
        directory: &TaskDirectory,
        folder: CheckpointFolder,
        news: Arc<Mutex<Vec<CheckpointNews>>>,
        wake: Wake,
    ) -> Self {
        let assignment = &spec.assignment;
        Self {
            directory: directory.clone(),
            folder,
            interval: Duration::from_millis(spec.checkpoint_scan_ms.max(1)),
            epoch: assignment.epoch.get(),
            care: assignment.care.clone(),
            own: Newest::default(),
            told_step: assignment.checkpoint.as_ref().map(|known| known.step),
            spoiled: Vec::new(),
            unrecorded: None,
            news,
            wake,
        }
    }

    fn run(&mut self, inbox: &Receiver<Request>) {
        loop {
            match inbox.recv_timeout(self.interval) {
                Ok(Request::Task(connection, registration)) => {
                    let answer = match registration {
                        Registration::Commit(report, finality) => self.commit(report, finality),
                        Registration::Spoil(report) => self.spoil(report),
                    };
                    self.tell(CheckpointNews::Answer(connection, answer));
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Was complained of the first time, and is tried again.
                    let _ = self.record_process();
                    self.scan();
                }
                Ok(Request::Finish) => {
                    self.scan();
                    self.folder.tidy();
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Records the task's process if that is still to be done. Without it a successor of this supervisor's agent
    /// still finds the task by its socket, and its leftovers by their environment.
    fn record_process(&mut self) -> io::Result<()> {
        if let Some(process) = self.unrecorded {
            self.directory.record_process(process)?;
            self.unrecorded = None;
        }
        Ok(())
    }

    /// Newest step that this attempt has on record.
    fn own_step(&self) -> Option<u64> {
        self.own.all().last().map(|newest| newest.step)
    }

    fn newest_step(&self) -> Option<u64> {
        self.own_step().max(self.told_step)
    }

    fn commit(&mut self, report: CheckpointReport, finality: Finality) -> ControlAnswer {
        match self.newest_step() {
            Some(newest) if report.step <= newest => ControlAnswer::refused(format!(
                "step {} is not greater than the committed step {newest}",
                report.step
            )),
            _ => self.record(report, finality),
        }
    }

    fn record(&mut self, report: CheckpointReport, finality: Finality) -> ControlAnswer {
        if let Err(error) = self.directory.record_checkpoint(self.own.all(), &report) {
            return ControlAnswer::refused(format!("recording the checkpoint failed: {error}"));
        }
        self.own.add(report.clone());
        self.tell(CheckpointNews::Committed(report, finality));
        ControlAnswer {
            interval_s: self
                .advice_ms()
                .map(|advice| advice.div_ceil(MS_PER_SECOND)),
            ..ControlAnswer::done()
        }
    }

    /// Milliseconds after which the task had better save again: by what its own saves took, or else as was known when it began.
    fn advice_ms(&self) -> Option<u64> {
        let save_ms = median_save_ms(self.own.all().iter().map(|report| report.save_ms));
        let measured = save_ms.zip(self.care.mean_time_ms);
        let measured = measured.map(|(save_ms, mean_time_ms)| interval_ms(save_ms, mean_time_ms));
        measured.or(self.care.interval_ms)
    }

    /// A checkpoint of an earlier attempt cannot be read. One that is known to be so is no news.
    fn spoil(&mut self, report: SpoilReport) -> ControlAnswer {
        let step = report.step;
        if self.spoiled.iter().any(|known| known.step == step) {
            return ControlAnswer::done();
        }
        if self.own_step().is_some_and(|own| step <= own) {
            return ControlAnswer::refused(format!(
                "step {step} is not an earlier attempt's: this one has committed a checkpoint; commit a newer one instead"
            ));
        }
        if self.spoiled.len() >= SPOILS_TOLD_MAX {
            return ControlAnswer::refused(format!(
                "this attempt has named {SPOILS_TOLD_MAX} checkpoints already (SPOILS_TOLD_MAX)"
            ));
        }
        self.spoiled.push(report.clone());
        if let Err(error) = self.directory.record_spoiled(&self.spoiled) {
            self.spoiled.pop();
            return ControlAnswer::refused(format!("recording it failed: {error}"));
        }
        // Training goes on from before it, and may come to its step again.
        self.told_step.take_if(|told| *told <= step);
        self.tell(CheckpointNews::Spoiled(report));
        ControlAnswer::done()
    }

    /// Looks for the newest checkpoint that this attempt registered by files. A directory that cannot be
    /// read now is looked at again later.
    fn scan(&mut self) {
        let Some(directory) = self.folder.scanned() else {
            return;
        };
        let Ok(newest) = self.folder.looking(|| self.newest_in(directory)) else {
            return;
        };
        if let Some((marker, modified, report)) = newest {
            if let Some(digest) = marker.bad_digest {
                complain(&format!(
                    "{MARKER} of step {}: `{digest}` is no digest (algorithm:hex)",
                    report.step
                ));
            }
            let answer = self.record(report, Finality::Marked(modified));
            if let Some(error) = answer.error {
                complain(&error);
            }
        }
    }

    /// The newest checkpoint in the directory that this attempt registered by files and that is not on record; with its marker,
    /// and when that was written.
    fn newest_in(
        &self,
        directory: &Path,
    ) -> io::Result<Option<(Marker, SystemTime, CheckpointReport)>> {
        let newest = markers(directory)?
            .into_iter()
            .filter(|(step, modified)| {
                self.newest_step().is_none_or(|newest| *step > newest)
                    && !self.folder.is_foreign(*step, *modified)
            })
            .rev()
            .find_map(|(step, modified)| {
                let path = directory.join(format!("step_{step}"));
                let marker = self.own_marker(&path)?;
                Some((step, modified, path, marker))
            });
        Ok(newest.map(|(step, modified, path, marker)| {
            let report = CheckpointReport {
                step,
                path: path.to_string_lossy().into_owned(),
                size_bytes: bytes_in(&path),
                digest: marker.digest.clone(),
                save_ms: save_ms(&path, modified, self.folder.prepared_at()),
            };
            (marker, modified, report)
        }))
    }

    /// What the marker of a checkpoint says; none if it names another attempt.
    fn own_marker(&self, checkpoint: &Path) -> Option<Marker> {
        let marker = Marker::read(checkpoint);
        let is_ours = marker.epoch.is_none_or(|epoch| epoch == self.epoch);
        is_ours.then_some(marker)
    }

    fn tell(&self, news: CheckpointNews) {
        self.news
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(news);
        self.wake.raise();
    }
}

/// Steps with a marker, and when it was written.
pub(crate) fn markers(directory: &Path) -> io::Result<BTreeMap<u64, SystemTime>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut found = BTreeMap::new();
    for entry in entries.take(CHECKPOINT_ENTRIES_MAX) {
        let entry = entry?;
        let step: Option<u64> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix("step_"))
            .and_then(|digits| digits.parse().ok());
        if let Some(step) = step
            && let Some(modified) = written_at(&entry.path())
        {
            found.insert(step, modified);
        }
    }
    Ok(found)
}

/// Bytes of the files directly in a checkpoint; 0 for what cannot be read, which means "not told".
fn bytes_in(checkpoint: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(checkpoint) else {
        return 0;
    };
    entries
        .take(CHECKPOINT_ENTRIES_MAX)
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|data| data.len())
        .sum()
}

impl std::os::fd::AsFd for CheckpointKeeper {
    /// Readable while there is news.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
