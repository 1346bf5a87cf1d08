//! Gangs start together, know each other, and tolerate a member that cannot be prepared.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use muster_client::{Client, WatchFilter, WatchUpdate};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::event::Kind;
use muster_tests::{
    Cluster, Shape, eventually, is_alive, kill, muster_binary, only_attempt, shell, submit,
    with_gpus,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;

const THREE_WORKERS: Shape = Shape {
    replicas: 1,
    workers: 3,
    gpus: 2,
};

const EIGHT_WORKERS: Shape = Shape {
    replicas: 1,
    workers: 8,
    gpus: 8,
};
/// Maximum time from the allocation of a gang of 64 until all its tasks run, on any machine. The precise
/// figure is the row `start` of the benchmarks.
const ASSEMBLY_MS_MAX: u64 = 5_000;

/// A gang of three, one member per host.
fn gang(script: &str) -> v1::JobSpec {
    let mut spec = shell(script);
    spec.gang = true;
    spec.groups[0].count = Some(3);
    spec.groups[0].tasks_per_host_max = Some(1);
    spec.lifecycle.get_or_insert_default().barrier = Some(true);
    spec
}

/// All events of a job until its end.
async fn history(client: &Client, job: JobId) -> Vec<Kind> {
    client.wait_job(job).await.unwrap();
    let filter = WatchFilter {
        jobs: vec![job],
        kinds: Vec::new(),
    };
    // A job's id is the revision of its submission.
    let mut watch = client.watch(Some(Revision(job.get() - 1)), filter);
    let mut kinds = Vec::new();
    while !matches!(kinds.last(), Some(Kind::JobFinished(_))) {
        if let WatchUpdate::Events { events, .. } = watch.next().await.unwrap() {
            kinds.extend(events.into_iter().filter_map(|event| event.kind));
        }
    }
    kinds
}

/// Values of a variable printed by a member: `RANK=1` and the like.
fn values_of<'a>(lines: &'a [String], name: &str) -> Vec<&'a str> {
    let pairs = lines.iter().filter_map(|line| line.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .collect()
}

#[tokio::test]
async fn all_members_are_prepared_before_any_starts_and_know_the_rendezvous_address() {
    let cluster = Cluster::start(THREE_WORKERS).await;
    let client = cluster.client().await;
    let folder = cluster.write("out", "");
    let folder = folder.parent().unwrap();
    let script = format!(
        "env | grep -E '^(RANK|WORLD_SIZE|NODE_RANK|MASTER_PORT)=' > {0}/member-$RANK; \
         [ -z \"$MUSTER_HOSTFILE\" ] || cp $MUSTER_HOSTFILE {0}/hosts",
        folder.display()
    );
    let job = submit(&client, gang(&script)).await;
    let kinds = history(&client, job).await;
    let position = |wanted: fn(&Kind) -> bool| kinds.iter().position(wanted).unwrap();
    let prepared = kinds
        .iter()
        .rposition(|kind| matches!(kind, Kind::TaskPrepared(_)));
    let released = position(|kind| matches!(kind, Kind::GangReleased(_)));
    let started = position(|kind| matches!(kind, Kind::TaskStarted(_)));
    assert!(
        prepared.unwrap() < released && released < started,
        "{kinds:?}"
    );
    let count = kinds
        .iter()
        .filter(|kind| matches!(kind, Kind::TaskPrepared(_)));
    assert_eq!(count.count(), 3);

    let lines: Vec<String> = (0..3)
        .flat_map(|rank| {
            let text = std::fs::read_to_string(folder.join(format!("member-{rank}"))).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(values_of(&lines, "RANK"), ["0", "1", "2"]);
    assert_eq!(values_of(&lines, "NODE_RANK"), ["0", "1", "2"]);
    assert_eq!(values_of(&lines, "WORLD_SIZE"), ["3", "3", "3"]);
    let Kind::GangReleased(event) = &kinds[released] else {
        unreachable!("its position was requested");
    };
    let port = event.master_port.to_string();
    assert_eq!(values_of(&lines, "MASTER_PORT"), [&*port, &*port, &*port]);
    let hosts = std::fs::read_to_string(folder.join("hosts")).unwrap();
    assert_eq!(hosts.lines().count(), 3, "{hosts}");
    assert!(
        hosts.lines().all(|line| line.ends_with(" slots=1")),
        "{hosts}"
    );
}

/// Runs a gang of 64, one GPU each, until all of it runs; returns its attempt and ends it.
async fn run_64(cluster: &Cluster, client: &Client, folder: &Path) -> v1::Attempt {
    let script = format!("echo $RANK >> {}/ranks; exec sleep 1000", folder.display());
    let mut spec = with_gpus(gang(&script), 1);
    spec.groups[0].count = Some(64);
    spec.groups[0].tasks_per_host_max = Some(8);
    let job = submit(client, spec).await;
    let attempt = only_attempt(client, job).await;
    let ranks = eventually("every member reports its rank", async || {
        let text = std::fs::read_to_string(folder.join("ranks")).ok()?;
        (text.lines().count() == 64).then_some(text)
    })
    .await;
    let mut ranks: Vec<u32> = ranks.lines().map(|rank| rank.parse().unwrap()).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..64).collect::<Vec<u32>>());
    client.cancel_job(job, "ada", "it ran").await.unwrap();
    client.wait_job(job).await.unwrap();
    assert_eq!(cluster.processes_of(job), Vec::<i32>::new());
    attempt
}

#[tokio::test]
async fn gangs_of_64_tasks_over_8_workers_are_assembled_one_after_the_other() {
    let cluster = Cluster::start(EIGHT_WORKERS).await;
    let client = cluster.client().await;
    let folder = cluster.write("out", "");
    let folder = folder.parent().unwrap();
    for number in 1..=3 {
        let attempt = run_64(&cluster, &client, folder).await;
        std::fs::remove_file(folder.join("ranks")).unwrap();
        let hosts: std::collections::BTreeSet<&str> =
            attempt.tasks.iter().map(|task| &*task.host).collect();
        assert_eq!((attempt.tasks.len(), hosts.len()), (64, 8));
        let running_at_ms = attempt.running_at_ms.unwrap();
        let released = attempt.barrier.unwrap().released_at_ms.unwrap();
        assert!(attempt.placed_at_ms <= released && released <= running_at_ms);
        let took_ms = running_at_ms - attempt.placed_at_ms;
        // Bypasses the capture of test output: meant for readers of the test's output.
        let message = format!("gang {number} of 64 tasks ran {took_ms} ms after its allocation\n");
        std::io::stderr().write_all(message.as_bytes()).unwrap();
        assert!(took_ms <= ASSEMBLY_MS_MAX, "{took_ms} ms");
    }
}

#[tokio::test]
async fn members_that_cannot_be_prepared_fail_the_start_and_are_not_charged() {
    let cluster = Cluster::start(THREE_WORKERS).await;
    let client = cluster.client().await;
    let missing = cluster.write("here", "").with_file_name("not-there-yet");
    let mut spec = gang("sleep 1000");
    spec.groups[0].working_directory = Some(missing.display().to_string());
    let job = submit(&client, spec).await;
    let unit = eventually("a start has failed", async || {
        let detail = client.get_job(job, 1, v1::Consistency::Linearizable).await;
        let unit = detail.ok()?.units.into_iter().next()?;
        (!unit.past.is_empty()).then_some(unit)
    })
    .await;
    assert_eq!((unit.failures, unit.past[0].running_at_ms), (0, None));
    assert!(unit.past[0].detail.contains("not-there-yet"), "{unit:?}");
    std::fs::create_dir(&missing).unwrap();
    let attempt = only_attempt(&client, job).await;
    assert!(attempt.number > 1 && attempt.barrier.unwrap().released_at_ms.is_some());
}

#[tokio::test]
async fn a_gang_without_a_barrier_starts_its_members_independently() {
    let cluster = Cluster::start(THREE_WORKERS).await;
    let client = cluster.client().await;
    let mut spec = gang("true");
    spec.lifecycle.get_or_insert_default().barrier = Some(false);
    let job = submit(&client, spec).await;
    let kinds = history(&client, job).await;
    let waits = |kind: &Kind| matches!(kind, Kind::TaskPrepared(_) | Kind::GangReleased(_));
    assert!(!kinds.iter().any(waits), "{kinds:?}");
}

/// A member that repeatedly writes its identity until there is a file `done`.
const LIVES: &str = "while [ ! -e FOLDER/done ]; do
    echo $MUSTER_EPOCH $$ > FOLDER/life-$RANK.new; mv FOLDER/life-$RANK.new FOLDER/life-$RANK; sleep 0.05
done";

/// The member's epoch and process, as written by itself.
fn life(folder: &Path, rank: u32) -> Option<(u64, i32)> {
    let text = std::fs::read_to_string(folder.join(format!("life-{rank}"))).ok()?;
    let (epoch, pid) = text.trim().split_once(' ')?;
    Some((epoch.parse().ok()?, pid.parse().ok()?))
}

#[tokio::test]
async fn a_member_is_replaced_while_the_others_continue_also_over_a_failover() {
    let mut cluster = Cluster::start(Shape {
        replicas: 3,
        workers: 4,
        ..THREE_WORKERS
    })
    .await;
    let client = cluster.client().await;
    let folder = cluster.write("out", "");
    let folder = folder.parent().unwrap().to_owned();
    let mut spec = gang(&LIVES.replace("FOLDER", folder.to_str().unwrap()));
    spec.partition_grace_ms = Some(10_000);
    spec.lifecycle.get_or_insert_default().member_swap = true;
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 2,
        backoff_ms: 1,
    });
    let job = submit(&client, spec).await;
    let attempt = only_attempt(&client, job).await;
    let [first, second, third] = {
        let lives = eventually("all members", async || {
            let lives = (0..3).map(|rank| life(&folder, rank));
            lives.collect::<Option<Vec<_>>>()
        });
        <[_; 3]>::try_from(lives.await).unwrap()
    };
    assert_eq!((first.0, second.0), (attempt.epoch, attempt.epoch));

    // A member fails, and a new leader has to handle it.
    let leader = cluster.leader(&client).await;
    kill(second.1);
    cluster.replicas[leader].kill();
    let successor = eventually("a new member", async || {
        life(&folder, 1).filter(|it| it.0 > second.0)
    })
    .await;
    assert_ne!(successor.1, second.1);
    // The other members are the same processes, in the same attempt.
    for (rank, before) in [(0, first), (2, third)] {
        assert_eq!(life(&folder, rank), Some(before));
        assert!(is_alive(before.1));
    }
    cluster.replicas[leader].start();
    let now = only_attempt(&client, job).await;
    assert_eq!((now.epoch, now.number), (attempt.epoch, 1));
    let epochs: Vec<Option<u64>> = now.tasks.iter().map(|run| run.epoch).collect();
    assert_eq!(epochs, [None, Some(successor.0), None]);

    // A host that dies takes its member with it; it is replaced on the remaining host.
    let lost = &now.tasks[2].host;
    let worker = cluster.workers.iter().position(|it| it.name == *lost);
    let worker = worker.unwrap();
    cluster.workers[worker].kill();
    for pid in cluster.processes_on(worker) {
        kill(pid);
    }
    let third_now = eventually("a member replaces that of the lost host", async || {
        life(&folder, 2).filter(|it| it.0 > successor.0)
    })
    .await;
    assert_eq!(life(&folder, 0), Some(first));
    assert_eq!(life(&folder, 1), Some(successor));
    assert!(!is_alive(third.1) && is_alive(third_now.1));

    std::fs::write(folder.join("done"), "").unwrap();
    let kinds = history(&client, job).await;
    let count = |wanted: fn(&Kind) -> bool| kinds.iter().filter(|kind| wanted(kind)).count();
    assert_eq!(count(|kind| matches!(kind, Kind::MemberVacated(_))), 2);
    assert_eq!(count(|kind| matches!(kind, Kind::MemberSwapped(_))), 2);
    let ended = client.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    // The first was its own failure, the second one of the infrastructure.
    assert_eq!((ended.units[0].attempts, ended.units[0].failures), (1, 1));
}

/// Waits until exactly these hosts are up: work for a host that has just died would wait for its lease.
pub(crate) async fn only_these_are_up(client: &Client, names: &[&str]) {
    eventually("exactly these hosts are up", async || {
        let request = v1::ListHostsRequest::default();
        let (_, hosts) = client.list_hosts(request).await.ok()?;
        let up = hosts.iter().filter(|it| it.health() == v1::HostHealth::Up);
        let mut up: Vec<&str> = up.map(|it| it.name.as_str()).collect();
        up.sort_unstable();
        (up == names).then_some(())
    })
    .await;
}

/// The addresses in a copy of rank 0's host file, once they satisfy `fits`.
async fn hosts_of_gang(folder: &Path, fits: impl Fn(&[String]) -> bool) -> Vec<String> {
    eventually("rank 0's hosts", async || {
        let text = std::fs::read_to_string(folder.join("hosts")).ok()?;
        let hosts = text.lines().map(|line| line.strip_suffix(" slots=1"));
        let hosts: Vec<String> = hosts
            .map(|it| it.map(str::to_owned))
            .collect::<Option<_>>()?;
        (hosts.len() == 3 && fits(&hosts)).then_some(hosts)
    })
    .await
}

/// The address of a host that `use_hosts_of_different_addresses` adds.
fn address_of(host: &str) -> String {
    format!("127.0.0.1{}", host.strip_prefix("host").unwrap())
}

/// Replaces the only host with four hosts of different addresses.
async fn use_hosts_of_different_addresses(cluster: &mut Cluster, client: &Client) {
    cluster.workers[0].kill();
    let names = ["host1", "host2", "host3", "host4"];
    for name in names {
        let worker = cluster.add_worker(name, |settings| {
            settings["address"] = address_of(name).into();
        });
        cluster.workers[worker].start();
    }
    only_these_are_up(client, &names).await;
}

#[tokio::test]
async fn survivors_learn_the_address_of_a_new_member() {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        ..THREE_WORKERS
    })
    .await;
    let client = cluster.client().await;
    use_hosts_of_different_addresses(&mut cluster, &client).await;
    let folder = cluster.write("out", "");
    let folder = folder.parent().unwrap().to_owned();
    let script = format!(
        "if [ $RANK = 0 ]; then
             {} task watch --gang -o json > FOLDER/message.new && mv FOLDER/message.new FOLDER/message &
             while :; do cp $MUSTER_HOSTFILE FOLDER/hosts; sleep 0.05; done &
         fi
         {LIVES}",
        muster_binary().display()
    );
    let mut spec = gang(&script.replace("FOLDER", folder.to_str().unwrap()));
    spec.lifecycle.get_or_insert_default().member_swap = true;
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 1,
        backoff_ms: 1,
    });
    let job = submit(&client, spec).await;
    let attempt = only_attempt(&client, job).await;
    let expected = |attempt: &v1::Attempt| -> Vec<String> {
        attempt
            .tasks
            .iter()
            .map(|run| address_of(&run.host))
            .collect()
    };
    let before = hosts_of_gang(&folder, |hosts| *hosts == expected(&attempt)).await;
    assert!(!folder.join("message").exists());

    let second = eventually("the second member", async || life(&folder, 1)).await;
    kill(second.1);
    let after = hosts_of_gang(&folder, |hosts| *hosts != before).await;
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    let now = eventually("the new member runs", async || {
        let attempt = only_attempt(&client, job).await;
        (attempt.tasks.len() == 3).then_some(attempt)
    })
    .await;
    assert_eq!((now.epoch, expected(&now)), (attempt.epoch, after));
    let notification = eventually("the notification of the replacement", async || {
        std::fs::read_to_string(folder.join("message")).ok()
    })
    .await;
    let notification: serde_json::Value = serde_json::from_str(&notification).unwrap();
    assert_eq!(notification["master_addr"], *before[0]);
    std::fs::write(folder.join("done"), "").unwrap();
}

/// The lines that a task's control socket sends to a watcher of its gang.
async fn watch_gang(socket: &str) -> Lines<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = b"{\"op\":\"watch\",\"gang\":true}\n";
    stream.write_all(request).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let answer = lines.next_line().await.unwrap();
    assert_eq!(answer.as_deref(), Some("{\"ok\":true}"));
    lines
}

#[tokio::test]
async fn survivors_are_notified_once_of_the_address_of_a_new_rank_0() {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        ..THREE_WORKERS
    })
    .await;
    let client = cluster.client().await;
    use_hosts_of_different_addresses(&mut cluster, &client).await;
    let folder = cluster.write("out", "");
    let folder = folder.parent().unwrap().to_owned();
    let script = format!(
        "echo $MUSTER_CTL_SOCK > FOLDER/socket-$RANK
         echo $MASTER_ADDR $MASTER_PORT > FOLDER/meets-$RANK-$MUSTER_EPOCH
         {LIVES}"
    );
    let mut spec = gang(&script.replace("FOLDER", folder.to_str().unwrap()));
    spec.lifecycle.get_or_insert_default().member_swap = true;
    spec.retry = Some(v1::RetryPolicy {
        retries_max: 1,
        backoff_ms: 1,
    });
    let job = submit(&client, spec).await;
    let [first, _, _] = {
        let lives = eventually("all members", async || {
            let lives = (0..3).map(|rank| life(&folder, rank));
            lives.collect::<Option<Vec<_>>>()
        });
        <[_; 3]>::try_from(lives.await).unwrap()
    };
    // A member of a gang that does not run completely yet is not replaced alone.
    eventually("the gang", async || {
        only_attempt(&client, job).await.running_at_ms
    })
    .await;
    let socket = std::fs::read_to_string(folder.join("socket-1")).unwrap();
    let mut lines = watch_gang(socket.trim()).await;

    kill(first.1);
    let successor = eventually("a new rank 0", async || {
        life(&folder, 0).filter(|it| it.0 > first.0)
    })
    .await;
    let meets = std::fs::read_to_string(folder.join(format!("meets-0-{}", successor.0))).unwrap();
    let (address, port) = meets.trim().split_once(' ').unwrap();
    let mut notifications = Vec::new();
    let first = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
    notifications.extend(first.expect("the notification of it").unwrap());
    // The lines until the end show that there was no other notification.
    std::fs::write(folder.join("done"), "").unwrap();
    client.wait_job(job).await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        notifications.push(line);
    }
    let expected = format!(r#"{{"gang":{{"master_addr":"{address}","master_port":{port}}}}}"#);
    let story = cluster.muster(&["job", "events", &job.to_string()]).await;
    assert_eq!(notifications, [expected], "{}", story.stdout);
}
