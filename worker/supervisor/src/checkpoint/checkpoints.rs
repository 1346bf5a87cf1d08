//! A task's checkpoints, on a separate thread: shared file systems hang, leases must not. It also records the
//! task's process, for the same reason.
//! A task registers a checkpoint by a line on its control socket, or by files alone: it writes `step_N.tmp/`,
//! syncs, renames it to `step_N/` and writes `_COMMITTED` into it ([`crate::checkpoint::marker`]). A marker
//! with another attempt's `MUSTER_EPOCH` is not this task's checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use muster_model::checkpoint_interval::{interval_ms, median_save_ms};
use muster_model::desired::CheckpointDuties;
use muster_model::heartbeat::{CheckpointReport, DamageReport};
use muster_model::limits::DAMAGED_REPORTED_MAX;

use crate::checkpoint::checkpoint_folder::CheckpointFolder;
use crate::checkpoint::marker::{MARKER, Marker, save_ms, written_at};
use crate::limits::{CHECKPOINT_ENTRIES_MAX, CHECKPOINT_LAST_SCAN_MAX, COMMITS_WAITING_MAX};
use crate::link::protocol::ControlAnswer;
use crate::link::wake::Wake;
use crate::output::log_error;
use crate::process::ProcessIdentity;
use crate::task::directory::TaskDirectory;
use crate::task::spec::TaskSpec;
use crate::task::task_reports::Newest;

const MS_PER_SECOND: u64 = 1_000;
/// Stack of the checkpoint thread.
const STACK_BYTES: usize = 256 << 10;

/// Number of a connection to a task's control socket, from 0.
pub(crate) type ConnectionId = u64;

/// A message of the checkpoint thread.
#[derive(Debug)]
pub(crate) enum CheckpointEvent {
    /// The task is watched, and its process recorded if the disk accepts it.
    Watched,
    /// A checkpoint is recorded; to be reported to the agent.
    Committed(CheckpointReport, Finality),
    /// An unreadable checkpoint is recorded; to be reported to the agent.
    Damaged(DamageReport),
    /// The answer to a request on a connection.
    Answer(ConnectionId, ControlAnswer),
}

enum Request {
    Task(ConnectionId, Registration),
    Finish,
}

/// A request of a task to record something.
#[derive(Debug)]
pub(crate) enum Registration {
    /// A checkpoint is complete.
    Commit(CheckpointReport, Finality),
    /// A checkpoint of an earlier attempt cannot be read.
    Damage(DamageReport),
}

/// Evidence whether a checkpoint is the last one of a task that is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finality {
    /// The task stated whether it is the last one.
    Stated(bool),
    /// The task did not state it; records whether it had been asked to stop when it registered the checkpoint.
    Registered {
        /// Whether a stop had been requested.
        asked: bool,
    },
    /// Registered by files, which do not state it; when the marker was written.
    Marked(SystemTime),
}

/// The supervisor's handle of the checkpoint thread.
#[derive(Debug)]
pub(crate) struct CheckpointKeeper {
    requests: SyncSender<Request>,
    events: Arc<Mutex<Vec<CheckpointEvent>>>,
    wake: Wake,
    done: Receiver<()>,
}

impl CheckpointKeeper {
    /// Starts the thread, which first records the task's process; the handle is readable while events are pending.
    pub(crate) fn start(
        spec: &TaskSpec,
        directory: &TaskDirectory,
        folder: CheckpointFolder,
        process: Option<ProcessIdentity>,
    ) -> io::Result<Self> {
        let wake = Wake::new()?;
        let (requests, inbox) = sync_channel(COMMITS_WAITING_MAX);
        let (done_sender, done) = sync_channel(1);
        let events = Arc::new(Mutex::new(Vec::new()));
        let mut ledger = Ledger::new(spec, directory, folder, Arc::clone(&events), wake.clone());
        ledger.unrecorded = process;
        thread::Builder::new()
            .name("checkpoints".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if ledger.unrecorded.is_some() {
                    if let Err(error) = ledger.record_process() {
                        log_error(&format!("recording the task's process failed: {error}"));
                    }
                    ledger.push_event(CheckpointEvent::Watched);
                }
                ledger.run(&inbox);
                // The receiver may have given up waiting.
                let _ = done_sender.send(());
            })?;
        Ok(Self {
            requests,
            events,
            wake,
            done,
        })
    }

    /// Queues a request; the answer arrives as an event. Refuses at once if too many requests wait for the disk.
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

    /// Takes the pending events.
    pub(crate) fn take_events(&self) -> Vec<CheckpointEvent> {
        self.wake.lower();
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Scans the directory a last time, for a bounded time; then [`Self::take_events`] returns the last of it. False
    /// if the scan still runs.
    pub(crate) fn finish(&self) -> bool {
        let has_settled = self.requests.try_send(Request::Finish).is_ok()
            && self.done.recv_timeout(CHECKPOINT_LAST_SCAN_MAX).is_ok();
        if !has_settled {
            log_error("the last scan of the checkpoint directory timed out");
        }
        has_settled
    }
}

/// State of the checkpoint thread.
struct Ledger {
    directory: TaskDirectory,
    folder: CheckpointFolder,
    interval: Duration,
    epoch: u64,
    /// Checkpoint advice inputs known when the attempt began.
    duties: CheckpointDuties,
    /// The newest recorded checkpoints of this attempt.
    own: Newest,
    /// Step of the checkpoint that the attempt was given to restore from, unless that is unreadable.
    assigned_step: Option<u64>,
    /// Recorded checkpoints of earlier attempts that cannot be read.
    damaged: Vec<DamageReport>,
    /// The task's process until it is recorded. A full disk ends no task: every scan tries again.
    unrecorded: Option<ProcessIdentity>,
    events: Arc<Mutex<Vec<CheckpointEvent>>>,
    wake: Wake,
}

impl Ledger {
    fn new(
        spec: &TaskSpec,
        directory: &TaskDirectory,
        folder: CheckpointFolder,
        events: Arc<Mutex<Vec<CheckpointEvent>>>,
        wake: Wake,
    ) -> Self {
        let assignment = &spec.assignment;
        Self {
            directory: directory.clone(),
            folder,
            interval: Duration::from_millis(spec.checkpoint_scan_ms.max(1)),
            epoch: assignment.epoch.get(),
            duties: assignment.checkpoint_duties.clone(),
            own: Newest::default(),
            assigned_step: assignment.checkpoint.as_ref().map(|known| known.step),
            damaged: Vec::new(),
            unrecorded: None,
            events,
            wake,
        }
    }

    fn run(&mut self, inbox: &Receiver<Request>) {
        loop {
            match inbox.recv_timeout(self.interval) {
                Ok(Request::Task(connection, registration)) => {
                    let answer = match registration {
                        Registration::Commit(report, finality) => self.commit(report, finality),
                        Registration::Damage(report) => self.damage(report),
                    };
                    self.push_event(CheckpointEvent::Answer(connection, answer));
                }
                Err(RecvTimeoutError::Timeout) => {
                    // The first failure was logged; this is a retry.
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

    /// Records the task's process if that is still pending. Without the record, a successor of this
    /// supervisor's agent still finds the task by its socket, and its leftover processes by their
    /// environment.
    fn record_process(&mut self) -> io::Result<()> {
        if let Some(process) = self.unrecorded {
            self.directory.record_process(process)?;
            self.unrecorded = None;
        }
        Ok(())
    }

    /// Newest recorded step of this attempt.
    fn own_step(&self) -> Option<u64> {
        self.own.all().last().map(|newest| newest.step)
    }

    fn newest_step(&self) -> Option<u64> {
        self.own_step().max(self.assigned_step)
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
        self.push_event(CheckpointEvent::Committed(report, finality));
        ControlAnswer {
            interval_s: self
                .advice_ms()
                .map(|advice| advice.div_ceil(MS_PER_SECOND)),
            ..ControlAnswer::done()
        }
    }

    /// Advised interval to the next checkpoint, in milliseconds: from measured saves, otherwise from what was
    /// known at the start.
    fn advice_ms(&self) -> Option<u64> {
        let save_ms = median_save_ms(self.own.all().iter().map(|report| report.save_ms));
        let measured = save_ms
            .zip(self.duties.mean_time_ms)
            .map(|(save_ms, mean_time_ms)| interval_ms(save_ms, mean_time_ms));
        measured.or(self.duties.interval_ms)
    }

    /// Records that a checkpoint of an earlier attempt cannot be read. A known one is not reported again.
    fn damage(&mut self, report: DamageReport) -> ControlAnswer {
        let step = report.step;
        if self.damaged.iter().any(|known| known.step == step) {
            return ControlAnswer::done();
        }
        if self.own_step().is_some_and(|own| step <= own) {
            return ControlAnswer::refused(format!(
                "step {step} is not an earlier attempt's: this one has committed a checkpoint; commit a newer one \
                 instead"
            ));
        }
        if self.damaged.len() >= DAMAGED_REPORTED_MAX {
            return ControlAnswer::refused(format!(
                "this attempt has named {DAMAGED_REPORTED_MAX} checkpoints already (DAMAGED_REPORTED_MAX)"
            ));
        }
        self.damaged.push(report.clone());
        if let Err(error) = self.directory.record_damaged(&self.damaged) {
            self.damaged.pop();
            return ControlAnswer::refused(format!(
                "recording the unreadable checkpoint failed: {error}"
            ));
        }
        // Training continues from an earlier step, and may reach this step again.
        self.assigned_step.take_if(|assigned| *assigned <= step);
        self.push_event(CheckpointEvent::Damaged(report));
        ControlAnswer::done()
    }

    /// Looks for the newest checkpoint that this attempt registered by files. A directory that cannot be read
    /// now is scanned again later.
    fn scan(&mut self) {
        let Some(directory) = self.folder.scanned() else {
            return;
        };
        let Ok(newest) = self.folder.looking(|| self.newest_in(directory)) else {
            return;
        };
        if let Some((marker, modified, report)) = newest {
            if let Some(digest) = marker.bad_digest {
                log_error(&format!(
                    "{MARKER} of step {}: invalid digest `{digest}` (expected algorithm:hex)",
                    report.step
                ));
            }
            let answer = self.record(report, Finality::Marked(modified));
            if let Some(error) = answer.error {
                log_error(&error);
            }
        }
    }

    /// Newest unrecorded checkpoint in the directory that this attempt registered by files; with its marker
    /// and the time it was written.
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

    /// Reads the marker of a checkpoint; `None` if it names another attempt.
    fn own_marker(&self, checkpoint: &Path) -> Option<Marker> {
        let marker = Marker::read(checkpoint);
        let is_ours = marker.epoch.is_none_or(|epoch| epoch == self.epoch);
        is_ours.then_some(marker)
    }

    fn push_event(&self, event: CheckpointEvent) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
        self.wake.raise();
    }
}

/// Steps that have a marker, with the time it was written.
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

/// Size of the files directly in a checkpoint; unreadable files count 0, which means "not reported".
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
    /// Readable while events are pending.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
