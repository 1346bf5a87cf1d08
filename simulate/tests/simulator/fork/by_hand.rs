//! Small forks with answers calculated by hand.

use muster_harness::{Cluster, gang, single};
use muster_model::command::{BlockTarget, CheckpointCommand, CheckpointCommit, Command};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::quota::{QueueConfig, QueueTree};
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;
use muster_simulate::fork::{Change, Effect, EstimateBasis, ForkError};

use crate::fork::{ask, asked, limited, run, settle, submit};

fn with_priority(priority: i32, spec: JobSpec) -> JobSpec {
    JobSpec { priority, ..spec }
}

/// A cluster whose only queue preempts by priority.
fn preempting(hosts: u32, gpus: u32) -> Cluster {
    let mut cluster = Cluster::with_hosts(hosts, gpus);
    let config = QueueConfig {
        preempt_by_priority: true,
        ..QueueConfig::default()
    };
    cluster.configure(QueueTree {
        queues: [("default".to_owned(), config)].into(),
        ..QueueTree::default()
    });
    cluster
}

fn checkpointed(cluster: &mut Cluster, job: JobId) {
    let epoch = cluster.attempt(job, UnitIndex(0)).unwrap().epoch;
    let commit = Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
        leader: cluster.leader(),
        job,
        unit: UnitIndex(0),
        checkpoint: CheckpointCommit {
            epoch,
            step: 7,
            path: "/checkpoints/step_7".to_owned(),
            size_bytes: 1,
            digest: String::new(),
            save_ms: None,
        },
    });
    cluster.apply(&commit).result.unwrap();
}

#[test]
fn a_job_starts_when_the_one_before_it_ends() {
    let mut cluster = Cluster::with_hosts(1, 8);
    run(&mut cluster, limited(gang("first", 1, 8), 600));
    cluster.wait(100_000);
    let answer = ask(&cluster, &[submit(gang("second", 1, 8))]);
    let [second] = answer.submitted.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(second.effect, Effect::Submitted);
    assert_eq!(second.then.start_ms, Some(500_000));
    // Without any information it runs for the assumed hour.
    assert_eq!(second.estimate, EstimateBasis::Assumed);
    assert_eq!(second.then.end_ms, Some(500_000 + 3_600_000));
    assert!(second.then.waits_for.is_some());
    assert_eq!((answer.affected.len(), answer.unaffected), (0, 1));
    assert_eq!(
        (answer.assumptions.time_limit, answer.assumptions.assumed),
        (1, 1)
    );
    assert!(answer.then.utilisation > answer.now.utilisation);
}

#[test]
fn a_job_that_waits_is_passed_by_a_higher_priority() {
    let mut cluster = Cluster::with_hosts(1, 8);
    run(&mut cluster, limited(gang("first", 1, 8), 600));
    let waiting = run(&mut cluster, limited(gang("second", 1, 8), 600));
    let urgent = with_priority(5, limited(gang("urgent", 1, 8), 60));
    let answer = ask(&cluster, &[submit(urgent)]);
    assert_eq!(answer.submitted[0].then.start_ms, Some(600_000));
    let [later] = answer.affected.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!((later.id, later.effect), (waiting.get(), Effect::Later));
    let start = |fate: Option<u64>| fate.unwrap();
    assert_eq!(start(later.now.as_ref().unwrap().start_ms), 600_000);
    assert_eq!(start(later.then.start_ms), 660_000);
    assert_eq!(answer.stops, []);
}

#[test]
fn a_victim_is_named_with_what_it_loses_and_when_it_is_back() {
    let mut cluster = preempting(1, 8);
    let victim = run(&mut cluster, limited(gang("low", 1, 8), 3_600));
    cluster.wait(100_000);
    let urgent = with_priority(5, limited(gang("urgent", 1, 8), 60));
    let answer = ask(&cluster, &[submit(urgent)]);
    assert_eq!(answer.submitted[0].then.start_ms, Some(0));
    let [stop] = answer.stops.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!((stop.job, stop.at_ms), (victim.get(), 0));
    assert_eq!(stop.by, Some(answer.submitted[0].id));
    assert_eq!(stop.lost_gpu_seconds, 800);
    assert_eq!(stop.back_ms, Some(60_000));
    assert_eq!(stop.back_on.len(), 1);
    assert_eq!(answer.affected[0].effect, Effect::Stopped);
    assert_eq!((answer.now.stops, answer.then.stops), (0, 1));
}

#[test]
fn a_victim_with_checkpoints_keeps_its_work() {
    let mut cluster = preempting(1, 8);
    let victim = run(&mut cluster, gang("low", 1, 8));
    cluster.wait(60_000);
    checkpointed(&mut cluster, victim);
    cluster.wait(40_000);
    let urgent = with_priority(5, limited(gang("urgent", 1, 8), 60));
    let answer = ask(&cluster, &[submit(urgent)]);
    assert_eq!(answer.stops[0].lost_gpu_seconds, 0);
    // 100 s of the assumed hour are done, and one minute passes in between.
    assert_eq!(answer.affected[0].then.end_ms, Some(3_500_000 + 60_000));
}

#[test]
fn a_drained_hosts_jobs_find_room_elsewhere_or_wait() {
    let mut cluster = Cluster::with_hosts(2, 8);
    let first = run(&mut cluster, gang("first", 1, 8));
    let host = cluster.hosts_of(first, UnitIndex(0))[0];
    let name = cluster.state.host(host).unwrap().name.to_string();
    let answer = ask(&cluster, &[Change::Drain(name.clone())]);
    assert_eq!(answer.affected[0].effect, Effect::Stopped);
    assert_eq!(answer.stops[0].back_ms, Some(0));
    assert_ne!(answer.stops[0].back_on, [name.as_str()]);

    run(&mut cluster, gang("second", 1, 8));
    let answer = ask(&cluster, &[Change::Drain(name.clone())]);
    assert_eq!(answer.stops[0].back_ms, Some(3_600_000));

    // A block without a drain stops no attempt.
    let block = Change::Block(BlockTarget::Host(name));
    let answer = ask(&cluster, &[block]);
    assert_eq!((answer.stops.len(), answer.affected.len()), (0, 0));
}

#[test]
fn run_times_are_estimated_from_earlier_runs() {
    let mut cluster = Cluster::with_hosts(1, 8);
    let earlier = run(&mut cluster, gang("nightly", 1, 8));
    cluster.wait(120_000);
    cluster.finish_all(earlier);
    run(&mut cluster, gang("nightly", 1, 8));
    cluster.wait(20_000);
    let answer = ask(&cluster, &[submit(gang("other", 1, 8))]);
    assert_eq!(answer.submitted[0].then.start_ms, Some(100_000));
    assert_eq!(answer.assumptions.usual, 1);
}

#[test]
fn changes_that_the_cluster_would_refuse_are_refused() {
    let mut cluster = Cluster::with_hosts(1, 8);
    settle(&mut cluster);
    let refused = asked(&cluster, &[Change::Drain("nowhere".to_owned())]);
    let Err(ForkError::Refused { change, rejection }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(change, "the drain of host `nowhere`");
    assert_eq!(*rejection, Rejection::UnknownHost("nowhere".to_owned()));
    let unknown = JobSpec {
        queue: "nowhere".to_owned(),
        ..single("a", 1, 1)
    };
    assert!(asked(&cluster, &[submit(unknown)]).is_err());
}

#[test]
fn the_page_shows_both_futures_and_no_name_breaks_its_markup() {
    let mut cluster = Cluster::with_hosts(1, 8);
    run(&mut cluster, limited(gang("first", 1, 8), 600));
    let answer = ask(&cluster, &[submit(gang("<b>second", 1, 8))]);
    let folder = tempfile::tempdir().unwrap();
    let paths = answer.write(folder.path()).unwrap();
    assert!(paths.contains(&folder.path().join("what-if.json")));
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("&lt;b&gt;second") && !page.contains("<b>second"));
    assert_eq!(page.matches("<svg").count(), 2, "GPUs in use, waiting jobs");
    assert!(page.contains("<td>after 10.0m</td>") && !page.contains("NaN"));
}
