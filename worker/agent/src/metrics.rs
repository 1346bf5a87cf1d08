//! Metrics of the agent. Names end in their unit; there are no series per job or task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use muster_model::command::Exit;

use crate::tasks::accounts::Reason;

const RUNNING: &str = "muster_worker_tasks_running";
const STARTS: &str = "muster_worker_task_starts_total";
const EXITS: &str = "muster_worker_task_exits_total";
const STUCK: &str = "muster_worker_tasks_stuck_total";
const REFUSED: &str = "muster_worker_tasks_refused_total";
const DAMAGED: &str = "muster_worker_checkpoints_damaged_total";
const ROUND_TRIP: &str = "muster_worker_heartbeat_round_trip_seconds";
const HEARTBEAT_INTERVAL: &str = "muster_worker_heartbeat_interval_seconds";
const LEASE: &str = "muster_worker_lease_remaining_seconds";
const SESSION: &str = "muster_worker_session_open";
const REMOVALS: &str = "muster_worker_checkpoint_removals_total";
const ENGINE: &str = "muster_worker_container_engine";
const SYNC: &str = "muster_worker_journal_sync_seconds";
const EXECS: &str = "muster_worker_execs_total";
const EXECS_RUNNING: &str = "muster_worker_execs_running";
const SHIPPED: &str = "muster_worker_log_segments_shipped_total";
const SHIP_FAILURES: &str = "muster_worker_log_ship_failures_total";
const UNSHIPPED: &str = "muster_worker_log_segments_unshipped";
const UNSHIPPED_LOST: &str = "muster_worker_log_unshipped_lost_bytes_total";
const REMOVED: &str = "muster_worker_log_attempts_removed_total";

/// Registers the descriptions, and initializes the series used by alerts with 0, so that they exist before
/// the first event.
pub(crate) fn describe() {
    for name in [STUCK, DAMAGED, UNSHIPPED_LOST, SHIP_FAILURES] {
        counter!(name).increment(0);
    }
    for reason in Reason::ALL {
        counter!(REFUSED, "reason" => reason.label()).increment(0);
    }
    gauge!(UNSHIPPED).set(0.0);
    gauge!(SESSION).set(0.0);
    describe_tasks();
    muster_monitor::describe_metrics();
}

fn describe_tasks() {
    describe_gauge!(RUNNING, "tasks with a living process on this host");
    describe_counter!(STARTS, "supervisors started");
    describe_counter!(EXITS, "tasks ended, by kind");
    describe_counter!(
        STUCK,
        "tasks that could not be killed because they hang in the kernel"
    );
    describe_counter!(
        REFUSED,
        "tasks refused because this host has no account that they may run as, by reason"
    );
    describe_counter!(DAMAGED, "checkpoints that tasks reported as unreadable");
    describe_histogram!(
        ROUND_TRIP,
        "time from sending a heartbeat to its acknowledgement"
    );
    describe_gauge!(
        HEARTBEAT_INTERVAL,
        "heartbeat interval requested by the leader"
    );
    describe_gauge!(
        LEASE,
        "time until the first lease expires and its supervisor kills the task"
    );
    describe_gauge!(SESSION, "1 while a session with the leader is open");
    describe_counter!(REMOVALS, "checkpoint removals, by outcome: removed or kept");
    describe_gauge!(ENGINE, "1 while a container engine answers on this host");
    describe_histogram!(SYNC, "time to make a batch of journal records durable");
    describe_counter!(EXECS, "exec sessions started");
    describe_gauge!(EXECS_RUNNING, "exec sessions that run now");
    describe_counter!(SHIPPED, "segments of output that were shipped");
    describe_counter!(SHIP_FAILURES, "failed attempts to ship a segment of output");
    describe_gauge!(
        UNSHIPPED,
        "finished segments of output that wait to be shipped"
    );
    describe_counter!(
        UNSHIPPED_LOST,
        "bytes of output that were removed before they were shipped"
    );
    describe_counter!(REMOVED, "ended attempts whose output was removed");
}

pub(crate) fn task_started() {
    counter!(STARTS).increment(1);
}

pub(crate) fn task_exited(exit: &Exit) {
    counter!(EXITS, "kind" => exit_kind(exit)).increment(1);
}

pub(crate) fn task_refused(reason: Reason) {
    counter!(REFUSED, "reason" => reason.label()).increment(1);
}

pub(crate) fn checkpoint_damaged() {
    counter!(DAMAGED).increment(1);
}

pub(crate) fn task_vanished() {
    counter!(EXITS, "kind" => "vanished").increment(1);
}

pub(crate) fn task_stuck() {
    counter!(STUCK).increment(1);
}

pub(crate) fn checkpoint_removed(outcome: &'static str) {
    counter!(REMOVALS, "outcome" => outcome).increment(1);
}

pub(crate) fn heartbeat_round_trip_ms(milliseconds: u64) {
    histogram!(ROUND_TRIP).record(Duration::from_millis(milliseconds).as_secs_f64());
}

pub(crate) fn heartbeat_interval_ms(milliseconds: u64) {
    gauge!(HEARTBEAT_INTERVAL).set(Duration::from_millis(milliseconds).as_secs_f64());
}

pub(crate) fn journal_synced(took: Duration) {
    histogram!(SYNC).record(took.as_secs_f64());
}

pub(crate) fn exec_began() {
    counter!(EXECS).increment(1);
    gauge!(EXECS_RUNNING).increment(1.0);
}

pub(crate) fn exec_ended() {
    gauge!(EXECS_RUNNING).decrement(1.0);
}

pub(crate) fn segment_shipped(lost_bytes: u64) {
    counter!(SHIPPED).increment(1);
    counter!(UNSHIPPED_LOST).increment(lost_bytes);
}

/// Counts bytes of an ended attempt that were removed unshipped.
pub(crate) fn unshipped_lost(bytes: u64) {
    counter!(UNSHIPPED_LOST).increment(bytes);
}

pub(crate) fn segment_ship_failed() {
    counter!(SHIP_FAILURES).increment(1);
}

pub(crate) fn segments_unshipped(waiting: usize) {
    gauge!(UNSHIPPED).set(count(waiting));
}

pub(crate) fn logs_removed(attempts: usize) {
    counter!(REMOVED).increment(attempts as u64);
}

pub(crate) fn container_engine(answers: bool) {
    gauge!(ENGINE).set(if answers { 1.0 } else { 0.0 });
}

/// Mirrors the gauge; one for the process.
static SESSION_IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether this worker has a session with a leader.
pub(crate) fn session_is_open() -> bool {
    SESSION_IS_OPEN.load(Ordering::Relaxed)
}

pub(crate) fn session_open(open: bool) {
    SESSION_IS_OPEN.store(open, Ordering::Relaxed);
    gauge!(SESSION).set(if open { 1.0 } else { 0.0 });
}

/// Sets the gauges.
pub(crate) fn levels(running: usize, lease_remaining_ms: Option<u64>) {
    gauge!(RUNNING).set(count(running));
    if let Some(remaining_ms) = lease_remaining_ms {
        gauge!(LEASE).set(Duration::from_millis(remaining_ms).as_secs_f64());
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

const fn exit_kind(exit: &Exit) -> &'static str {
    if exit.start_error.is_some() {
        "start_error"
    } else if exit.lease_expired {
        "lease_expired"
    } else if exit.signal.is_some() {
        "signal"
    } else if matches!(exit.code, Some(0)) {
        "success"
    } else {
        "failure"
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_worker_without_a_session_reports_that_from_the_start() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, describe);
        let page = recorder.handle().render();
        assert!(
            page.lines().any(|line| line == format!("{SESSION} 0")),
            "{page}"
        );
    }
}
