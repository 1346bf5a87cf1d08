//! What a worker measures. Names end in their unit; series per job or task do not exist.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use muster_core::command::Exit;

const RUNNING: &str = "muster_worker_tasks_running";
const STARTS: &str = "muster_worker_task_starts_total";
const EXITS: &str = "muster_worker_task_exits_total";
const SPOILED: &str = "muster_worker_checkpoints_spoiled_total";
const ROUND_TRIP: &str = "muster_worker_beat_round_trip_seconds";
const LEASE: &str = "muster_worker_lease_remaining_seconds_min";
const FAULTED: &str = "muster_worker_gpus_faulted";
const SESSION: &str = "muster_worker_session_open";
const SYNC: &str = "muster_worker_journal_sync_seconds";

/// Says what each one is.
pub(crate) fn describe() {
    describe_gauge!(RUNNING, "tasks with a living process on this host");
    describe_counter!(STARTS, "supervisors started");
    describe_counter!(EXITS, "tasks ended, by kind");
    describe_counter!(SPOILED, "checkpoints that tasks said they could not read");
    describe_histogram!(ROUND_TRIP, "from sending a beat to its acknowledgement");
    describe_gauge!(LEASE, "until the first supervisor kills its task by itself");
    describe_gauge!(FAULTED, "GPUs of this host that are unfit");
    describe_gauge!(SESSION, "1 while a session with the leader is open");
    describe_histogram!(SYNC, "time to make a batch of journal records durable");
}

pub(crate) fn task_started() {
    counter!(STARTS).increment(1);
}

pub(crate) fn task_exited(exit: &Exit) {
    counter!(EXITS, "kind" => exit_kind(exit)).increment(1);
}

pub(crate) fn checkpoint_spoiled() {
    counter!(SPOILED).increment(1);
}

pub(crate) fn task_vanished() {
    counter!(EXITS, "kind" => "vanished").increment(1);
}

pub(crate) fn beat_round_trip_ms(milliseconds: u64) {
    histogram!(ROUND_TRIP).record(Duration::from_millis(milliseconds).as_secs_f64());
}

pub(crate) fn journal_synced(took: Duration) {
    histogram!(SYNC).record(took.as_secs_f64());
}

pub(crate) fn session_open(open: bool) {
    gauge!(SESSION).set(if open { 1.0 } else { 0.0 });
}

/// What is true now.
pub(crate) fn levels(running: usize, gpus_faulted: usize, lease_remaining_ms: Option<u64>) {
    gauge!(RUNNING).set(count(running));
    gauge!(FAULTED).set(count(gpus_faulted));
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
