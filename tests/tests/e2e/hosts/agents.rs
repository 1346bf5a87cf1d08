//! Failures of agents and hosts: tasks outlive an agent, and no task outlives its lease.

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{
    Cluster, Shape, eventually, is_alive, only_attempt, output, printed, shell, with_gpus,
};

const ONE_WORKER: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 2,
};

/// The process of a job's only task.
async fn process_of(cluster: &Cluster, job: JobId) -> i32 {
    eventually("the task's process", async || {
        match *cluster.processes_of(job) {
            [pid] => Some(pid),
            _ => None,
        }
    })
    .await
}

/// Index of the worker that runs the attempt's only task.
fn worker_of(cluster: &Cluster, attempt: &v1::Attempt) -> usize {
    let host = &attempt.tasks[0].host;
    let mut names = cluster.workers.iter();
    names.position(|worker| worker.name == *host).unwrap()
}

async fn submit(client: &Client, script: &str, partition_grace_ms: u64) -> JobId {
    let mut spec = with_gpus(shell(script), 1);
    spec.partition_grace_ms = Some(partition_grace_ms);
    client.submit_job(spec).await.unwrap().job
}

#[tokio::test]
async fn tasks_continue_without_their_agent_and_are_adopted() {
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let counting = "i=0; while [ ! -e stop ]; do echo $((i=i+1)); sleep 0.05; done; exit 0";
    let job = submit(&client, counting, 45_000).await;
    let attempt = only_attempt(&client, job).await;
    printed(&client, job, 3).await;
    let before = cluster.processes_of(job);
    let scratch = scratch_of(&before);
    for _ in 0..2 {
        cluster.workers[0].kill();
        assert!(before.iter().any(|pid| is_alive(*pid)));
        cluster.workers[0].start();
        // Output from the time without an agent is kept.
        let lines = output_lines(&client, job).await;
        printed(&client, job, lines + 5).await;
        let now = only_attempt(&client, job).await;
        assert_eq!((now.epoch, now.number), (attempt.epoch, 1));
    }
    std::fs::write(scratch.join("stop"), "").unwrap();
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    let text = output(&client, job).await.unwrap();
    let numbers: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<usize> = (1..=numbers.len()).collect();
    assert_eq!(
        numbers, expected,
        "the task ran once, from 1 on, without a gap"
    );
}

/// The working directory of a task's process.
fn scratch_of(pids: &[i32]) -> std::path::PathBuf {
    let mut folders = pids
        .iter()
        .filter_map(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).ok());
    folders.next().unwrap()
}

async fn output_lines(client: &Client, job: JobId) -> usize {
    let text = eventually("output through the new agent", async || {
        output(client, job).await.ok()
    })
    .await;
    text.lines().count()
}

#[tokio::test]
async fn the_next_agent_reports_a_task_that_ended_while_none_ran() {
    let mut cluster = Cluster::start(ONE_WORKER).await;
    let client = cluster.client().await;
    let job = submit(&client, "sleep 1; echo done; exit 7", 45_000).await;
    only_attempt(&client, job).await;
    cluster.workers[0].kill();
    eventually("the task has ended", async || {
        cluster.processes_of(job).is_empty().then_some(())
    })
    .await;
    cluster.workers[0].start();
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Failed);
    assert_eq!(ended.units[0].past[0].exit.as_ref().unwrap().code, Some(7));
    assert_eq!(printed(&client, job, 1).await, ["done"]);
}

#[tokio::test]
async fn a_supervisor_without_an_agent_ends_its_task_with_the_lease() {
    let mut cluster = Cluster::start(Shape {
        workers: 2,
        ..ONE_WORKER
    })
    .await;
    let client = cluster.client().await;
    let job = submit(&client, "exec sleep 1000", 5_000).await;
    let attempt = only_attempt(&client, job).await;
    let pid = process_of(&cluster, job).await;
    let worker = worker_of(&cluster, &attempt);
    cluster.workers[worker].kill();
    // Never two at a time: the lease ends before the task is placed again.
    let next = eventually("the task runs elsewhere", async || {
        let pids = cluster.processes_of(job);
        assert!(pids.len() <= 1, "two processes of one task: {pids:?}");
        pids.first().copied().filter(|found| *found != pid)
    })
    .await;
    assert!(!is_alive(pid) && is_alive(next));
    let placed = only_attempt(&client, job).await;
    assert_eq!(placed.number, 2);
    assert!(placed.epoch > attempt.epoch);
    assert_ne!(placed.tasks[0].host, attempt.tasks[0].host);

    // The old agent returns after the lease has expired: it has nothing to adopt, and reports that.
    cluster.workers[worker].start();
    eventually("the host is up again", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up == 2).then_some(())
    })
    .await;
    let now = only_attempt(&client, job).await;
    assert_eq!(now.epoch, placed.epoch);
    assert_eq!(cluster.processes_of(job), [next]);
}

#[tokio::test]
async fn a_gang_on_a_dead_host_is_restarted_completely() {
    let mut cluster = Cluster::start(Shape {
        workers: 3,
        ..ONE_WORKER
    })
    .await;
    let client = cluster.client().await;
    let mut spec = with_gpus(shell("echo rank $RANK of $WORLD_SIZE; exec sleep 1000"), 2);
    spec.gang = true;
    spec.partition_grace_ms = Some(5_000);
    spec.groups[0].count = Some(2);
    let job = client.submit_job(spec).await.unwrap().job;
    let attempt = only_attempt(&client, job).await;
    let before = cluster.processes_of(job);
    assert_eq!(before.len(), 2);
    let worker = worker_of(&cluster, &attempt);
    cluster.workers[worker].kill();
    for pid in cluster.processes_on(worker) {
        muster_tests::kill(pid);
    }
    eventually("no process of the host is alive", async || {
        cluster.processes_on(worker).is_empty().then_some(())
    })
    .await;
    let again = eventually("the gang runs again", async || {
        let detail = client.get_job(job, 1, v1::Consistency::Linearizable).await;
        let unit = detail.ok()?.units.into_iter().next()?;
        let is_again = unit.phase() == v1::UnitPhase::Running && unit.attempts == 2;
        unit.attempt.filter(|_| is_again)
    })
    .await;
    assert!(
        again
            .tasks
            .iter()
            .all(|task| task.host != cluster.workers[worker].name)
    );
    assert_eq!(again.tasks.len(), 2);
    let now = cluster.processes_of(job);
    assert_eq!(now.len(), 2, "{now:?}");
    assert!(
        before.iter().all(|pid| !now.contains(pid)),
        "a member of the old gang is alive"
    );
}
