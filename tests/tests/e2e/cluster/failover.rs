//! Failover: acknowledged data persists, and watchers continue, whichever replica dies.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use muster_client::{Client, ClientConfig, LogUpdate, LogsRequest, WatchFilter, WatchUpdate};
use muster_model::ids::{JobId, Revision, TaskIndex};
use muster_proto::v1;
use muster_tests::{
    Cluster, Run, Shape, eventually, muster_binary, only_attempt, printed, shell, skip,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::faults::trials::{in_namespaces, may_have_namespaces};

/// Number of kills in one test; `make bench` runs 50 of each kind.
const TRIALS: usize = 4;
/// Number of concurrent submitting clients.
const CLIENTS: usize = 8;

/// Time that the C library waits for an unresponsive name server with its longest setting.
const LOOKUP: Duration = Duration::from_secs(30);

const NO_WORKERS: Shape = Shape {
    replicas: 3,
    workers: 0,
    gpus: 0,
};

/// Submits without a pause until the cluster is killed; returns all acknowledged jobs.
///
/// Deadlines and retries are short: only acknowledged jobs count.
async fn submit_until_dead(addresses: Vec<String>) -> Vec<JobId> {
    let config = ClientConfig {
        deadline: Duration::from_secs(1),
        discover: false,
        ..ClientConfig::new(addresses)
    };
    let client = Client::connect(config).await.unwrap();
    let mut acknowledged = Vec::new();
    while let Ok(submitted) = client.submit_job(shell("exit 0")).await {
        acknowledged.push(submitted.job);
    }
    acknowledged
}

/// All jobs that the cluster knows.
async fn known(client: &Client) -> BTreeSet<JobId> {
    let listed = eventually("the jobs are listed", async || {
        let request = v1::ListJobsRequest::default();
        client.list_jobs(request, usize::MAX).await.ok()
    })
    .await;
    listed.1.iter().map(|job| JobId(job.id)).collect()
}

#[tokio::test]
async fn nothing_acknowledged_is_missing_after_the_leader_is_killed() {
    let mut cluster = Cluster::start(NO_WORKERS).await;
    let client = cluster.client().await;
    let mut acknowledged = BTreeSet::new();
    for trial in 0..TRIALS {
        let leader = cluster.leader(&client).await;
        let mut busy = JoinSet::new();
        for _ in 0..CLIENTS {
            // They know only the leader, so the last answers come from the replica that dies.
            let address = cluster.addresses[leader].clone();
            busy.spawn(submit_until_dead(vec![address]));
        }
        for _ in 0..CLIENTS + trial {
            acknowledged.insert(client.submit_job(shell("exit 0")).await.unwrap().job);
        }
        cluster.replicas[leader].kill();
        for jobs in busy.join_all().await {
            acknowledged.extend(jobs);
        }
        let known = known(&client).await;
        let missing: Vec<&JobId> = acknowledged.difference(&known).collect();
        assert!(missing.is_empty(), "trial {trial}: {missing:?} are missing");
        cluster.replicas[leader].start();
    }
    assert!(
        acknowledged.len() > CLIENTS * TRIALS,
        "the cluster was busy"
    );
}

#[tokio::test]
async fn nothing_acknowledged_is_missing_after_all_replicas_are_killed() {
    let mut cluster = Cluster::start(NO_WORKERS).await;
    let client = cluster.client().await;
    let mut acknowledged = BTreeSet::new();
    for trial in 0..TRIALS {
        cluster.leader(&client).await;
        let mut busy = JoinSet::new();
        for _ in 0..CLIENTS {
            busy.spawn(submit_until_dead(cluster.addresses.clone()));
        }
        for _ in 0..CLIENTS + trial {
            acknowledged.insert(client.submit_job(shell("exit 0")).await.unwrap().job);
        }
        for replica in &mut cluster.replicas {
            replica.kill();
        }
        for jobs in busy.join_all().await {
            acknowledged.extend(jobs);
        }
        for replica in &mut cluster.replicas {
            replica.start();
        }
        let known = known(&client).await;
        let missing: Vec<&JobId> = acknowledged.difference(&known).collect();
        assert!(missing.is_empty(), "trial {trial}: {missing:?} are missing");
    }
    assert!(
        acknowledged.len() > CLIENTS * TRIALS,
        "the cluster was busy"
    );
}

/// Kills every replica once, one after another; each one returns before the next is killed.
async fn kill_each(cluster: &mut Cluster, client: &Client) {
    for index in 0..cluster.replicas.len() {
        cluster.replicas[index].kill();
        cluster.leader(client).await;
        let job = client.submit_job(shell("exit 0")).await.unwrap().job;
        client.wait_job(job).await.unwrap();
        cluster.replicas[index].start();
        let address = cluster.addresses[index].clone();
        let restarted = Client::connect(ClientConfig {
            discover: false,
            ..ClientConfig::new([address])
        })
        .await
        .unwrap();
        eventually("the replica serves again", async || {
            let status = restarted.status(v1::Consistency::Linearizable).await;
            status.ok().map(drop)
        })
        .await;
    }
}

/// Events after `from`, at least up to `until`, and the number of times the watch was cut off.
async fn follow(
    client: &Client,
    from: Revision,
    until: impl Fn(&v1::Event) -> bool,
) -> (Vec<(Revision, Vec<v1::Event>)>, usize) {
    let mut watch = client.watch(Some(from), WatchFilter::default());
    let (mut seen, mut cuts) = (Vec::new(), 0);
    loop {
        match watch.next().await.unwrap() {
            WatchUpdate::Events {
                revision, events, ..
            } => {
                let is_last = events.iter().any(&until);
                seen.push((revision, events));
                if is_last {
                    return (seen, cuts);
                }
            }
            WatchUpdate::Bookmark { .. } => {}
            WatchUpdate::Resumed { .. } => cuts += 1,
        }
    }
}

#[tokio::test]
async fn a_watch_continues_over_the_failure_of_each_replica() {
    let mut cluster = Cluster::start(Shape::default()).await;
    let client = cluster.client().await;
    let status = client.status(v1::Consistency::Linearizable).await.unwrap();
    let from = Revision(status.revision);
    let last = |event: &v1::Event| match &event.kind {
        Some(v1::event::Kind::JobSubmitted(submitted)) => submitted.name == "last",
        _ => false,
    };
    let follower = client.clone();
    let following = tokio::spawn(async move { follow(&follower, from, last).await });
    kill_each(&mut cluster, &client).await;
    let mut sentinel = shell("exit 0");
    sentinel.name = "last".to_owned();
    client.submit_job(sentinel).await.unwrap();
    let (seen, cuts) = following.await.unwrap();
    assert!(cuts > 0, "the watch was never cut off");
    let (expected, _) = follow(&client, from, last).await;
    assert!(expected.len() > 3 * cluster.replicas.len(), "{expected:?}");
    assert_eq!(seen, expected, "a gap or a repetition");
}

#[tokio::test]
async fn the_command_line_follows_a_job_over_the_failure_of_each_replica() {
    let mut cluster = Cluster::start(Shape::default()).await;
    let client = cluster.client().await;
    // Two of twelve tasks end every second, so that there are always new events; the last one runs through
    // all kills.
    let folder = tempfile::tempdir().unwrap();
    let over = folder.path().join("over");
    let mut spec = shell(&format!(
        "sleep $((MUSTER_TASK_INDEX / 2)); until [ $MUSTER_TASK_INDEX -lt 11 -o -e {} ]; do sleep 0.1; done; \
         echo $MUSTER_TASK_INDEX",
        over.display()
    ));
    spec.groups[0].count = Some(12);
    let job = client.submit_job(spec).await.unwrap().job.to_string();
    let spawned = |args: &[&str]| {
        let command = cluster.command(args);
        tokio::spawn(async move { Run::of(command, "").await })
    };
    let events = spawned(&["job", "events", "-f", &job, "-o", "jsonl"]);
    let logs = spawned(&["job", "logs", "-f", &job, "--task", "11"]);
    let wait = spawned(&["job", "wait", &job, "--timeout", "60s"]);
    // Two rounds: in the first the commands may start at a replica that was already killed.
    for _ in 0..2 {
        kill_each(&mut cluster, &client).await;
    }
    std::fs::write(over, "").unwrap();

    let wait = wait.await.unwrap();
    assert_eq!(wait.code, 0, "{wait:?}");
    assert_eq!(logs.await.unwrap().ok(), "11\n");
    let followed = events.await.unwrap();
    assert!(followed.stderr.contains("continuing with"), "{followed:?}");
    let after = cluster
        .muster(&["job", "events", &job, "-o", "jsonl"])
        .await;
    assert_eq!(followed.ok(), after.ok(), "a gap or a repetition");
}

#[tokio::test]
async fn a_cluster_without_a_majority_reports_it_and_serves_stale_reads() {
    let mut cluster = Cluster::start(NO_WORKERS).await;
    let client = cluster.client().await;
    let job = client.submit_job(shell("exit 0")).await.unwrap().job;
    let leader = cluster.leader(&client).await;
    for index in (0..3).filter(|index| *index != leader) {
        cluster.replicas[index].kill();
    }
    let args = ["job", "submit", "--deadline", "2s", "--", "true"];
    let run = cluster.muster(&args).await;
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    assert!(
        run.stderr
            .contains("error: the command line: cannot submit the job: no answer within 2 s ("),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("has lost its majority"),
        "{}",
        run.stderr
    );
    let listed = cluster.muster(&["job", "list", "--stale", "-o", "name"]);
    assert_eq!(listed.await.ok(), format!("{job}\n"));
    for index in (0..3).filter(|index| *index != leader) {
        cluster.replicas[index].start();
    }
    eventually("it takes jobs again", async || {
        client.submit_job(shell("exit 0")).await.ok()
    })
    .await;

    // The outcome was unknown: repeating the request does not submit it twice.
    let hint = run.stderr.split("--request-id ").nth(1).unwrap();
    let key = hint.split_whitespace().next().unwrap();
    let args = [
        "job",
        "submit",
        "--request-id",
        key,
        "-o",
        "name",
        "--",
        "true",
    ];
    let again = cluster.muster(&args).await.ok();
    assert_eq!(cluster.muster(&args).await.ok(), again);
    let request = v1::ListJobsRequest::default();
    let (_, jobs) = client.list_jobs(request, usize::MAX).await.unwrap();
    let named: Vec<u64> = jobs
        .iter()
        .filter(|job| job.spec.as_ref().is_some_and(|spec| spec.name == "true"))
        .map(|job| job.id)
        .collect();
    assert_eq!(named, [again.trim().parse::<u64>().unwrap()]);
}

#[tokio::test]
async fn one_request_id_covers_all_jobs_of_a_command() {
    let cluster = Cluster::start(NO_WORKERS).await;
    let text = "name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n";
    drop(cluster.write("two.yaml", text));
    let args = [
        "job",
        "submit",
        "-f",
        "two.yaml",
        "--request-id",
        "k",
        "-o",
        "name",
    ];
    let first = cluster.muster(&args).await.ok();
    assert_eq!(first.lines().count(), 2, "{first}");
    assert_eq!(cluster.muster(&args).await.ok(), first);
}

#[tokio::test]
async fn a_command_ends_at_its_deadline_while_the_name_server_is_silent() {
    if !may_have_namespaces() {
        return skip("this system does not let us make network namespaces");
    }
    let folder = tempfile::tempdir().unwrap();
    let resolver = folder.path().join("resolv.conf");
    // An address for documentation (RFC 5737) behind a link whose other end does not answer.
    let waits = LOOKUP.as_secs();
    let lines = format!("nameserver 192.0.2.1\noptions attempts:1 timeout:{waits}\n");
    fs::write(&resolver, lines).unwrap();
    let script = format!(
        "mount --bind {} /etc/resolv.conf \
        && ip link add silent type veth peer name end && ip link set end up \
        && ip address add 192.0.2.2/24 dev silent && ip link set silent up \
        && ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev silent \
        && exec {} --address replica.example:7400 --deadline 1s cluster status",
        resolver.display(),
        muster_binary().display()
    );
    let began = Instant::now();
    let run = Run::of(in_namespaces(&script).into(), "").await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("no answer within 1 s"), "{run:?}");
    assert!(began.elapsed() < LOOKUP / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn output_is_complete_although_every_replica_is_restarted_while_it_is_read() {
    let mut cluster = Cluster::start(Shape::default()).await;
    let client = cluster.client().await;
    let folder = tempfile::tempdir().unwrap();
    let over = folder.path().join("over");
    let script = format!(
        "line=0; until [ -e {} ]; do line=$((line + 1)); echo $line; sleep 0.02; done",
        over.display()
    );
    let id = client.submit_job(shell(&script)).await.unwrap().job;
    only_attempt(&client, id).await;
    printed(&client, id, 10).await;
    let job = id.to_string();
    let mut readers = Vec::new();
    for address in &cluster.addresses {
        let args = ["job", "logs", "-f", &job, "--attempt", "1"];
        let mut command = cluster.command(&[&args[..], &["--address", address]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut reader = command.kill_on_drop(true).spawn().unwrap();
        let mut stdout = BufReader::new(reader.stdout.take().unwrap());
        let mut read = String::new();
        // It is streaming when the first replica is stopped.
        stdout.read_line(&mut read).await.unwrap();
        readers.push(tokio::spawn(async move {
            stdout.read_to_string(&mut read).await.unwrap();
            (read, reader.wait_with_output().await.unwrap())
        }));
    }
    for index in 0..cluster.replicas.len() {
        // Like `systemctl restart`: a replica ends the streams that it serves.
        cluster.replicas[index].end();
        cluster.replicas[index].start();
        eventually("the cluster takes jobs again", async || {
            client.submit_job(shell("exit 0")).await.ok()
        })
        .await;
    }
    fs::write(over, "").unwrap();
    client.wait_job(id).await.unwrap();
    let whole = cluster.muster(&["job", "logs", &job]).await.ok();
    for reader in readers {
        let (read, ended) = reader.await.unwrap();
        let notes = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &read), (Some(0), &whole), "{notes}");
    }
}

#[tokio::test]
async fn a_follower_that_stops_does_not_end_reads_through_it() {
    let mut cluster = Cluster::start(Shape::default()).await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    let follower = (leader + 1) % 3;
    let script = "while :; do echo line; sleep 0.02; done";
    let job = client.submit_job(shell(script)).await.unwrap().job;
    only_attempt(&client, job).await;
    let addresses = [follower, leader].map(|index| cluster.addresses[index].clone());
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new(addresses)
    };
    let mut logs = Client::connect(config).await.unwrap().logs(LogsRequest {
        job,
        task: TaskIndex(0),
        stream: v1::LogStream::Stdout,
        follow: true,
        ..LogsRequest::default()
    });
    for _ in 0..5 {
        assert!(logs.next().await.unwrap().is_some());
    }
    cluster.replicas[follower].end();
    loop {
        let update = logs.next().await.unwrap();
        // The task continues: an end of the stream would look like the end of its output.
        if let LogUpdate::Resumed { cause, .. } = update.expect("it goes on") {
            assert!(cause.contains("this replica is stopping"), "{cause}");
            return;
        }
    }
}
