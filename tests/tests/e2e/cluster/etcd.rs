//! Cluster at a site with etcd: the published keys, and independence from etcd. With a real etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use muster_client::{Client, ClientConfig, EtcdSettings};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{
    Cluster, EtcdServer, Run, Shape, TIMEOUT, eventually, has_etcd, muster, only_attempt, page,
    shell, skip, submit, with_gpus,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// etcd's own default.
const ROOMY_BYTES: u64 = 2 << 30;
/// Prefix of the keys of a test's cluster.
const PREFIX: &str = "/muster/test/";
/// The prefix as written in the settings.
const PREFIX_SETTING: &str = "/muster/test";
/// Maximum time for a job to be accepted and to start while etcd is unavailable, on a busy machine.
const UNHINDERED: Duration = Duration::from_secs(20);

const SMALL: Shape = Shape {
    replicas: 1,
    workers: 1,
    gpus: 8,
};

fn missing() -> bool {
    let is_missing = !has_etcd();
    if is_missing {
        skip("etcd and etcdctl are not installed (Debian: etcd-server and etcd-client)");
    }
    is_missing
}

async fn cluster(etcd: &EtcdServer, shape: Shape) -> Cluster {
    let variables = [
        ("MUSTER_ETCD", &*etcd.endpoint),
        ("MUSTER_ETCD_PREFIX", PREFIX_SETTING),
        ("MUSTER_SCHEDULER_ETCD_PUBLISH_LEASE_SECONDS", "2"),
    ];
    Cluster::start_with(shape, &variables).await
}

fn settings(etcd: &EtcdServer) -> EtcdSettings {
    EtcdSettings {
        prefix: Some(PREFIX_SETTING.to_owned()),
        ..EtcdSettings::new([etcd.endpoint.clone()])
    }
}

fn ids(keys: &BTreeMap<String, Value>) -> BTreeSet<u64> {
    keys.values()
        .filter_map(|value| value["id"].as_u64())
        .collect()
}

/// The leader's key, once its value satisfies `accept`.
async fn leader(etcd: &EtcdServer, accept: impl Fn(&Value) -> bool) -> Value {
    eventually("etcd names the leader", async || {
        let key = etcd.below(&format!("{PREFIX}leader")).remove("")?;
        accept(&key).then_some(key)
    })
    .await
}

/// Waits until the plan in etcd has exactly these jobs.
async fn mirrored(etcd: &EtcdServer, jobs: &[JobId]) {
    let wanted: BTreeSet<String> = jobs.iter().map(|job| format!("{job}/0")).collect();
    let mut seen = BTreeSet::new();
    let deadline = Instant::now() + TIMEOUT;
    while seen != wanted {
        assert!(Instant::now() < deadline, "{seen:?} instead of {wanted:?}");
        sleep(Duration::from_millis(50)).await;
        seen = etcd.below(&format!("{PREFIX}plan/")).into_keys().collect();
    }
}

fn endless() -> v1::JobSpec {
    with_gpus(shell("exec sleep 1000"), 1)
}

/// Asserts that a job is accepted and runs without delay.
async fn begins(client: &Client) -> JobId {
    let begun = Instant::now();
    let job = submit(client, endless()).await;
    only_attempt(client, job).await;
    assert!(begun.elapsed() < UNHINDERED, "{:?}", begun.elapsed());
    job
}

async fn cancel(cluster: &Cluster, job: JobId) {
    let cancelled = cluster.muster(&["job", "cancel", &job.to_string()]).await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
}

/// A page of the first replica.
async fn body_of(cluster: &Cluster, path: &str) -> String {
    let address = cluster.replicas[0].settings()["metrics_listen"]
        .as_str()
        .unwrap()
        .to_owned();
    page(&address, path).await.unwrap_or_default()
}

/// Waits until the replica reports that etcd does not work; it stays ready.
async fn reports_etcd_failure(cluster: &Cluster, kind: &str) {
    eventually("the replica reports that etcd fails", async || {
        let ready = body_of(cluster, "/readyz").await;
        let is_reported = ready.starts_with("ok\n") && ready.contains("etcd: fails");
        is_reported.then_some(())
    })
    .await;
    let metrics = body_of(cluster, "/metrics").await;
    let counted = format!("muster_etcd_errors_total{{kind=\"{kind}\"}}");
    assert!(metrics.contains("muster_etcd_up 0"), "{metrics}");
    assert!(metrics.contains(&counted), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_shows_live_replicas_the_leader_and_running_attempts() {
    if missing() {
        return;
    }
    let etcd = EtcdServer::start(ROOMY_BYTES).await;
    let shape = Shape {
        replicas: 3,
        ..SMALL
    };
    let mut cluster = cluster(&etcd, shape).await;
    let first = leader(&etcd, |_| true).await;
    eventually("all replicas are in etcd", async || {
        let all = ids(&etcd.below(&format!("{PREFIX}replicas/")));
        (all == BTreeSet::from([1, 2, 3])).then_some(())
    })
    .await;

    // A client, the command line and a worker that are configured with etcd only.
    let client = Client::connect(ClientConfig::of_etcd(settings(&etcd)))
        .await
        .unwrap();
    assert_eq!(client.addresses().len(), 3, "{:?}", client.addresses());
    let mut command = muster(&["host", "list", "-o", "json"]);
    command
        .env("MUSTER_ETCD", &etcd.endpoint)
        .env("MUSTER_ETCD_PREFIX", PREFIX_SETTING);
    let listed = Run::of(command, "").await.ok();
    assert!(listed.contains("node01"), "{listed}");
    let worker = cluster.add_worker("node09", |settings| {
        settings["schedulers"] = json!([]);
        settings["etcd"] = json!({ "endpoints": [etcd.endpoint], "prefix": PREFIX_SETTING });
    });
    cluster.workers[worker].start();
    eventually("the worker has found a replica", async || {
        let (_, hosts) = client
            .list_hosts(v1::ListHostsRequest::default())
            .await
            .ok()?;
        hosts.iter().any(|host| host.name == "node09").then_some(())
    })
    .await;

    let job = submit(&client, with_gpus(shell("exec sleep 1000"), 2)).await;
    let attempt = only_attempt(&client, job).await;
    mirrored(&etcd, &[job]).await;
    let plan = etcd
        .below(&format!("{PREFIX}plan/{job}/"))
        .remove("0")
        .unwrap();
    assert_eq!(plan["format"], 1);
    assert_eq!(plan["attempt"], attempt.number, "{plan}");
    let task = &plan["tasks"][0];
    assert!(
        task["host"].as_str().unwrap().starts_with("node0"),
        "{plan}"
    );
    assert_eq!(task["gpus"].as_array().unwrap().len(), 2, "{plan}");

    // The leader dies: the next one is published, and mirrors the plan.
    let died = first["id"].as_u64().unwrap();
    let index = usize::try_from(died).unwrap() - 1;
    cluster.replicas[index].kill();
    let epoch = first["epoch"].as_u64().unwrap();
    let next = leader(&etcd, |key| key["epoch"].as_u64() > Some(epoch)).await;
    assert_ne!(next["id"], first["id"]);
    eventually("the dead replica is removed", async || {
        let left = ids(&etcd.below(&format!("{PREFIX}replicas/")));
        (left.len() == 2 && !left.contains(&died)).then_some(())
    })
    .await;
    cancel(&cluster, job).await;
    mirrored(&etcd, &[]).await;
    let other = begins(&client).await;
    mirrored(&etcd, &[other]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_continues_while_etcd_is_unreachable_and_the_mirror_is_complete_afterwards() {
    if missing() {
        return;
    }
    let mut etcd = EtcdServer::start(ROOMY_BYTES).await;
    let cluster = cluster(&etcd, SMALL).await;
    let client = cluster.client().await;
    let (stays, goes) = (begins(&client).await, begins(&client).await);
    let attempt = only_attempt(&client, stays).await;
    mirrored(&etcd, &[stays, goes]).await;

    // etcd is dead: changes in the meantime are published afterwards.
    etcd.kill();
    reports_etcd_failure(&cluster, "unreachable").await;
    let came = begins(&client).await;
    cancel(&cluster, goes).await;
    etcd.start_again().await;
    mirrored(&etcd, &[stays, came]).await;
    eventually("the replica reports that etcd works", async || {
        let ready = body_of(&cluster, "/readyz").await;
        ready.contains("etcd: works").then_some(())
    })
    .await;

    // etcd is dead, and its data is lost.
    etcd.kill();
    etcd.lose_data();
    etcd.start_again().await;
    mirrored(&etcd, &[stays, came]).await;
    leader(&etcd, |_| true).await;

    // etcd is cut off: connections stay open without answers.
    etcd.freeze();
    reports_etcd_failure(&cluster, "silent").await;
    let late = begins(&client).await;
    etcd.thaw();
    mirrored(&etcd, &[stays, came, late]).await;
    assert_eq!(
        only_attempt(&client, stays).await,
        attempt,
        "it ran all the time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_delays_nothing_and_is_written_again_once_it_has_room() {
    if missing() {
        return;
    }
    let etcd = EtcdServer::start(1 << 20).await;
    let cluster = cluster(&etcd, SMALL).await;
    let client = cluster.client().await;
    let goes = begins(&client).await;
    mirrored(&etcd, &[goes]).await;
    let filling = "x".repeat(100_000);
    eventually("etcd is full", async || {
        let number = etcd.below("/filling/").len();
        let key = format!("/filling/{number}");
        etcd.ctl(&["put", &key, &filling]).is_none().then_some(())
    })
    .await;
    assert!(etcd.ctl(&["alarm", "list"]).unwrap().contains("NOSPACE"));

    let came = begins(&client).await;
    reports_etcd_failure(&cluster, "full").await;
    // A removal takes effect even now.
    cancel(&cluster, goes).await;
    mirrored(&etcd, &[]).await;

    etcd.ctl(&["del", "--prefix", "/filling/"]).unwrap();
    let status = etcd.ctl(&["endpoint", "status", "-w", "json"]).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    etcd.ctl(&["compact", &revision]).unwrap();
    etcd.ctl(&["defrag"]).unwrap();
    etcd.ctl(&["alarm", "disarm"]).unwrap();
    mirrored(&etcd, &[came]).await;
}

/// Lets a replica found a new cluster of three through etcd.
fn founds(cluster: &Cluster, index: usize, etcd: &EtcdServer, id: u64) {
    let member = &cluster.replicas[index];
    let mut settings = member.settings();
    settings["replica_id"] = id.into();
    settings["cluster_id"] = "new".into();
    settings["bootstrap"] = true.into();
    settings["advertise"] = settings["listen"].clone();
    settings["peers"] = json!({});
    settings["etcd"] = json!({ "endpoints": [etcd.endpoint] });
    settings["etcd_publish"] = json!({ "bootstrap_expect": 3, "lease_seconds": 2 });
    fs::write(&member.config, settings.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_configured_only_with_etcd_bootstrap_one_cluster() {
    if missing() {
        return;
    }
    let etcd = EtcdServer::start(ROOMY_BYTES).await;
    let shape = Shape {
        workers: 0,
        ..SMALL
    };
    let mut cluster = Cluster::start(shape).await;
    for id in 1..=4 {
        let index = cluster.add_replica(false);
        founds(&cluster, index, &etcd, id);
    }
    // Two are not enough.
    cluster.replicas[1].start();
    cluster.replicas[2].start();
    eventually("two replicas are registered", async || {
        let seen = ids(&etcd.below("/muster/new/replicas/"));
        (seen.len() == 2).then_some(())
    })
    .await;
    assert!(etcd.below("/muster/new/bootstrap").is_empty());
    cluster.replicas[3].start();
    leader_of_new(&etcd).await;
    let founded = etcd.below("/muster/new/bootstrap");
    let members = founded[""]["members"].as_object().unwrap();
    assert_eq!(members.keys().collect::<Vec<_>>(), ["1", "2", "3"]);
    let client = ClientConfig {
        cluster_id: "new".to_owned(),
        ..ClientConfig::of_etcd(EtcdSettings::new([etcd.endpoint.clone()]))
    };
    let client = Client::connect(client).await.unwrap();
    let status = client.status(v1::Consistency::Linearizable).await.unwrap();
    assert_eq!(status.replicas.len(), 3, "{status:?}");

    // A fourth replica founds nothing, and reports the reason.
    cluster.replicas[4].start();
    let code = eventually("the fourth ends", async || cluster.replicas[4].exit_code()).await;
    assert_ne!(code, 0);
    let printed = cluster.replicas[4].printed();
    assert!(
        printed.contains("this cluster was bootstrapped in etcd by"),
        "{printed}"
    );

    // A restarted member belongs to the cluster, with or without etcd.
    cluster.replicas[1].kill();
    cluster.replicas[1].start();
    eventually("the member is back", async || {
        let status = client.status(v1::Consistency::Linearizable).await.ok()?;
        let seen = ids(&etcd.below("/muster/new/replicas/"));
        (seen.len() == 3 && status.replicas.len() == 3).then_some(())
    })
    .await;
}

async fn leader_of_new(etcd: &EtcdServer) {
    eventually("the new cluster has a leader", async || {
        etcd.below("/muster/new/leader").remove("")
    })
    .await;
}
