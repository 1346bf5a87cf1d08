//! Trace spans of task starts: total duration and phases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_control::agent::SupervisorReport;
use muster_model::desired::TaskAssignment;
use muster_supervisor::RunId;
use muster_tracing::{Span, SpanId, TraceId, now_ns, record, trace_of, tree};

/// Maximum number of starts traced at a time; further ones are not traced.
const STARTS_MAX: usize = 1_024;

/// The starts in progress. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartSpans(Arc<Mutex<BTreeMap<RunId, Start>>>);

#[derive(Clone, Copy, Debug)]
struct Start {
    trace: TraceId,
    unit: u32,
    accepted_ns: u64,
    /// Time when its record was on disk.
    journalled_ns: Option<u64>,
    /// Time when the task was prepared; it may then wait for its gang.
    prepared_ns: Option<u64>,
}

impl StartSpans {
    /// Begins the trace of a start: the agent accepted a new task.
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
                accepted_ns: now_ns(),
                journalled_ns: None,
                prepared_ns: None,
            };
            starts.insert(RunId::of(assignment), start);
        }
    }

    /// The start is on disk: its supervisor is started.
    pub(crate) fn journalled(&self, id: RunId) {
        if let Some(start) = self.lock().get_mut(&id) {
            start.journalled_ns = Some(now_ns());
        }
    }

    /// Takes a supervisor's report; the first one that the task runs, or will not, ends its start.
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
            trace, accepted_ns, ..
        } = self;
        let ended_ns = now_ns();
        let (task, epoch) = (run.key.task.get(), run.epoch.get());
        let id = |name| SpanId::of(trace, name, &[epoch, task.into()]);
        let span = |name, began_ns, ended_ns| {
            Span::new(trace, id(name), name, began_ns, ended_ns)
                .with("muster.job_id", run.key.job.get())
                .with("muster.unit", self.unit)
                .with("muster.task", task)
                .with("muster.epoch", epoch)
        };
        let whole = span(tree::START, accepted_ns, ended_ns);
        record(whole.below(tree::attempt(trace, epoch)).failed(error));
        let Some(journalled_ns) = self.journalled_ns else {
            return;
        };
        let start = id(tree::START);
        record(span(tree::JOURNAL, accepted_ns, journalled_ns).below(start));
        let prepared_ns = self.prepared_ns.unwrap_or(ended_ns);
        record(span(tree::SUPERVISOR, journalled_ns, prepared_ns).below(start));
    }
}
