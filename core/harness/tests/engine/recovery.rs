//! Tests that a state carried into a new group starts nothing twice.
use muster_engine::desired::of_host;
use muster_harness::{Cluster, gang, single};
use muster_model::command::{Command, ReplicaRecord, TaskOutcome};
use muster_model::ids::{JobId, ReplicaId, TaskIndex, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::time::TimeMs;
use muster_planner::{Budget, plan};

const UNIT: UnitIndex = UnitIndex(0);
/// Revisions of a group that commits 20,000 commands a second for a year.
const YEAR_REVISIONS: u64 = 20_000 * 86_400 * 365;

fn replica(id: u64) -> ReplicaRecord {
    ReplicaRecord {
        id: ReplicaId(id),
        address: format!("node{id}:7400"),
        votes: true,
    }
}

/// The state in a new group, before its first leader.
fn recovered(mut cluster: Cluster) -> Cluster {
    let former = [replica(1), replica(2), replica(3)];
    cluster.state.recover(&former, cluster.now);
    cluster
}

fn led(cluster: &mut Cluster) {
    let replica = ReplicaId(1);
    cluster
        .apply(&Command::LeadershipStarted { replica })
        .result
        .unwrap();
}

/// Plans now; returns the number of accepted steps.
fn plan_now(cluster: &mut Cluster) -> usize {
    let planned = plan(&cluster.state, cluster.now, Budget::default());
    for step in &planned.steps {
        cluster.apply(step).result.unwrap();
    }
    planned.steps.len()
}

fn phase(cluster: &Cluster, job: JobId) -> UnitPhase {
    cluster.state.job(job).unwrap().unit_phase(UNIT).unwrap()
}

#[test]
fn revisions_continue_above_all_that_the_old_group_may_have_issued() {
    let mut cluster = Cluster::with_hosts(1, 4);
    let job = cluster.submit(single("train", 1, 1));
    cluster.place_all(job);
    let origin = cluster.state.revision;
    let old = cluster.clone();
    let mut cluster = recovered(cluster);
    let floor = cluster.state.revision;
    assert!(floor.get() > origin.get() + YEAR_REVISIONS);
    led(&mut cluster);
    assert!(cluster.state.leadership.epoch.get() > floor.get());
    // A worker that followed the old group's later decisions obeys the new group, and is outdated.
    let host = cluster.state.hosts.values().next().unwrap();
    assert!(host.desired_revision >= floor);
    // Watchers list again, and ids of the old replicas are never reused.
    let resumed = cluster.state.events.after(old.state.revision);
    assert!(resumed.is_err());
    assert_eq!(cluster.state.replicas.highest, ReplicaId(3));
}

/// The state carried into a new group at a time; its own time may be ahead of that.
fn recovered_at(cluster: &Cluster, now: TimeMs) -> Cluster {
    let mut cluster = cluster.clone();
    cluster.state.recover(&[replica(1)], now);
    cluster.now = now;
    led(&mut cluster);
    cluster
}

#[test]
fn the_group_recovered_last_has_higher_revisions_than_all_earlier_ones() {
    let mut old = Cluster::with_hosts(1, 4);
    let clock = old.now;
    // Stamped by a leader whose clock was ahead.
    old.wait(3_600_000);
    old.submit(single("train", 1, 1));
    let mut first = recovered_at(&old, clock.after(1_000));
    for _ in 0..100 {
        first.submit(single("later", 1, 1));
    }
    // The state continued in a second group, which was lost soon.
    let second = recovered_at(&first, clock.after(2_000));
    // Only the first backup is left.
    let third = recovered_at(&old, clock.after(3_000));
    assert!(first.state.revision.get() < second.state.leadership.epoch.get());
    assert!(second.state.revision.get() < third.state.leadership.epoch.get());
    // A stopped or set-back clock cannot lead below what is carried over.
    let stopped = recovered_at(&third, TimeMs(0));
    assert!(third.state.revision.get() < stopped.state.leadership.epoch.get());
}

#[test]
fn running_work_continues_and_waiting_work_is_held_back_for_its_lease() {
    let mut cluster = Cluster::with_hosts(2, 4);
    let running = cluster.submit(single("runs", 1, 4));
    cluster.place_all(running);
    cluster.start_all(running);
    let epoch = cluster.attempt(running, UNIT).unwrap().epoch;
    let mut short = single("short", 1, 1);
    short.partition_grace_ms = 20_000;
    let short = cluster.submit(short);
    let long = cluster.submit(gang("long", 1, 1));
    let long_ms = cluster.state.job(long).unwrap().spec.partition_grace_ms;
    let mut cluster = recovered(cluster);
    led(&mut cluster);

    assert_eq!(cluster.attempt(running, UNIT).unwrap().epoch, epoch);
    assert_eq!(phase(&cluster, running), UnitPhase::Running);
    let new = cluster.submit(single("new", 1, 1));
    // A job that the old group cannot know starts at once, and no other.
    assert_eq!(plan_now(&mut cluster), 1);
    assert_eq!(phase(&cluster, new), UnitPhase::Placed);
    cluster.wait(19_999);
    assert_eq!(plan_now(&mut cluster), 0);
    cluster.wait(1);
    assert_eq!(plan_now(&mut cluster), 1);
    assert_eq!(phase(&cluster, short), UnitPhase::Placed);
    cluster.wait(long_ms - 20_001);
    assert_eq!(plan_now(&mut cluster), 0);
    let again_at = plan(&cluster.state, cluster.now, Budget::default()).again_at;
    assert_eq!(
        again_at,
        Some(cluster.now.after(1)),
        "the planner looks again when the lease is over"
    );
    cluster.wait(1);
    assert_eq!(plan_now(&mut cluster), 1);
    assert_eq!(phase(&cluster, long), UnitPhase::Placed);
}

#[test]
fn an_attempt_that_ends_in_the_new_group_is_not_restarted_within_its_lease() {
    let mut cluster = Cluster::with_hosts(2, 4);
    let mut spec = single("train", 1, 4);
    spec.partition_grace_ms = 30_000;
    spec.lifecycle.local_retries_max = 3;
    let job = cluster.submit(spec);
    cluster.place_all(job);
    cluster.start_all(job);
    let mut cluster = recovered(cluster);
    led(&mut cluster);
    cluster.wait(1_000);
    // Its worker does not have it: the old group ended it, and may have started it elsewhere.
    let detail = "its worker does not hold it".to_owned();
    cluster.report(job, TaskIndex(0), TaskOutcome::Gone { detail });
    assert_eq!(phase(&cluster, job), UnitPhase::Waiting);
    cluster.wait(28_999);
    assert_eq!(plan_now(&mut cluster), 0);
    cluster.wait(1);
    assert_eq!(plan_now(&mut cluster), 1);
}

#[test]
fn an_attempt_placed_just_before_recovery_is_stopped_before_it_starts() {
    let mut cluster = Cluster::with_hosts(2, 4);
    let job = cluster.submit(single("train", 1, 4));
    cluster.place_all(job);
    let host = cluster.hosts_of(job, UNIT)[0];
    let mut cluster = recovered(cluster);
    led(&mut cluster);
    assert_eq!(phase(&cluster, job), UnitPhase::Stopping);
    let desired = of_host(&cluster.state, host);
    let stop = desired.tasks[0].stop.as_ref().unwrap();
    assert_eq!((stop.reason.as_str(), stop.grace_ms), ("infra", 0));
    // Uncharged, like any infrastructure failure.
    let detail = "its worker does not hold it".to_owned();
    cluster.report(job, TaskIndex(0), TaskOutcome::Gone { detail });
    assert_eq!(phase(&cluster, job), UnitPhase::Waiting);
    assert_eq!(
        cluster.state.job(job).unwrap().unit(UNIT).unwrap().failures,
        0
    );
}
