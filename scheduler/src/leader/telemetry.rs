//! Metrics of the leader loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use muster_model::command::HostHealth;
use muster_model::health::Severity;
use muster_model::ids::LeadershipEpoch;
use muster_planner::{Plan, Reason};
use tokio::time::Instant;

use crate::leader::changes::Changes;
use crate::metrics::names;

const MS_PER_SECOND: u64 = 1_000;
/// GPU-milliseconds lost by moves since the process started: the counter has whole seconds.
static MOVES_LOST_MS: AtomicU64 = AtomicU64::new(0);

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a floating-point number"
)]
fn number(count: u64) -> f64 {
    count as f64
}

/// Records whether this replica leads. Gauges that only a leader knows are 0 on all others; otherwise they
/// would keep their last value forever.
pub(super) fn leading(is_leader: bool) {
    // Counters start at 0: a missing series cannot be distinguished from one that is not served.
    counter!(names::REJECTED_TOTAL).increment(0);
    if !is_leader {
        gauge!(names::WORKERS_CONNECTED).set(0.0);
        gauge!(names::HEARTBEAT_INTERVAL_SECONDS).set(0.0);
        for reason in Reason::ALL {
            gauge!(names::JOBS_WAITING, "reason" => reason.name()).set(0.0);
        }
    }
}

/// Phases of a turn of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Forks the state.
    Fork,
    /// Evaluates the events since the previous turn.
    Changes,
    /// Sends desired states to workers.
    Dispatch,
    /// Processes the reports of workers.
    Inputs,
    /// Decides the reactions to reports and to elapsed time.
    Reactions,
    /// Plans, if a round is due.
    Plan,
    /// Proposes the commands.
    Propose,
    /// Waits for their outcomes.
    Commit,
}

impl Phase {
    const fn label(self) -> &'static str {
        match self {
            Self::Fork => "fork",
            Self::Changes => "changes",
            Self::Dispatch => "dispatch",
            Self::Inputs => "inputs",
            Self::Reactions => "reactions",
            Self::Plan => "plan",
            Self::Propose => "propose",
            Self::Commit => "commit",
        }
    }

    /// Records the duration of the phase.
    pub(super) fn took(self, took: Duration) {
        histogram!(names::TURN_SECONDS, "phase" => self.label()).record(took);
    }
}

/// Measures the phases of a turn, one after the other.
#[derive(Debug)]
pub(super) struct PhaseTimer {
    since: Instant,
}

impl PhaseTimer {
    pub(super) fn begin() -> Self {
        Self {
            since: Instant::now(),
        }
    }

    /// Ends this phase and starts the next one.
    pub(super) fn ended(&mut self, phase: Phase) {
        let now = Instant::now();
        phase.took(now - self.since);
        self.since = now;
    }
}

pub(super) fn epoch(epoch: LeadershipEpoch) {
    gauge!(names::LEADERSHIP_EPOCH).set(number(epoch.get()));
}

pub(super) fn workers_connected(count: usize) {
    gauge!(names::WORKERS_CONNECTED).set(number(count as u64));
}

pub(super) fn changed(changes: &Changes) {
    counter!(names::PLACEMENTS_TOTAL).increment(changes.placed);
    for (queue, waited_ms) in &changes.waits_ms {
        histogram!(names::WAIT_SECONDS, "queue" => queue.clone())
            .record(Duration::from_millis(*waited_ms));
    }
    counter!(names::GANGS_RELEASED_TOTAL).increment(changes.released);
    for start_ms in &changes.gang_starts_ms {
        histogram!(names::GANG_START_SECONDS).record(Duration::from_millis(*start_ms));
    }
    counter!(names::RETRIES_IN_PLACE_TOTAL).increment(changes.retried);
    counter!(names::CLAIMS_TOTAL).increment(changes.claimed);
    counter!(names::CLAIMS_DROPPED_TOTAL).increment(changes.claims_dropped);
    counter!(names::PREEMPTIONS_TOTAL).increment(changes.preempted);
    counter!(names::MOVES_TOTAL).increment(changes.moved);
    let lost_ms = MOVES_LOST_MS
        .fetch_add(changes.moves_lost_gpu_ms, Ordering::Relaxed)
        .saturating_add(changes.moves_lost_gpu_ms);
    counter!(names::MOVES_LOST_GPU_SECONDS_TOTAL).absolute(lost_ms / MS_PER_SECOND);
    health_changed(changes);
}

fn health_changed(changes: &Changes) {
    for (class, charge, step) in &changes.attributed {
        let labels = [
            ("class", class.name()),
            ("charge", charge.name()),
            ("step", step.name()),
        ];
        counter!(names::ATTEMPTS_ATTRIBUTED_TOTAL, &labels).increment(1);
    }
    for (kind, rule) in &changes.blocked {
        counter!(names::BLOCKS_TOTAL, "kind" => kind.name(), "rule" => rule.clone()).increment(1);
    }
    for (component, by_admin) in &changes.unblocked {
        let source = if *by_admin { "admin" } else { "auto" };
        let labels = [("kind", component.kind().name()), ("source", source)];
        counter!(names::UNBLOCKS_TOTAL, &labels).increment(1);
    }
    for note in &changes.noted {
        counter!(names::HEALTH_NOTES_TOTAL, "note" => note.name()).increment(1);
    }
}

/// Records the silence of a host when it was declared suspect or lost.
pub(super) fn silent(health: HostHealth, one_way: bool, silence: Duration) {
    let conclusion = match health {
        HostHealth::Up => return,
        HostHealth::Suspect => "suspect",
        HostHealth::Lost => "lost",
    };
    let cause = if one_way { "one_way" } else { "silence" };
    histogram!(names::SILENCE_SECONDS, "conclusion" => conclusion, "cause" => cause)
        .record(silence);
}

pub(super) fn planned(took: Duration, scope: &'static str, plan: &Plan) {
    histogram!(names::PLAN_SECONDS, "scope" => scope).record(took);
    Phase::Plan.took(took);
    counter!(names::PLAN_CUT_SHORT_TOTAL).increment(u64::from(plan.more));
    counter!(names::PLANNED_TOTAL).increment(plan.placements().count() as u64);
    for reason in Reason::ALL {
        let jobs = plan.waiting.get(&reason).copied().unwrap_or_default();
        gauge!(names::JOBS_WAITING, "reason" => reason.name()).set(number(jobs));
    }
}

pub(super) fn proposed(commands: usize) {
    histogram!(names::BATCH_COMMANDS).record(number(commands as u64));
}

/// Records the time from a worker's finding to its commit, in milliseconds.
pub(super) fn detected(severity: Severity, took_ms: u64) {
    let took = Duration::from_millis(took_ms);
    histogram!(names::DETECTION_SECONDS, "severity" => severity.name()).record(took);
}

pub(super) fn rejected() {
    counter!(names::REJECTED_TOTAL).increment(1);
}

pub(super) fn replicas_changed(is_done: bool) {
    let outcome = if is_done { "done" } else { "failed" };
    counter!(names::REPLICA_CHANGES_TOTAL, "outcome" => outcome).increment(1);
}

pub(super) fn heartbeat() {
    counter!(names::HEARTBEATS_TOTAL).increment(1);
}

pub(super) fn replication_took(took: Duration) {
    histogram!(names::SHADOW_SECONDS).record(took);
}

pub(super) fn heartbeat_interval(period_ms: u64) {
    gauge!(names::HEARTBEAT_INTERVAL_SECONDS).set(Duration::from_millis(period_ms).as_secs_f64());
}
