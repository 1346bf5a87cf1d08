//! A job in a list.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone, ago, instant, span};
use crate::view::ledger::LedgerView;
use crate::view::word::{counted, job_phase, phase_tone};

/// A job without its units.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobView {
    id: u64,
    name: String,
    user: String,
    queue: String,
    priority: i32,
    gang: bool,
    phase: String,
    tasks: u64,
    gpus_asked: u64,
    gpus_held: u64,
    units: CountsView,
    submitted_at: String,
    finished_at: Option<String>,
    finish_reason: String,
    cancel: Option<CancelView>,
    suspension: Option<SuspensionView>,
    /// The pipeline that contains it.
    pipeline: Option<PipelineOfJob>,
    kept_permille: Option<u32>,
    ledger: Option<LedgerView>,
    #[serde(skip)]
    submitted_at_ms: u64,
    #[serde(skip)]
    finished_at_ms: Option<u64>,
}

/// Number of units in each phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct CountsView {
    waiting: u64,
    placed: u64,
    running: u64,
    stopping: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
}

/// The pipeline that contains a job.
#[derive(Clone, Debug, Serialize)]
struct PipelineOfJob {
    id: u64,
    name: String,
}

/// Author of a cancellation.
#[derive(Clone, Debug, Serialize)]
struct CancelView {
    author: String,
    reason: String,
    at: String,
}

/// Author of a suspension.
#[derive(Clone, Debug, Serialize)]
struct SuspensionView {
    author: String,
    reason: String,
    at: String,
}

impl From<v1::Job> for JobView {
    fn from(job: v1::Job) -> Self {
        let phase = job_phase(job.phase());
        let spec = job.spec.unwrap_or_default();
        let count = |group: &v1::TaskGroup| u64::from(group.count.unwrap_or(1));
        let gpus = |group: &v1::TaskGroup| {
            let each = group.resources.as_ref().map_or(0, |needs| needs.gpus);
            count(group) * u64::from(each)
        };
        Self {
            id: job.id,
            tasks: spec.groups.iter().map(count).sum(),
            gpus_asked: spec.groups.iter().map(gpus).sum(),
            name: spec.name,
            user: spec.user,
            queue: spec.queue.unwrap_or_default(),
            priority: spec.priority,
            gang: spec.gang,
            phase,
            gpus_held: job.gpus_held,
            units: job.counts.map(CountsView::from).unwrap_or_default(),
            submitted_at: instant(job.submitted_at_ms),
            finished_at: job.finished_at_ms.map(instant),
            finish_reason: job.finish_reason,
            cancel: job.cancel.map(|cancel| CancelView {
                author: cancel.author,
                reason: cancel.reason,
                at: instant(cancel.at_ms),
            }),
            suspension: job.suspension.map(|suspension| SuspensionView {
                author: suspension.author,
                reason: suspension.reason,
                at: instant(suspension.at_ms),
            }),
            pipeline: job.pipeline_id.map(|id| PipelineOfJob {
                id,
                name: job.pipeline,
            }),
            kept_permille: job.kept_permille,
            ledger: job.ledger.map(LedgerView::from),
            submitted_at_ms: job.submitted_at_ms,
            finished_at_ms: job.finished_at_ms,
        }
    }
}

impl From<v1::UnitCounts> for CountsView {
    fn from(counts: v1::UnitCounts) -> Self {
        Self {
            waiting: counts.waiting,
            placed: counts.placed,
            running: counts.running,
            stopping: counts.stopping,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
        }
    }
}

impl CountsView {
    /// The counts that are not zero: `3 running, 1 waiting`.
    fn text(self) -> String {
        let counts = [
            (self.running, "running"),
            (self.placed, "placed"),
            (self.stopping, "stopping"),
            (self.waiting, "waiting"),
            (self.succeeded, "succeeded"),
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
        ];
        counted(&counts)
    }
}

impl JobView {
    /// The displayed phase: a suspended job is paused in any phase.
    fn shown_phase(&self) -> Cell {
        match self.suspension {
            Some(_) => Cell::toned("suspended", Tone::Waiting),
            None => Cell::toned(&*self.phase, phase_tone(&self.phase)),
        }
    }

    /// GPU time by use, as lines of `key value`.
    pub(crate) fn accounts(&self) -> Vec<(&'static str, String)> {
        let (Some(ledger), Some(permille)) = (&self.ledger, self.kept_permille) else {
            return Vec::new();
        };
        let (whole, tenth) = (permille / 10, permille % 10);
        let kept = format!(
            "{whole}.{tenth} % of its time is kept work ({})",
            ledger.kept()
        );
        let lost = ledger.lines().into_iter();
        let lost = lost.map(|(cause, text)| ("Spent", format!("{cause}: {text}")));
        std::iter::once(("ETTR", kept)).chain(lost).collect()
    }

    /// Lines of `key value` for a terminal.
    pub(crate) fn facts(&self, now: Timestamp) -> Vec<(&'static str, Cell)> {
        let plain = |text: String| Cell::from(text);
        let shape = if self.gang {
            "one gang"
        } else {
            "independent of each other"
        };
        let mut facts = vec![
            ("Job", plain(self.id.to_string())),
            ("Name", plain(self.name.clone())),
            ("User", plain(self.user.clone())),
            (
                "Queue",
                plain(format!("{}, priority {}", self.queue, self.priority)),
            ),
            ("Phase", self.shown_phase()),
            ("Tasks", plain(format!("{}, {shape}", self.tasks))),
            ("Units", plain(self.units.text())),
            (
                "GPUs",
                plain(format!(
                    "{} held of {} requested",
                    self.gpus_held, self.gpus_asked
                )),
            ),
            (
                "Submitted",
                plain(format!(
                    "{} ({})",
                    self.submitted_at,
                    ago(now, self.submitted_at_ms)
                )),
            ),
        ];
        if let Some(pipeline) = &self.pipeline {
            let text = format!("{} ({})", pipeline.id, pipeline.name);
            facts.push(("Pipeline", plain(text)));
        }
        if let (Some(at), Some(ms)) = (&self.finished_at, self.finished_at_ms) {
            facts.push(("Finished", plain(format!("{at} ({})", ago(now, ms)))));
        }
        if !self.finish_reason.is_empty() {
            facts.push(("Reason", Cell::toned(&*self.finish_reason, Tone::Bad)));
        }
        if let Some(cancel) = &self.cancel {
            let reason = if cancel.reason.is_empty() {
                "no reason given"
            } else {
                &cancel.reason
            };
            facts.push((
                "Cancelled",
                plain(format!("by {}: {reason}", cancel.author)),
            ));
        }
        if let Some(SuspensionView { author, reason, at }) = &self.suspension {
            facts.push(("Suspended", plain(format!("at {at} by {author}: {reason}"))));
        }
        facts
    }
}

impl Row for JobView {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("NAME"),
        Column::new("USER"),
        Column::new("QUEUE"),
        Column::wide("PRIORITY"),
        Column::new("PHASE"),
        Column::new("TASKS"),
        Column::new("GPUS"),
        Column::new("SUBMITTED"),
        Column::wide("TOOK"),
        Column::wide("UNITS"),
        Column::new("REASON"),
    ];
    const KEY: &'static str = "jobs";

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let took = self
            .finished_at_ms
            .map(|finished| span(finished.saturating_sub(self.submitted_at_ms)));
        vec![
            self.id.to_string().into(),
            (*self.name).into(),
            (*self.user).into(),
            (*self.queue).into(),
            self.priority.to_string().into(),
            self.shown_phase(),
            format!("{}{}", self.tasks, if self.gang { " gang" } else { "" }).into(),
            format!("{}/{}", self.gpus_held, self.gpus_asked).into(),
            Cell::toned(ago(now, self.submitted_at_ms), Tone::Faint),
            took.unwrap_or_default().into(),
            self.units.text().into(),
            (*self.finish_reason).into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
