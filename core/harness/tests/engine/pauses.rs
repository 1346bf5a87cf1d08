//! Pauses of an attempt are merged beyond their limit, with the same total.

use muster_engine::state::Pause;
use muster_harness::{Cluster, single};
use muster_model::command::Command;
use muster_model::ids::{JobId, UnitIndex};
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

#[test]
fn a_time_limit_does_not_count_while_the_job_is_suspended_in_place() {
    let mut cluster = Cluster::with_hosts(1, 1);
    let mut spec = single("train", 1, 1);
    spec.scheduling.run_time_ms_max = Some(60_000);
    let job = cluster.submit(spec);
    assert_eq!(cluster.place_all(job), 1);
    cluster.start_all(job);
    let ends = |cluster: &Cluster| {
        let deadlines = cluster.state.index.deadlines.iter();
        deadlines.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    let placed_at = cluster.attempt(job, UnitIndex(0)).map(|it| it.placed_at);
    let placed_at = placed_at.expect("it was placed");
    assert_eq!(ends(&cluster), [placed_at.after(60_000)]);

    cluster.wait(10_000);
    suspend(&mut cluster, job);
    assert_eq!(ends(&cluster), []);
    cluster.wait(120_000);
    resume(&mut cluster, job);
    assert_eq!(ends(&cluster), [placed_at.after(180_000)]);
}

fn suspend(cluster: &mut Cluster, job: JobId) {
    let request = cluster.next_request();
    cluster.apply(&Command::SuspendJob {
        request,
        job,
        author: "grace".to_owned(),
        reason: String::new(),
    });
}

fn resume(cluster: &mut Cluster, job: JobId) {
    let request = cluster.next_request();
    cluster.apply(&Command::ResumeJob {
        request,
        job,
        author: "grace".to_owned(),
        reason: String::new(),
    });
}
