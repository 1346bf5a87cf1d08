//! Loss of a cluster: restored from a backup while its workers live on, and rebuilt from a surviving
//! replica.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use muster_client::{Client, ClientConfig};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{Cluster, Run, Shape, eventually, is_alive, only_attempt, shell, with_gpus};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const TWO_WORKERS: Shape = Shape {
    replicas: 3,
    workers: 2,
    gpus: 2,
};
const NO_WORKERS: Shape = Shape {
    replicas: 3,
    workers: 0,
    gpus: 0,
};
/// Lease duration in this test: a dead agent must not hold up the test for long.
const LEASE_MS: u64 = 40_000;
/// Exit code of a replica that the group has removed.
const REMOVED: i32 = 5;
/// Maximum wait for events after a lease.
const TIMEOUT: Duration = Duration::from_secs(100);

/// A task that cannot run twice unnoticed: it holds a lock while it lives, and records every start, and
/// every start that found the lock taken.
fn exclusive(folder: &Path, name: &str) -> v1::JobSpec {
    let (lock, marks, stop) = (
        folder.join(format!("{name}.lock")),
        folder.join(format!("{name}.marks")),
        folder.join(format!("{name}.stop")),
    );
    let script = format!(
        "exec 9>{}; flock -n 9 || {{ echo double $MUSTER_EPOCH >> {marks}; exit 3; }}; echo started \
         $MUSTER_EPOCH >> {marks}; while [ ! -e {} ]; do sleep 0.05; done",
        lock.display(),
        stop.display(),
        marks = marks.display(),
    );
    let mut spec = with_gpus(shell(&script), 1);
    spec.name = name.to_owned();
    spec.partition_grace_ms = Some(LEASE_MS);
    spec
}

fn marks(folder: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join(format!("{name}.marks"))).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn starts(folder: &Path, name: &str, count: usize) -> Vec<String> {
    let waited = async {
        loop {
            let found = marks(folder, name);
            assert!(
                !found.iter().any(|mark| mark.starts_with("double")),
                "{found:?}"
            );
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let started = timeout(TIMEOUT, waited).await;
    started.unwrap_or_else(|_| panic!("{name}: {:?}", marks(folder, name)))
}

/// A command with admin rights.
async fn admin(cluster: &Cluster, args: &[&str]) -> Run {
    let mut command = cluster.command(args);
    command.env("MUSTER_USER", "root");
    Run::of(command, "").await
}

/// Submits until the cluster has been gone for longer than a deadline; returns the acknowledged jobs.
fn load(addresses: Vec<String>) -> JoinHandle<Vec<JobId>> {
    tokio::spawn(async move {
        let config = ClientConfig {
            deadline: Duration::from_secs(2),
            discover: false,
            ..ClientConfig::new(addresses)
        };
        let client = Client::connect(config).await.unwrap();
        let mut acknowledged = Vec::new();
        while let Ok(submitted) = client.submit_job(shell("exit 0")).await {
            acknowledged.push(submitted.job);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        acknowledged
    })
}

async fn known(client: &Client) -> BTreeSet<JobId> {
    let listed = eventually("the jobs are listed", async || {
        let request = v1::ListJobsRequest::default();
        client.list_jobs(request, usize::MAX).await.ok()
    })
    .await;
    listed.1.iter().map(|job| JobId(job.id)).collect()
}

/// Jobs that must survive any later loss.
async fn acknowledged(client: &Client, count: usize) -> BTreeSet<JobId> {
    let mut jobs = BTreeSet::new();
    for _ in 0..count {
        jobs.insert(client.submit_job(shell("exit 0")).await.unwrap().job);
    }
    jobs
}

/// Kills all replicas, removes their data, and restores a file as the first one, at its address and with
/// another name.
async fn lose_and_restore(cluster: &mut Cluster, file: &str, args: &[&str]) -> Value {
    for replica in &mut cluster.replicas {
        replica.kill();
    }
    let mut settings = cluster.replicas[0].settings();
    for replica in &cluster.replicas {
        fs::remove_dir_all(replica.data_dir()).unwrap();
    }
    let (address, folder) = (cluster.addresses[0].clone(), cluster.replicas[0].data_dir());
    let given = [
        "snapshot",
        "restore",
        file,
        "--cluster-id",
        "second",
        "--advertise",
        &address,
    ];
    let given = [
        &given[..],
        &["--data-dir", folder.to_str().unwrap(), "-o", "json"],
        args,
    ]
    .concat();
    let restored = cluster.muster(&given).await.json();
    settings["cluster_id"] = "second".into();
    settings["peers"] = serde_json::json!({"1": address});
    fs::write(&cluster.replicas[0].config, settings.to_string()).unwrap();
    cluster.replicas[0].start();
    restored
}

/// The index of the worker that runs a job's only task, and its first process.
async fn place_of(cluster: &Cluster, client: &Client, job: JobId) -> (usize, i32) {
    let attempt = only_attempt(client, job).await;
    let mut names = cluster.workers.iter();
    let worker = names
        .position(|it| it.name == attempt.tasks[0].host)
        .unwrap();
    let process = eventually("the task's process", async || {
        cluster.processes_of(job).into_iter().min()
    });
    (worker, process.await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_cluster_starts_no_task_twice_that_still_runs_unknown_to_it() {
    let mut cluster = Cluster::start(TWO_WORKERS).await;
    let client = cluster.client().await;
    let own = cluster.write("here", "").parent().unwrap().to_owned();
    let moved = client
        .submit_job(exclusive(&own, "moved"))
        .await
        .unwrap()
        .job;
    let (moved_from, _) = place_of(&cluster, &client, moved).await;
    let before = acknowledged(&client, 30).await;
    let busy = load(cluster.addresses.clone());

    let key = cluster.write("key", &"5a".repeat(32));
    let file = own.join("saved.backup");
    let (file, key) = (file.to_str().unwrap(), key.to_str().unwrap());
    let save = ["snapshot", "save", file, "--key-file", key, "-o", "json"];
    let refused = cluster.muster(&save).await;
    assert!(
        refused.stderr.contains("only the cluster's admins"),
        "{}",
        refused.stderr
    );
    let saved = admin(&cluster, &save).await.json();
    assert_eq!(saved["encrypted"], true);
    let refused = cluster.muster(&["snapshot", "inspect", file]).await;
    assert!(
        refused.stderr.contains("encrypted: give the key"),
        "{}",
        refused.stderr
    );

    // Unknown to the file: the job moves elsewhere, and there its agent dies and leaves it running.
    let name = cluster.workers[moved_from].name.clone();
    let drained = [
        "host",
        "drain",
        &name,
        "--reason",
        "test",
        "--deadline",
        "2s",
    ];
    assert_eq!(cluster.muster(&drained).await.code, 0);
    starts(&own, "moved", 2).await;
    let (moved_to, orphan) = place_of(&cluster, &client, moved).await;
    assert_ne!(moved_to, moved_from);
    cluster.workers[moved_to].kill();
    let restored = lose_and_restore(&mut cluster, file, &["--key-file", key]).await;
    assert_eq!(restored["snapshot"]["revision"], saved["revision"]);
    assert!(is_alive(orphan), "it keeps running under its lease");
    // It continues in the restored cluster if that is back within its deadline.
    busy.abort();

    let client = cluster.client_of(0).await;
    let missing: Vec<JobId> = before.difference(&known(&client).await).copied().collect();
    assert!(
        missing.is_empty(),
        "{missing:?} were acknowledged before the save"
    );
    let floor = saved["revision"].as_u64().unwrap() + (1 << 40);
    let status = eventually("its leadership begins", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.leadership_epoch > floor).then_some(status)
    })
    .await;
    assert_eq!(status.cluster_id, "second");

    // The moved job starts a third time only after the second attempt is gone.
    starts(&own, "moved", 3).await;
    assert!(!is_alive(orphan));
    fs::write(own.join("moved.stop"), "").unwrap();
    let ended = timeout(TIMEOUT, client.wait_job(moved)).await;
    assert_eq!(ended.unwrap().unwrap().phase(), v1::JobPhase::Succeeded);
    starts(&own, "moved", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_keep_running_through_a_restore_and_new_ones_start_afterwards() {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        ..TWO_WORKERS
    })
    .await;
    let client = cluster.client().await;
    let own = cluster.write("here", "").parent().unwrap().to_owned();
    let job = client
        .submit_job(exclusive(&own, "kept"))
        .await
        .unwrap()
        .job;
    let (_, process) = place_of(&cluster, &client, job).await;
    let epoch = only_attempt(&client, job).await.epoch;
    let file = own.join("saved.backup");
    let file = file.to_str().unwrap();
    let saved = admin(&cluster, &["snapshot", "save", file]).await;
    assert_eq!(saved.code, 0, "{}", saved.stderr);
    let again = admin(&cluster, &["snapshot", "save", file]).await;
    assert!(again.stderr.contains("already exists"), "{}", again.stderr);
    lose_and_restore(&mut cluster, file, &[]).await;

    let client = cluster.client_of(0).await;
    let attempt = only_attempt(&client, job).await;
    assert_eq!((attempt.epoch, attempt.number), (epoch, 1));
    // A new job need not wait for earlier leases.
    let next = client.submit_job(shell("exit 0")).await.unwrap().job;
    let ended = timeout(Duration::from_secs(60), client.wait_job(next)).await;
    assert_eq!(ended.unwrap().unwrap().phase(), v1::JobPhase::Succeeded);
    assert!(cluster.processes_of(job).contains(&process));
    assert_eq!(marks(&own, "kept").len(), 1);

    // Ids of the old replicas are not reused; new replicas join.
    cluster.addresses.truncate(1);
    let refused = cluster.muster(&["cluster", "add", "2=127.0.0.1:1"]).await;
    assert!(
        refused.stderr.contains("was used before"),
        "{}",
        refused.stderr
    );
    let replica = cluster.add_replica(true);
    cluster.replicas[replica].start();
    let id = cluster.replicas[replica].settings()["replica_id"]
        .as_u64()
        .unwrap();
    eventually("it learns", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        let mut learners = status.replicas.iter();
        learners
            .find(|it| it.id == id && it.lag_entries == Some(0))
            .map(drop)
    })
    .await;
    fs::write(own.join("kept.stop"), "").unwrap();
    let ended = timeout(TIMEOUT, client.wait_job(job))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survivor_of_three_continues_with_everything_acknowledged() {
    let mut cluster = Cluster::start(NO_WORKERS).await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    let before = acknowledged(&client, 30).await;
    let busy = load(vec![cluster.addresses[leader].clone()]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    for replica in (0..3).filter(|it| *it != leader) {
        cluster.replicas[replica].kill();
    }
    let lately = busy.await.unwrap();
    let folder = cluster.replicas[leader].data_dir();
    let folder = folder.to_str().unwrap();
    let recover = ["cluster", "recover", "--from-survivor", folder];
    let refused = cluster.muster(&[&recover[..], &["--yes"]].concat()).await;
    assert!(
        refused.stderr.contains("in use by another process"),
        "{}",
        refused.stderr
    );
    cluster.replicas[leader].kill();

    let unasked = cluster.muster(&recover).await;
    assert!(
        unasked.code != 0 && unasked.stderr.contains("--yes"),
        "{}",
        unasked.stderr
    );
    let header = cluster
        .muster(&[&recover[..], &["--dry-run", "-o", "json"]].concat())
        .await
        .json();
    assert_eq!(header["members"].as_array().unwrap().len(), 3);
    let done = cluster.muster(&[&recover[..], &["--yes"]].concat()).await;
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains("permanently lost"), "{}", done.stderr);
    cluster.replicas[leader].start();

    let client = cluster.client_of(leader).await;
    let known = known(&client).await;
    let all = before.iter().chain(&lately);
    let missing: Vec<&JobId> = all.filter(|job| !known.contains(job)).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} were acknowledged by the surviving replica"
    );
    let floor = header["revision"].as_u64().unwrap() + (1 << 40);
    let status = eventually("its leadership begins", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        (status.leadership_epoch > floor).then_some(status)
    })
    .await;
    assert_eq!(status.replicas.len(), 1);

    // A dead replica returns: it learns that it is no longer a member, and ends.
    let other = (leader + 1) % 3;
    cluster.replicas[other].start();
    let code = eventually("it ends", async || cluster.replicas[other].exit_code()).await;
    assert_eq!(code, REMOVED);
    assert!(client.submit_job(shell("exit 0")).await.is_ok());
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_the_place() {
    let cluster = Cluster::start(Shape {
        replicas: 1,
        ..NO_WORKERS
    })
    .await;
    let file: PathBuf = cluster.write("saved.backup", "");
    let path = file.to_str().unwrap();
    let saved = admin(&cluster, &["snapshot", "save", path, "--force"]).await;
    assert_eq!(saved.code, 0, "{}", saved.stderr);
    let whole = cluster
        .muster(&["snapshot", "inspect", path, "-o", "json"])
        .await
        .json();
    assert_eq!(whole["encrypted"], false);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let folder = file.with_file_name("new");
    let restore = [
        "snapshot",
        "restore",
        path,
        "--advertise",
        "127.0.0.1:1",
        "--data-dir",
    ];
    let refused = cluster
        .muster(&[&restore[..], &[folder.to_str().unwrap()]].concat())
        .await;
    assert!(
        refused
            .stderr
            .contains("damaged in chunk 0, from byte 32 on"),
        "{}",
        refused.stderr
    );
    assert!(!folder.exists());
    fs::write(&file, &bytes[..middle]).unwrap();
    let refused = cluster.muster(&["snapshot", "inspect", path]).await;
    assert!(
        refused
            .stderr
            .contains(&format!("cut off after {middle} bytes")),
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn a_replica_reports_at_its_start_that_it_cannot_write_backups() {
    let mut cluster = Cluster::start(Shape {
        replicas: 1,
        ..NO_WORKERS
    })
    .await;
    // There can be no folder below a file, for any user.
    let folder = cluster.write("here", "").join("backups");
    cluster.replicas[0].kill();
    let mut settings = cluster.replicas[0].settings();
    settings["backup"] = serde_json::json!({"dir": folder});
    fs::write(&cluster.replicas[0].config, settings.to_string()).unwrap();
    cluster.replicas[0].start();
    let warning = eventually("a warning", async || {
        let printed = cluster.replicas[0].printed();
        let mut lines = printed.lines();
        let found = lines.find(|line| line.contains("`backup.dir` is not writable"));
        found.map(str::to_owned)
    })
    .await;
    assert!(warning.contains(folder.to_str().unwrap()), "{warning}");
    assert!(warning.contains("Not a directory"), "{warning}");
}

#[tokio::test]
async fn the_leader_takes_periodic_backups_and_keeps_the_configured_number() {
    let mut cluster = Cluster::start(Shape {
        replicas: 1,
        ..NO_WORKERS
    })
    .await;
    let own = cluster.write("here", "").parent().unwrap().to_owned();
    let folder = own.join("backups");
    let key = cluster.write("key", &"a5".repeat(32));
    cluster.replicas[0].kill();
    let mut settings = cluster.replicas[0].settings();
    settings["backup"] = serde_json::json!({
        "dir": folder, "every_ms": 1_000, "keep": 2, "key_file": key,
    });
    fs::write(&cluster.replicas[0].config, settings.to_string()).unwrap();
    cluster.replicas[0].start();
    let client = cluster.client().await;
    let before = acknowledged(&client, 3).await;
    let files = || -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let first = eventually("two backups", async || {
        Some(files()).filter(|it| it.len() == 2)
    })
    .await;
    let later = eventually("others in their place", async || {
        Some(files()).filter(|it| it.is_disjoint(&first) && it.len() == 2)
    })
    .await;
    // Current files may be gone when they are read: a copy is stable.
    let copy = own.join("copy");
    fs::copy(later.last().unwrap(), &copy).unwrap();
    let inspect = ["snapshot", "inspect", copy.to_str().unwrap()];
    let inspect = [
        &inspect[..],
        &["--key-file", key.to_str().unwrap(), "-o", "json"],
    ]
    .concat();
    let read = cluster.muster(&inspect).await.json();
    let jobs = &read["jobs"];
    let counted = jobs["live"].as_u64().unwrap() + jobs["ended"].as_u64().unwrap();
    assert_eq!(
        (read["encrypted"].as_bool(), counted),
        (Some(true), before.len() as u64)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_audited_by_the_replica_that_answered() {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        ..TWO_WORKERS
    })
    .await;
    let client = cluster.client().await;
    let leader = cluster.leader(&client).await;
    let follower = (leader + 1) % 3;
    let mut spec = shell("exit 0");
    spec.name = "train".to_owned();
    spec.groups[0]
        .environment
        .insert("TOKEN".to_owned(), "hunter2".to_owned());
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new([cluster.addresses[follower].clone()])
    };
    let through = Client::connect(config).await.unwrap();
    let job = through.submit_job(spec).await.unwrap().job;
    let address = cluster.addresses[leader].clone();
    let here = ["--address", &address];
    let block = [
        "host",
        "block",
        "node01",
        "--reason",
        "test of the log",
        "--force",
    ];
    assert_eq!(cluster.muster(&[&here[..], &block].concat()).await.code, 0);
    let unblock = ["host", "unblock", "node02"];
    assert_ne!(
        cluster.muster(&[&here[..], &unblock].concat()).await.code,
        0
    );

    let refused = cluster.muster(&["audit", "log"]).await;
    assert!(
        refused.stderr.contains("only the cluster's admins"),
        "{}",
        refused.stderr
    );
    let log = admin(&cluster, &["audit", "log", "-o", "json"])
        .await
        .json();
    let records = log["records"].as_array().unwrap().clone();
    let of = |method: &str| {
        records
            .iter()
            .find(|it| it["method"] == method)
            .unwrap()
            .clone()
    };
    let submit = of("SubmitJob");
    assert_eq!(
        submit["subject"],
        format!("job {job}, name train, queue default")
    );
    assert_eq!(
        (&submit["user"], &submit["code"]),
        (&"ada".into(), &"Ok".into())
    );
    assert_eq!(submit["replica_id"], follower + 1);
    assert!(submit["from"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(submit["revision"].as_u64() == Some(job.get()) && submit["request_id"] != "");
    let block = of("Block");
    assert_eq!(
        (&block["subject"], &block["why"]),
        (&"host node01".into(), &"test of the log".into())
    );
    assert_eq!(block["replica_id"], leader + 1);
    let unblock = of("Unblock");
    assert_eq!(
        (&unblock["code"], &unblock["reason"]),
        (&"NotFound".into(), &"UNKNOWN_HOST".into())
    );
    assert!(!log.to_string().contains("hunter2"));

    // It survives the death of the replica, and can be exported.
    cluster.replicas[follower].kill();
    cluster.replicas[follower].start();
    eventually("the replica is back", async || {
        let log = admin(&cluster, &["audit", "log", "--user", "ada", "-o", "jsonl"]).await;
        (log.code == 0 && log.stdout.contains(&format!("job {job}, "))).then_some(())
    })
    .await;
    let export = ["audit", "log", "--since", "1h", "--export", "audit.jsonl"];
    let exported = admin(&cluster, &export).await;
    assert_eq!(exported.code, 0, "{}", exported.stderr);
    let again = admin(&cluster, &export).await;
    assert_eq!(again.code, 64, "{}", again.stderr);
    assert!(
        again.stderr.contains("audit.jsonl already exists"),
        "{}",
        again.stderr
    );
    let folder = cluster.write("here", "");
    let text = fs::read_to_string(folder.with_file_name("audit.jsonl")).unwrap();
    assert_eq!(text.lines().count(), records.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_the_audit_log_misses_no_record_of_a_restarted_replica() {
    let mut cluster = Cluster::start(NO_WORKERS).await;
    let client = cluster.client().await;
    let mut command = cluster.command(&["audit", "log", "-f", "-o", "jsonl"]);
    command.env("MUSTER_USER", "root");
    let mut follower = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut wait_for = async |job: JobId| {
        let wanted = format!("job {job}, ");
        loop {
            let line = timeout(TIMEOUT, lines.next_line()).await;
            let line = line.expect("it goes on").unwrap().unwrap();
            if line.contains(&wanted) {
                return;
            }
        }
    };
    wait_for(client.submit_job(shell("exit 0")).await.unwrap().job).await;
    for index in 0..cluster.replicas.len() {
        cluster.replicas[index].end();
        cluster.replicas[index].start();
        let config = ClientConfig {
            discover: false,
            ..ClientConfig::new([cluster.addresses[index].clone()])
        };
        let job = eventually("it takes jobs", async || {
            let own = Client::connect(config.clone()).await.ok()?;
            let submitted = own.submit_job(shell("exit 0")).await.ok()?;
            Some(submitted.job)
        });
        wait_for(job.await).await;
    }
}
