//! What this worker adds to the traces of jobs: how long the start of a task took, and of what it is made up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_control::agent::SupervisorReport;
use muster_model::desired::TaskAssignment;
use muster_service::tracing::{Span, SpanId, TraceId, now_ns, record, trace_of, tree};
use muster_supervisor::RunId;

/// Starts under way that are followed at a time; more are not.
const STARTS_MAX: usize = 1_024;

/// The starts that are under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartSpans(Arc<Mutex<BTreeMap<RunId, Start>>>);

#[derive(Clone, Copy, Debug)]
struct Start {
    trace: TraceId,
    unit: u32,
    heard_ns: u64,
    /// When its record was on the disk.
    journalled_ns: Option<u64>,
    /// When all was there that it needs; its gang may be waited for then.
    prepared_ns: Option<u64>,
}

impl StartSpans {
    /// The agent has decided to start a task that it has just heard of.
    pub(crate) fn decided(&self, assignment: &TaskAssignment) {
        if assignment.key.task.get() >= tree::TASKS_TRACED_MAX {
            return;
        }
        let Some(trace) = trace_of(assignment.key.job.get()) else {
            return;
        };
        let mut starts = self.lock();
        if starts.len() < STARTS_MAX {
            let start = Start {
                trace,
                unit: assignment.unit.get(),
                heard_ns: now_ns(),
                journalled_ns: None,
                prepared_ns: None,
            };
            starts.insert(RunId::of(assignment), start);
        }
    }

    /// The start is on the disk: its supervisor is started.
    pub(crate) fn journalled(&self, id: RunId) {
        if let Some(start) = self.lock().get_mut(&id) {
            start.journalled_ns = Some(now_ns());
        }
    }

    /// A supervisor says how it goes; the first word that the task runs, or will not, ends its start.
    pub(crate) fn reported(&self, id: RunId, report: &SupervisorReport) {
        let mut starts = self.lock();
        let Some(start) = starts.get_mut(&id) else {
            return;
        };
        let error = match report {
            SupervisorReport::Prepared { .. } => {
                start.prepared_ns = Some(now_ns());
                return;
            }
            SupervisorReport::Started => None,
            SupervisorReport::Exited(exit) => exit.start_error.clone(),
            SupervisorReport::Vanished { detail } | SupervisorReport::Stuck { detail, .. } => {
                Some(detail.clone())
            }
        };
        let start = *start;
        starts.remove(&id);
        drop(starts);
        start.over(id, error);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Start>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Start {
    fn over(self, run: RunId, error: Option<String>) {
        let Self {
            trace, heard_ns, ..
        } = self;
        let ended_ns = now_ns();
        let (task, epoch) = (run.key.task.get(), run.epoch.get());
        let id = |name| SpanId::of(trace, name, &[epoch, task.into()]);
        let span = |name, time_ns| {
            Span::new((trace, id(name)), name, time_ns)
                .with("muster.job_id", run.key.job.get())
                .with("muster.unit", self.unit)
                .with("muster.task", task)
                .with("muster.epoch", epoch)
        };
        let whole = span(tree::START, (heard_ns, ended_ns));
        record(whole.below(tree::attempt(trace, epoch)).failed(error));
        let Some(journalled_ns) = self.journalled_ns else {
            return;
        };
        let start = id(tree::START);
        record(span(tree::JOURNAL, (heard_ns, journalled_ns)).below(start));
        let prepared_ns = self.prepared_ns.unwrap_or(ended_ns);
        record(span(tree::SUPERVISOR, (journalled_ns, prepared_ns)).below(start));
    }
}
