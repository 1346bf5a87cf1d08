//! Metrics of a replica, all named `muster_raft_*`.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::member::leadership::Leadership;

/// Registers the help text of every metric of this crate.
pub fn describe_metrics() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(name, help);
    }
    // A missing series looks like one that is not collected: these begin at 0.
    for reason in ["not_leader", "overloaded"] {
        counter!("muster_raft_proposals_refused_total", "reason" => reason).increment(0);
    }
    counter!("muster_raft_snapshots_decayed_total").increment(0);
    drop(histogram!("muster_raft_snapshot_seconds"));
    for (property, name, help) in DATABASE {
        describe_gauge!(name, format!("{help} (RocksDB's {property})."));
    }
}

const COUNTERS: [(&str, &str); 4] = [
    (
        "muster_raft_proposed_commands_total",
        "Commands proposed by this replica.",
    ),
    (
        "muster_raft_proposals_refused_total",
        "Proposals refused, by reason: not_leader, overloaded.",
    ),
    (
        "muster_raft_applied_commands_total",
        "Commands applied to the state.",
    ),
    (
        "muster_raft_snapshots_decayed_total",
        "Snapshots found decayed on this replica's disk when about to be sent, and rewritten.",
    ),
];

const GAUGES: [(&str, &str); 13] = [
    (
        "muster_raft_term",
        "Term of the replication group, as this replica knows it.",
    ),
    (
        "muster_raft_is_leader",
        "1 while this replica leads and a majority answers it.",
    ),
    (
        "muster_raft_knows_leader",
        "1 while this replica leads or has a live leader; 0 if it is partitioned or there is no majority.",
    ),
    (
        "muster_raft_last_log_index",
        "Newest entry of this replica's log.",
    ),
    (
        "muster_raft_applied_index",
        "Newest entry that this replica has applied.",
    ),
    (
        "muster_raft_follower_lag_entries",
        "Log entries a follower lags, reported by the leader; 0 at others.",
    ),
    (
        "muster_raft_follower_silence_seconds",
        "Time since a follower last answered, or since it joined, reported by the leader; 0 at others.",
    ),
    (
        "muster_raft_disowned",
        "1 while the group addresses another incarnation of this replica: its data directory was lost or replaced.",
    ),
    ("muster_raft_voters", "Voters, as known to this replica."),
    (
        "muster_raft_learners",
        "Learners, as known to this replica.",
    ),
    (
        "muster_raft_membership_index",
        "Log index of the membership in effect on this replica.",
    ),
    (
        "muster_raft_membership_changing",
        "1 while a change of voters is in progress: both voter sets must agree.",
    ),
    (
        "muster_raft_removed",
        "1 once this replica knows that the group has removed it.",
    ),
];

const HISTOGRAMS: [(&str, &str); 5] = [
    ("muster_raft_entry_commands", "Commands of one log entry."),
    ("muster_raft_entry_bytes", "Size of one log entry."),
    (
        "muster_raft_log_sync_seconds",
        "Time of one sync of the log to disk.",
    ),
    (
        "muster_raft_apply_seconds",
        "Time to apply one batch of entries.",
    ),
    (
        "muster_raft_snapshot_seconds",
        "Time to write one snapshot.",
    ),
];

/// Gauges of the log's database: RocksDB property, metric name, help text.
pub(crate) const DATABASE: [(&str, &str, &str); 6] = [
    (
        "rocksdb.total-sst-files-size",
        "muster_raft_database_files_bytes",
        "Size of the log's tables on disk",
    ),
    (
        "rocksdb.cur-size-all-mem-tables",
        "muster_raft_database_memtables_bytes",
        "Size of the log's tables in memory",
    ),
    (
        "rocksdb.estimate-pending-compaction-bytes",
        "muster_raft_database_pending_compaction_bytes",
        "Bytes pending compaction",
    ),
    (
        "rocksdb.num-running-compactions",
        "muster_raft_database_compactions",
        "Running compactions",
    ),
    (
        "rocksdb.is-write-stopped",
        "muster_raft_database_write_stopped",
        "1 while writes are stopped",
    ),
    (
        "rocksdb.background-errors",
        "muster_raft_database_background_errors",
        "Errors of flushes and compactions since the start",
    ),
];

pub(crate) fn database(name: &'static str, value: u64) {
    gauge!(name).set(value as f64);
}

pub(crate) fn proposed(commands: usize, bytes: usize) {
    counter!("muster_raft_proposed_commands_total").increment(commands as u64);
    histogram!("muster_raft_entry_commands").record(commands as f64);
    histogram!("muster_raft_entry_bytes").record(bytes as f64);
}

pub(crate) fn proposal_refused(reason: &'static str) {
    counter!("muster_raft_proposals_refused_total", "reason" => reason).increment(1);
}

pub(crate) fn log_synced(elapsed: Duration) {
    histogram!("muster_raft_log_sync_seconds").record(elapsed.as_secs_f64());
}

pub(crate) fn applied(commands: usize, elapsed: Duration) {
    counter!("muster_raft_applied_commands_total").increment(commands as u64);
    histogram!("muster_raft_apply_seconds").record(elapsed.as_secs_f64());
}

pub(crate) fn snapshot_decayed() {
    counter!("muster_raft_snapshots_decayed_total").increment(1);
}

pub(crate) fn snapshot_written(elapsed: Duration) {
    histogram!("muster_raft_snapshot_seconds").record(elapsed.as_secs_f64());
}

pub(crate) fn leadership(current: &Leadership) {
    gauge!("muster_raft_term").set(current.term as f64);
    gauge!("muster_raft_is_leader").set(f64::from(u8::from(current.is_self)));
    let knows_leader = current.leader.is_some();
    gauge!("muster_raft_knows_leader").set(f64::from(u8::from(knows_leader)));
}

pub(crate) fn log_position(last: u64, applied: u64) {
    gauge!("muster_raft_last_log_index").set(last as f64);
    gauge!("muster_raft_applied_index").set(applied as f64);
}

pub(crate) fn follower_lag(follower: u64, entries: u64) {
    gauge!("muster_raft_follower_lag_entries", "follower" => follower.to_string())
        .set(entries as f64);
}

pub(crate) fn follower_silence(follower: u64, ago_ms: u64) {
    let silence = Duration::from_millis(ago_ms);
    gauge!("muster_raft_follower_silence_seconds", "follower" => follower.to_string())
        .set(silence.as_secs_f64());
}

/// Number of voters and learners, and the current membership.
pub(crate) fn members(voters: usize, learners: usize, index: u64, is_changing: bool) {
    gauge!("muster_raft_voters").set(voters as f64);
    gauge!("muster_raft_learners").set(learners as f64);
    gauge!("muster_raft_membership_index").set(index as f64);
    gauge!("muster_raft_membership_changing").set(f64::from(u8::from(is_changing)));
}

/// 1 once this replica knows that the group has removed it.
pub(crate) fn removed(is_removed: bool) {
    gauge!("muster_raft_removed").set(f64::from(u8::from(is_removed)));
}

/// 1 while the group addresses another incarnation of this replica: its data directory was lost or
/// replaced.
pub(crate) fn disowned(is_disowned: bool) {
    gauge!("muster_raft_disowned").set(f64::from(u8::from(is_disowned)));
}
