//! Size limit of the desired state: it is one message, so tasks with long commands and environments leave
//! their host less room.

use muster_engine::desired;
use muster_harness::{Cluster, single};
use muster_model::ids::{HostId, JobId};
use muster_model::limits::{TASK_TEXT_BYTES, TASKS_PER_HOST_MAX, WORKER_MESSAGE_BYTES_MAX};
use muster_model::spec::JobSpec;
use muster_planner::{Blocker, Budget, RoomShortage, plan};

/// Bytes of the environment of a task with long texts.
const LONG: usize = 900 << 10;

/// Small tasks, limited only by their number and the length of their texts.
fn small(name: &str, tasks: u32, text_bytes: usize) -> JobSpec {
    let mut spec = single(name, tasks, 0);
    spec.groups[0].resources.cpus_milli = 1;
    spec.groups[0].resources.memory_mib = 1;
    let environment = &mut spec.groups[0].environment;
    environment.insert("TEXT".to_owned(), "x".repeat(text_bytes));
    spec
}

/// Places what fits; returns the number of running tasks of a job.
fn placed(cluster: &mut Cluster, job: JobId) -> usize {
    loop {
        let steps = plan(&cluster.state, cluster.now, Budget::default()).steps;
        if steps.is_empty() {
            break;
        }
        for step in &steps {
            let applied = cluster.apply(step);
            assert!(applied.result.is_ok(), "{:?}", applied.result);
        }
    }
    cluster.state.job(job).map_or(0, |job| {
        let units = job.units.values();
        units.filter(|unit| unit.attempt.is_some()).count()
    })
}

fn desired_bytes(cluster: &Cluster, host: HostId) -> usize {
    let desired_state = desired::of_host(&cluster.state, host);
    let texts = desired_state
        .tasks
        .iter()
        .flat_map(|task| task.environment.values());
    texts.map(String::len).sum()
}

#[test]
fn a_host_takes_only_as_many_tasks_with_long_texts_as_fit_into_one_message() {
    let mut cluster = Cluster::with_hosts(2, 0);
    let each = LONG / TASK_TEXT_BYTES + 1;
    let on_host = TASKS_PER_HOST_MAX / each;
    let long = cluster.submit(small("long", 200, LONG));
    assert_eq!(placed(&mut cluster, long), 2 * on_host);
    for host in [HostId(1), HostId(2)] {
        let bytes = desired_bytes(&cluster, host);
        assert_eq!(bytes, on_host * LONG, "{host}");
        assert!(bytes < WORKER_MESSAGE_BYTES_MAX);
    }

    // Tasks with short texts find room although tasks with long ones wait.
    let short = cluster.submit(small("short", 2, 10));
    assert_eq!(placed(&mut cluster, short), 2);

    // Ended tasks make room again, for as many.
    cluster.finish_all(long);
    assert_eq!(placed(&mut cluster, long), 200 - 2 * on_host);
}

#[test]
fn short_tasks_are_limited_by_their_number_alone() {
    let mut cluster = Cluster::with_hosts(1, 0);
    cluster.observer.enabled = false;
    let count = u32::try_from(TASKS_PER_HOST_MAX).unwrap_or(0) + 1;
    let job = cluster.submit(small("short", count, 1_000));
    assert_eq!(placed(&mut cluster, job), TASKS_PER_HOST_MAX);
}

#[test]
fn a_shortage_of_neither_cpus_nor_memory_names_the_limit_on_tasks() {
    let short = |free_cpus_milli_max| {
        Blocker::Room(Box::new(RoomShortage {
            lacks_cpus: false,
            lacks_memory: false,
            need_cpus_milli: 1_000,
            free_cpus_milli_max,
            need_memory_mib: 1,
            free_memory_mib_max: 1,
            fits_tasks: 0,
            need_tasks: 1,
        }))
    };
    assert!(short(1_000).to_string().contains("TASKS_PER_HOST_MAX"));
    assert!(!short(999).to_string().contains("TASKS_PER_HOST_MAX"));
}
