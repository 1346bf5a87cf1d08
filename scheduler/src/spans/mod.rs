//! A replica's spans in the traces of jobs: `muster_tracing::tree` defines the spans and their
//! hierarchy.
//!
//! Tracing decides nothing and never waits; without an exporter it costs one check.

mod follow;
mod submission;

use std::collections::BTreeSet;
use std::time::Duration;

use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::desired::DesiredState;
use muster_model::ids::{AttemptEpoch, HostId, JobId, Revision};
use muster_model::lifecycle::TaskPhase;
use muster_tracing::{Span, SpanId, is_on, now_ns, of_ms, record, trace_of, tree};

pub(crate) use follow::follow;
pub(crate) use submission::{Submission, Submitted, forwarded, proposed, traced};

/// Attributes that several spans have.
const JOB: &str = "muster.job_id";
const REPLICA: &str = "muster.replica_id";
const UNIT: &str = "muster.unit";
const EPOCH: &str = "muster.epoch";
const ATTEMPT: &str = "muster.attempt";
const HOST: &str = "muster.host_id";

/// Placements of one planning round with a span each, so that the end of the round is not delayed.
const PLANNED_SPANS_MAX: usize = 256;

/// Records the span of a finished planning round for the jobs that it placed.
pub(crate) fn planned(steps: &[Command], took: Duration) {
    if !is_on() {
        return;
    }
    let ended_ns = now_ns();
    let began_ns = ended_ns.saturating_sub(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    let placements = steps.iter().filter_map(|step| match step {
        Command::Place(placement) => Some((placement.job, placement.unit)),
        _ => None,
    });
    for (job, unit) in placements.take(PLANNED_SPANS_MAX) {
        let Some(trace) = trace_of(job.get()) else {
            continue;
        };
        let id = SpanId::of(trace, tree::PLAN, &[began_ns, unit.get().into()]);
        let span = Span::new(trace, id, tree::PLAN, began_ns, ended_ns)
            .below(tree::root(trace))
            .with(JOB, job.get())
            .with(UNIT, unit.get());
        record(span);
    }
}

/// Records a desired state sent to a host's worker; `before` is the revision of the last one.
pub(crate) fn ordered(state: &State, host: HostId, before: Revision, desired: &DesiredState) {
    if !is_on() {
        return;
    }
    let ended_ns = now_ns();
    let mut recorded: BTreeSet<(JobId, AttemptEpoch)> = BTreeSet::new();
    for task in &desired.tasks {
        let (job, epoch) = (task.key.job, task.epoch);
        // An attempt's epoch is the revision of its placement.
        let is_new = epoch.get() > before.get() && task.acknowledged == TaskPhase::Assigned;
        if !is_new || !recorded.insert((job, epoch)) {
            continue;
        }
        let unit = state.job(job).and_then(|job| job.units.get(&task.unit));
        let attempt = unit.and_then(|unit| unit.attempt.as_ref());
        let (Some(trace), Some(attempt)) = (trace_of(job.get()), attempt) else {
            continue;
        };
        let id = SpanId::of(trace, tree::ORDER, &[epoch.get(), host.get().into()]);
        let placed_ns = of_ms(attempt.placed_at.0);
        let span = Span::new(trace, id, tree::ORDER, placed_ns, ended_ns)
            .below(tree::attempt(trace, epoch.get()))
            .with(JOB, job.get())
            .with(UNIT, task.unit.get())
            .with(EPOCH, epoch.get())
            .with(HOST, host.get());
        record(span);
    }
}
