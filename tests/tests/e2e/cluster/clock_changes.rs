//! Wall clock jumps under running replicas: the log's time advances, no host is declared dead, and nothing
//! waits for the clock to return.
//!
//! The clock is moved by a preloaded library that adds the offset in a file to `CLOCK_REALTIME`. Clock
//! steps of single replicas under faults are covered by the simulation (`muster chaos sim`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use muster_client::Client;
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Shape, eventually, is_alive, only_attempt, shell, skip, with_gpus};
use tokio::time::{Instant, sleep};

const HOUR_S: i64 = 3_600;

/// Builds the library; `None` without a C compiler.
fn build(folder: &Path) -> Option<PathBuf> {
    let library = folder.join("wall_clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wall_clock.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    let status = compiler.arg(&library).arg(source).status().ok()?;
    assert!(status.success(), "the library does not compile");
    Some(library)
}

fn clock_file(cluster: &Cluster, replica: usize) -> PathBuf {
    cluster.folder.join(format!("clock-{replica}"))
}

/// Sets a replica's clock offset in seconds.
fn set_clock(cluster: &Cluster, replica: usize, offset_s: i64) {
    let file = clock_file(cluster, replica);
    let new = file.with_extension("new");
    fs::write(&new, offset_s.to_string()).unwrap();
    fs::rename(new, file).unwrap();
}

async fn start() -> Option<(Cluster, Client)> {
    let mut cluster = Cluster::start(Shape::default()).await;
    let library = build(&cluster.folder)?;
    for index in 0..cluster.replicas.len() {
        set_clock(&cluster, index, 0);
        let file = clock_file(&cluster, index);
        cluster.replicas[index].kill();
        cluster.replicas[index].start_with(&[
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("MUSTER_TEST_CLOCK", file.to_str().unwrap()),
        ]);
    }
    let client = cluster.client().await;
    eventually("all hosts are up", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.hosts?.up == 2).then_some(())
    })
    .await;
    Some((cluster, client))
}

/// The log's time after one more entry.
async fn log_time_ms(client: &Client) -> u64 {
    client.submit_job(shell("exit 0")).await.unwrap();
    let status = client.status(v1::Consistency::Linearizable).await;
    status.unwrap().time_ms
}

async fn all_hosts_stay_up(client: &Client) {
    // Longer than a host may be unreachable before it is suspect.
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        let status = client.status(v1::Consistency::Linearizable).await.unwrap();
        let hosts = status.hosts.unwrap();
        assert_eq!((hosts.up, hosts.suspect, hosts.lost), (2, 0, 0));
        sleep(Duration::from_millis(50)).await;
    }
}

async fn is_undisturbed(cluster: &Cluster, client: &Client, job: JobId, pid: i32) {
    let attempt = only_attempt(client, job).await;
    assert_eq!(attempt.number, 1);
    assert!(is_alive(pid));
    assert_eq!(cluster.processes_of(job), [pid]);
}

#[tokio::test]
async fn a_jump_of_the_leaders_clock_disturbs_nothing() {
    let Some((mut cluster, client)) = start().await else {
        skip("there is no C compiler (cc)");
        return;
    };
    let training = with_gpus(shell("exec sleep 1000"), 1);
    let job = client.submit_job(training).await.unwrap().job;
    only_attempt(&client, job).await;
    let pid = cluster.processes_of(job)[0];
    let leader = cluster.leader(&client).await;
    let before_ms = log_time_ms(&client).await;

    set_clock(&cluster, leader, HOUR_S);
    let ahead_ms = log_time_ms(&client).await;
    assert!(ahead_ms - before_ms > 3_500_000, "the clock did not jump");
    all_hosts_stay_up(&client).await;
    is_undisturbed(&cluster, &client, job, pid).await;

    set_clock(&cluster, leader, -HOUR_S);
    let back_ms = log_time_ms(&client).await;
    assert!(back_ms >= ahead_ms, "the log's time went back");
    all_hosts_stay_up(&client).await;
    assert!(
        log_time_ms(&client).await >= back_ms + 2_000,
        "the log's time does not advance"
    );
    retries_soon(&client).await;

    // The next leader's clock is an hour behind the log's time, and two hours ahead of the last leader's.
    cluster.replicas[leader].kill();
    cluster.leader(&client).await;
    let next_ms = log_time_ms(&client).await;
    assert!(
        next_ms >= back_ms,
        "the log's time went back with the leader"
    );
    retries_soon(&client).await;
    is_undisturbed(&cluster, &client, job, pid).await;
}

/// A back-off of half a second takes about that long, not until the wall clock has caught up.
async fn retries_soon(client: &Client) {
    let mut spec = shell("[ \"$MUSTER_ATTEMPT\" = 2 ]");
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 1,
        backoff_ms: 500,
    });
    let job = client.submit_job(spec).await.unwrap().job;
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    let waited_ms = ended.job.finished_at_ms.unwrap() - ended.job.submitted_at_ms;
    assert!((500..10_000).contains(&waited_ms), "{waited_ms} ms");
}
