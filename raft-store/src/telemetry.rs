//! Metrics of a replica, all named `muster_raft_*`.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

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

pub(crate) fn snapshot_written(elapsed: Duration) {
    histogram!("muster_raft_snapshot_seconds").record(elapsed.as_secs_f64());
}

pub(crate) fn leadership(term: u64, is_leader: bool) {
    gauge!("muster_raft_term").set(term as f64);
    gauge!("muster_raft_is_leader").set(f64::from(u8::from(is_leader)));
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

/// 1 while the group addresses another incarnation of this replica: its data directory was lost or replaced.
pub(crate) fn disowned(is_disowned: bool) {
    gauge!("muster_raft_disowned").set(f64::from(u8::from(is_disowned)));
}
