//! Metrics of etcd.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};

const UP: &str = "muster_etcd_up";
const ERRORS_TOTAL: &str = "muster_etcd_errors_total";
const MIRROR_LAG_SECONDS: &str = "muster_etcd_mirror_lag_seconds";
const KEYS: &str = "muster_etcd_keys";
const WRITES_TOTAL: &str = "muster_etcd_writes_total";
const LEASES_TOTAL: &str = "muster_etcd_leases_total";

/// Registers the help texts of the metrics.
pub fn describe_metrics() {
    describe_gauge!(
        UP,
        "1 while etcd calls of this replica succeed, 0 while they fail; absent if etcd is not used."
    );
    describe_counter!(
        ERRORS_TOTAL,
        "Failed etcd calls, by kind (unreachable, silent, full, denied, lease_over, superseded, settings, failed)."
    );
    describe_gauge!(
        MIRROR_LAG_SECONDS,
        "On the leader: age of the plan in etcd, 0 while it is up to date; 0 on other replicas."
    );
    describe_gauge!(KEYS, "On the leader: keys of the plan known to be in etcd.");
    describe_counter!(
        WRITES_TOTAL,
        "Keys changed in etcd by this replica, by operation (put, delete)."
    );
    describe_counter!(
        LEASES_TOTAL,
        "Leases granted to this replica by etcd: more than one if one was lost."
    );
}

pub(crate) fn up(is_up: bool) {
    gauge!(UP).set(f64::from(u8::from(is_up)));
}

pub(crate) fn error(kind: &'static str) {
    counter!(ERRORS_TOTAL, "kind" => kind).increment(1);
}

pub(crate) fn lag(lag: Duration) {
    gauge!(MIRROR_LAG_SECONDS).set(lag.as_secs_f64());
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a floating-point number"
)]
pub(crate) fn keys(count: usize) {
    gauge!(KEYS).set(count as f64);
}

pub(crate) fn wrote(puts: usize, deletes: usize) {
    counter!(WRITES_TOTAL, "operation" => "put").increment(puts as u64);
    counter!(WRITES_TOTAL, "operation" => "delete").increment(deletes as u64);
}

pub(crate) fn granted() {
    counter!(LEASES_TOTAL).increment(1);
}
