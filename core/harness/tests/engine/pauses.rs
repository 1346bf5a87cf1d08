//! Pauses of an attempt are merged beyond their limit, with the same total.

use muster_engine::state::Pause;
use muster_harness::{Cluster, single};
use muster_model::ids::UnitIndex;
use muster_model::limits;
use muster_model::time::TimeMs;

fn pause(from: u64, until: u64) -> Pause {
    let (from, until) = (TimeMs(from), TimeMs(until));
    Pause { from, until }
}

#[test]
fn many_pauses_are_reported_as_few_of_the_same_total_length() {
    let mut cluster = Cluster::with_hosts(1, 1);
    let job = cluster.submit(single("train", 1, 1));
    assert_eq!(cluster.place_all(job), 1);
    let placed = cluster.attempt(job, UnitIndex(0));
    let mut attempt = placed.expect("it was placed").clone();
    let count = limits::PAUSES_PER_ATTEMPT_MAX as u64 + 5;
    for number in 0..count {
        attempt.remember_pause(pause(number * 100, number * 100 + 7));
    }
    assert_eq!(attempt.pauses.len(), limits::PAUSES_PER_ATTEMPT_MAX);
    let sum: u64 = attempt.pauses.iter().map(Pause::span_ms).sum();
    assert_eq!(sum, count * 7);
    assert_eq!(
        attempt.pauses.last(),
        Some(&pause((count - 1) * 100, (count - 1) * 100 + 7))
    );
    assert!(
        attempt
            .pauses
            .windows(2)
            .all(|two| two[0].until <= two[1].from)
    );
}
