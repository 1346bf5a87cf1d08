//! What the leader loop counts.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use muster_core::command::HostHealth;
use muster_core::ids::LeadershipEpoch;
use muster_core::plan::{Plan, Reason};

use crate::leader::changes::Changes;
use crate::metrics::names;

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a floating-point number"
)]
fn number(count: u64) -> f64 {
    count as f64
}

pub(super) fn leading(is_leader: bool) {
    gauge!(names::IS_LEADER).set(f64::from(u8::from(is_leader)));
}

pub(super) fn epoch(epoch: LeadershipEpoch) {
    gauge!(names::LEADERSHIP_EPOCH).set(number(epoch.get()));
}

pub(super) fn workers_connected(count: usize) {
    gauge!(names::WORKERS_CONNECTED).set(number(count as u64));
}

pub(super) fn changed(changes: &Changes) {
    counter!(names::PLACEMENTS_TOTAL).increment(changes.placed);
    counter!(names::GANGS_RELEASED_TOTAL).increment(changes.released);
    for start_ms in &changes.gang_starts_ms {
        histogram!(names::GANG_START_SECONDS).record(Duration::from_millis(*start_ms));
    }
    counter!(names::RETRIES_IN_PLACE_TOTAL).increment(changes.retried);
    counter!(names::CLAIMS_TOTAL).increment(changes.claimed);
    counter!(names::CLAIMS_DROPPED_TOTAL).increment(changes.claims_dropped);
    counter!(names::PREEMPTIONS_TOTAL).increment(changes.preempted);
    counter!(names::MOVES_TOTAL).increment(changes.moved);
    counter!(names::MOVES_LOST_GPU_MS_TOTAL).increment(changes.moves_lost_gpu_ms);
    health_changed(changes);
}

fn health_changed(changes: &Changes) {
    for (class, charge, step) in &changes.blamed {
        let labels = [
            ("class", class.word()),
            ("charge", charge.word()),
            ("step", step.word()),
        ];
        counter!(names::ATTEMPTS_BLAMED_TOTAL, &labels).increment(1);
    }
    for (kind, rule) in &changes.blocked {
        counter!(names::BLOCKS_TOTAL, "kind" => kind.word(), "rule" => rule.clone()).increment(1);
    }
    for note in &changes.noted {
        counter!(names::HEALTH_NOTES_TOTAL, "note" => note.word()).increment(1);
    }
}

/// A host was silent for so long when it was concluded that it is this.
pub(super) fn silent((health, one_way): (HostHealth, bool), silence: Duration) {
    let conclusion = match health {
        HostHealth::Up => return,
        HostHealth::Suspect => "suspect",
        HostHealth::Lost => "lost",
    };
    let cause = if one_way { "one_way" } else { "silence" };
    histogram!(names::SILENCE_SECONDS, "conclusion" => conclusion, "cause" => cause)
        .record(silence);
}

pub(super) fn planned(took: Duration, plan: &Plan) {
    histogram!(names::PLAN_SECONDS).record(took);
    counter!(names::PLANNED_TOTAL).increment(plan.placements().count() as u64);
    for reason in Reason::ALL {
        let jobs = plan.waiting.get(&reason).copied().unwrap_or_default();
        gauge!(names::JOBS_WAITING, "reason" => reason.name()).set(number(jobs));
    }
}

pub(super) fn proposed(commands: usize) {
    histogram!(names::BATCH_COMMANDS).record(number(commands as u64));
}

pub(super) fn concluded(took: Duration) {
    histogram!(names::PROPOSE_SECONDS).record(took);
}

pub(super) fn rejected() {
    counter!(names::REJECTED_TOTAL).increment(1);
}

pub(super) fn shadowed(took: Duration) {
    histogram!(names::SHADOW_SECONDS).record(took);
}

pub(super) fn beats_every(period_ms: u64) {
    gauge!(names::BEAT_INTERVAL_SECONDS).set(Duration::from_millis(period_ms).as_secs_f64());
}
