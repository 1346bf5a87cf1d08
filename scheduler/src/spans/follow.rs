//! Trace spans of jobs, from the log as this replica applies it.

use muster_engine::state::{Job, State};
use muster_model::event::{Event, EventKind};
use muster_model::ids::{AttemptEpoch, JobId, ReplicaId, Revision, UnitId, UnitIndex};
use muster_model::time::TimeMs;
use muster_tracing::{Span, SpanId, TraceId, is_on, now_ns, of_ms, record, trace_of, tree};
use tokio_util::sync::CancellationToken;

use crate::service::Context;
use crate::spans::{ATTEMPT, EPOCH, JOB, REPLICA, UNIT};

/// Records spans until `stop`; returns at once if tracing is off.
pub(crate) async fn follow(context: Context, stop: CancellationToken) {
    if !is_on() {
        return;
    }
    let mut applied = context.handle.applied();
    let leadership = context.handle.leadership();
    let mut seen = context.handle.with_state(|state| state.revision);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = applied.changed() => if changed.is_err() { return },
        }
        let leads = leadership.borrow().is_self;
        seen = {
            let state = context.fork();
            let events = AppliedEvents {
                state: &state,
                replica: context.config.replica_id,
                leads,
                now_ns: now_ns(),
            };
            events.record_after(seen);
            state.revision
        };
        // Other tasks of this thread have priority: traces are not urgent.
        tokio::task::yield_now().await;
    }
}

/// The events applied by this replica since the last call.
struct AppliedEvents<'a> {
    state: &'a State,
    replica: ReplicaId,
    leads: bool,
    now_ns: u64,
}

impl AppliedEvents<'_> {
    fn record_after(&self, seen: Revision) {
        for (_, events) in self.state.events.kept_after(seen) {
            for event in events.iter() {
                self.record(event);
            }
        }
    }

    fn record(&self, event: &Event) {
        match &event.kind {
            EventKind::JobSubmitted { job, .. } => {
                if let Some(trace) = trace_of(job.get()) {
                    self.applied(trace, *job, tree::root(trace), event);
                }
            }
            EventKind::AttemptPlaced {
                job, unit, epoch, ..
            } => {
                if let Some(trace) = trace_of(job.get()) {
                    self.applied(trace, *job, tree::attempt(trace, epoch.get()), event);
                    self.placed(trace, UnitId::new(*job, *unit), *epoch, event.time);
                }
            }
            EventKind::AttemptRunning { job, unit, epoch } => {
                self.ran(UnitId::new(*job, *unit), *epoch, event.time, None);
            }
            EventKind::AttemptEnded {
                job,
                unit,
                epoch,
                detail,
                ..
            } => self.ran(UnitId::new(*job, *unit), *epoch, event.time, Some(detail)),
            _ => {}
        }
    }

    /// Span from the log's timestamp until now.
    fn applied(&self, trace: TraceId, job: JobId, parent: SpanId, event: &Event) {
        let numbers = [self.replica.get(), event.revision.get()];
        let id = SpanId::of(trace, tree::APPLY, &numbers);
        let span = Span::new(trace, id, tree::APPLY, of_ms(event.time.0), self.now_ns)
            .below(parent)
            .with(JOB, job.get())
            .with(REPLICA, self.replica.get())
            .with("muster.revision", event.revision.get());
        record(span);
    }

    /// Span of a unit's wait until its placement; recorded by the leader alone.
    fn placed(&self, trace: TraceId, unit: UnitId, epoch: AttemptEpoch, at: TimeMs) {
        let UnitId { job, unit } = unit;
        let Some(known) = self.state.job(job).filter(|_| self.leads) else {
            return;
        };
        let number = attempt_of(known, unit, epoch).map_or(0, |run| run.number);
        let id = SpanId::of(trace, tree::WAIT, &[epoch.get()]);
        let since_ns = of_ms(waited_since(known, unit, epoch).0);
        let span = Span::new(trace, id, tree::WAIT, since_ns, of_ms(at.0))
            .below(tree::root(trace))
            .with(JOB, job.get())
            .with(UNIT, unit.get())
            .with(EPOCH, epoch.get())
            .with(ATTEMPT, number)
            .with("muster.queue", known.spec.queue.as_str());
        record(span);
    }

    /// Span from the placement until all tasks ran, or until the end if they never did; recorded by the
    /// leader alone.
    fn ran(&self, unit: UnitId, epoch: AttemptEpoch, at: TimeMs, ended: Option<&String>) {
        let UnitId { job, unit } = unit;
        let Some(trace) = trace_of(job.get()).filter(|_| self.leads) else {
            return;
        };
        let run = self
            .state
            .job(job)
            .and_then(|job| attempt_of(job, unit, epoch));
        let Some(run) = run else { return };
        if ended.is_some() && run.has_run {
            return;
        }
        let id = tree::attempt(trace, epoch.get());
        let placed_ns = of_ms(run.placed_at.0);
        let span = Span::new(trace, id, tree::ATTEMPT, placed_ns, of_ms(at.0))
            .below(tree::root(trace))
            .with(JOB, job.get())
            .with(UNIT, unit.get())
            .with(EPOCH, epoch.get())
            .with(ATTEMPT, run.number)
            .failed(ended.cloned());
        record(span);
    }
}

/// Data of one attempt of a unit.
struct TracedAttempt {
    number: u32,
    placed_at: TimeMs,
    has_run: bool,
}

/// The current attempt, or a past one.
fn attempt_of(job: &Job, unit: UnitIndex, epoch: AttemptEpoch) -> Option<TracedAttempt> {
    let unit = job.units.get(&unit)?;
    if let Some(current) = unit.attempt.as_ref().filter(|it| it.epoch == epoch) {
        return Some(TracedAttempt {
            number: current.number,
            placed_at: current.placed_at,
            has_run: current.running_at.is_some(),
        });
    }
    let past = unit.past.iter().find(|it| it.epoch == epoch)?;
    Some(TracedAttempt {
        number: past.number,
        placed_at: past.placed_at,
        has_run: past.running_at.is_some(),
    })
}

/// The end of the previous attempt; without one, the submission.
fn waited_since(job: &Job, unit: UnitIndex, epoch: AttemptEpoch) -> TimeMs {
    let past = job.units.get(&unit).map_or(&[][..], |unit| &unit.past);
    let before = past.iter().rev().find(|past| past.epoch < epoch);
    before.map_or(job.submitted_at, |past| past.ended_at)
}
