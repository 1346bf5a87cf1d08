//! The publisher, discovery and bootstrap against a real etcd, which is killed, frozen, filled and locked.
//! Skipped, with a message, if none is installed (Debian: `etcd-server` and `etcd-client`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use muster_etcd::mirror::Contents;
use muster_etcd::records::{FORMAT, Replica};
use muster_etcd::{
    BootstrapError, BootstrapPlan, Etcd, EtcdSettings, Health, Keys, Publication, Publisher,
    bootstrap, discover, follow,
};
use muster_tests::{EtcdServer, TIMEOUT, eventually, has_etcd, skip};
use muster_tls::{PeerRole, issue};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// etcd's own default.
const ROOMY_BYTES: u64 = 2 << 30;

fn missing() -> bool {
    let is_missing = !has_etcd();
    if is_missing {
        skip("etcd and etcdctl are not installed (Debian: etcd-server and etcd-client)");
    }
    is_missing
}

async fn has_plan(server: &EtcdServer, wanted: &Contents) {
    let plan = keys().plan();
    let wanted: BTreeMap<String, Value> = wanted
        .iter()
        .map(|(key, value)| (key.trim_start_matches(&plan).to_owned(), (&**value).into()))
        .collect();
    eventually("the plan is mirrored", async || {
        (server.below(&plan) == wanted).then_some(())
    })
    .await;
}

async fn names_leader(server: &EtcdServer, id: u64) {
    eventually("the leader is named", async || {
        let value = server.below(&keys().leader()).remove("")?;
        (value["id"] == id).then_some(())
    })
    .await;
}

fn settings(server: &EtcdServer) -> EtcdSettings {
    EtcdSettings::new([server.endpoint.clone()])
}

fn keys() -> Keys {
    Keys::new(None, "test")
}

fn plan(units: &[(u64, &str)]) -> Contents {
    let units = units.iter();
    units
        .map(|(job, value)| (keys().unit(*job, 0), Arc::from(*value)))
        .collect()
}

/// Content that the test lets a replica publish.
#[derive(Clone, Default)]
struct Published {
    epoch: Option<u64>,
    plan: Contents,
}

struct Source(watch::Receiver<Published>);

impl Publication for Source {
    fn leadership_epoch(&self) -> Option<u64> {
        self.0.borrow().epoch
    }

    fn plan(&mut self) -> Contents {
        self.0.borrow().plan.clone()
    }

    async fn changed(&mut self) {
        self.0.changed().await.unwrap();
    }
}

/// A replica that publishes itself until it is dropped, or stopped.
struct Publishing {
    content: watch::Sender<Published>,
    health: watch::Receiver<Health>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Publishing {
    fn start(settings: &EtcdSettings, id: u64) -> Self {
        let (content, published) = watch::channel(Published::default());
        let own = Replica {
            format: FORMAT,
            id,
            address: format!("r{id}:7400"),
            name: String::new(),
        };
        let etcd = Etcd::open(settings).unwrap();
        let publisher = Publisher::new(etcd, keys(), own, 2, Source(published));
        let (health, stop) = (publisher.health(), CancellationToken::new());
        let task = tokio::spawn(publisher.run(stop.clone()));
        Self {
            content,
            health,
            stop,
            task,
        }
    }

    fn leads(&self, epoch: u64, plan: &Contents) {
        let (epoch, plan) = (Some(epoch), plan.clone());
        self.content.send_replace(Published { epoch, plan });
    }

    async fn fails_by(&self, message: &str) {
        eventually(message, async || match &*self.health.borrow() {
            Health::Failing(reason) => reason.contains(message).then_some(()),
            _ => None,
        })
        .await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_leader_changes_nothing_once_its_successor_has_written() {
    if missing() {
        return;
    }
    let server = EtcdServer::start(ROOMY_BYTES).await;
    let (first, second) = (
        Publishing::start(&settings(&server), 1),
        Publishing::start(&settings(&server), 2),
    );
    let (old, new) = (plan(&[(1, "a"), (2, "b")]), plan(&[(2, "b"), (3, "c")]));
    first.leads(5, &old);
    has_plan(&server, &old).await;
    names_leader(&server, 1).await;

    let (sender, followed) = watch::channel(Vec::new());
    let etcd = Etcd::open(&settings(&server)).unwrap();
    let following = tokio::spawn(follow(etcd, keys(), move |found| {
        sender.send_replace(found.addresses());
    }));
    second.leads(9, &new);
    has_plan(&server, &new).await;
    names_leader(&server, 2).await;
    eventually("the follower is notified", async || {
        (*followed.borrow() == ["r2:7400", "r1:7400"]).then_some(())
    })
    .await;
    following.abort();

    // The first leader does not know yet.
    first.leads(5, &plan(&[(1, "a"), (4, "d")]));
    first.fails_by("newer epoch").await;
    has_plan(&server, &new).await;
    names_leader(&server, 2).await;

    // It learns of the change and stops: its key is removed at once, the leader's stays.
    first.content.send_replace(Published::default());
    first.stop().await;
    assert_eq!(server.below(&keys().replicas()).len(), 1);
    names_leader(&server, 2).await;
    second.stop().await;
    assert!(server.below(&keys().leader()).is_empty());
    has_plan(&server, &new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_is_complete_after_etcd_was_dead_or_hung_or_lost_its_data() {
    if missing() {
        return;
    }
    let mut server = EtcdServer::start(ROOMY_BYTES).await;
    let replica = Publishing::start(&settings(&server), 1);
    // More than fits into one transaction.
    let many: Contents = (0..1_500)
        .map(|job| (keys().unit(job, 0), Arc::from(format!("value {job}"))))
        .collect();
    replica.leads(5, &many);
    has_plan(&server, &many).await;

    server.kill();
    replica.leads(5, &plan(&[(1, "a"), (2_000, "b")]));
    replica.fails_by("is unreachable").await;
    server.start_again().await;
    has_plan(&server, &plan(&[(1, "a"), (2_000, "b")])).await;

    server.kill();
    server.lose_data();
    server.start_again().await;
    has_plan(&server, &plan(&[(1, "a"), (2_000, "b")])).await;
    names_leader(&server, 1).await;

    server.freeze();
    replica.leads(5, &plan(&[(3, "c")]));
    replica.fails_by("no answer").await;
    server.thaw();
    has_plan(&server, &plan(&[(3, "c")])).await;
    names_leader(&server, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_accepts_removals_and_later_writes_once_there_is_room() {
    if missing() {
        return;
    }
    let server = EtcdServer::start(1 << 20).await;
    let replica = Publishing::start(&settings(&server), 1);
    replica.leads(5, &plan(&[(1, "a"), (2, "b")]));
    has_plan(&server, &plan(&[(1, "a"), (2, "b")])).await;
    let filling = "x".repeat(100_000);
    let mut number = 0;
    eventually("etcd is full", async || {
        number += 1;
        let put = server.ctl(&["put", &format!("/filling/{number}"), &filling]);
        put.is_none().then_some(())
    })
    .await;

    replica.leads(5, &plan(&[(1, "a"), (3, "c")]));
    replica.fails_by("is full").await;
    has_plan(&server, &plan(&[(1, "a")])).await;

    server.ctl(&["del", "--prefix", "/filling/"]).unwrap();
    let status = server.ctl(&["endpoint", "status", "-w", "json"]).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    server.ctl(&["compact", &revision]).unwrap();
    server.ctl(&["defrag"]).unwrap();
    server.ctl(&["alarm", "disarm"]).unwrap();
    has_plan(&server, &plan(&[(1, "a"), (3, "c")])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_bootstrapped_once_by_the_expected_number_of_replicas() {
    if missing() {
        return;
    }
    let server = EtcdServer::start(ROOMY_BYTES).await;
    let founding = |id: u64, wait_max| BootstrapPlan {
        id,
        address: format!("r{id}:7400"),
        expect: 3,
        wait_max,
    };
    let start = async |id: u64, wait_max| {
        let mut etcd = Etcd::open(&settings(&server)).unwrap();
        bootstrap(&mut etcd, &keys(), &founding(id, wait_max)).await
    };
    let first = Publishing::start(&settings(&server), 1);
    let third = Publishing::start(&settings(&server), 3);
    let late = start(1, Duration::from_secs(3))
        .await
        .unwrap_err()
        .to_string();
    assert!(late.starts_with("2 of 3 replicas"), "{late}");

    let second = Publishing::start(&settings(&server), 2);
    let (one, two, three) = tokio::join!(start(1, TIMEOUT), start(2, TIMEOUT), start(3, TIMEOUT));
    let founded = one.unwrap();
    assert_eq!(founded.members.keys().collect::<Vec<_>>(), [&1, &2, &3]);
    assert!(!founded.has_begun);
    assert_eq!(two.unwrap(), founded);
    assert_eq!(three.unwrap(), founded);

    let fourth = Publishing::start(&settings(&server), 4);
    let refused = start(4, TIMEOUT).await;
    assert!(matches!(
        refused,
        Err(BootstrapError::NotAMember { id: 4, .. })
    ));
    // A leader has begun: no cluster is bootstrapped again.
    first.leads(1, &Contents::new());
    names_leader(&server, 1).await;
    assert!(start(2, TIMEOUT).await.unwrap().has_begun);
    server.ctl(&["del", &keys().bootstrap()]).unwrap();
    let refused = start(2, TIMEOUT).await;
    assert!(matches!(
        refused,
        Err(BootstrapError::ExistingCluster { .. })
    ));
    for replica in [first, second, third, fourth] {
        replica.stop().await;
    }
}

/// Enables authentication in etcd: from now on with name and password of a user who may write our keys
/// only.
fn asking_for_users(server: &EtcdServer, settings: EtcdSettings) -> EtcdSettings {
    let run = |arguments: &[&str]| drop(server.ctl(arguments).unwrap());
    run(&["user", "add", "root:rootword"]);
    run(&["user", "grant-role", "root", "root"]);
    run(&["user", "add", "muster:word"]);
    run(&["role", "add", "muster"]);
    let prefix = keys().prefix().to_owned();
    let grant = ["role", "grant-permission", "--prefix", "muster"];
    run(&[&grant[..], &["readwrite", &prefix]].concat());
    run(&["user", "grant-role", "muster", "muster"]);
    run(&["auth", "enable"]);
    let file = server.file("password");
    fs::write(&file, "word\n").unwrap();
    EtcdSettings {
        user: Some("muster".to_owned()),
        password_file: Some(file),
        ..settings
    }
}

/// Asserts that a replica with these settings publishes itself and is found.
async fn works(settings: &EtcdSettings) {
    let replica = Publishing::start(settings, 1);
    eventually("it is published", async || {
        (*replica.health.borrow() == Health::Ok).then_some(())
    })
    .await;
    let mut etcd = Etcd::open(settings).unwrap();
    let found = discover(&mut etcd, &keys()).await.unwrap();
    assert_eq!(found.addresses(), ["r1:7400"]);
    replica.stop().await;
}

/// Returns kind and text of the error with these settings.
async fn refused(settings: &EtcdSettings) -> (&'static str, String) {
    let mut etcd = Etcd::open(settings).unwrap();
    let error = discover(&mut etcd, &keys()).await.unwrap_err();
    (error.kind(), error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_or_hanging_endpoint_is_skipped() {
    if missing() {
        return;
    }
    let server = EtcdServer::start(ROOMY_BYTES).await;
    // Connections to it are accepted, but never answered.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = hangs.local_addr().unwrap().to_string();
    let dead = {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        gone.local_addr().unwrap().to_string()
    };
    let all = EtcdSettings::new([dead.clone(), hanging.clone(), server.endpoint.clone()]);
    works(&all).await;
    let none = EtcdSettings::new([dead, hanging]);
    let (kind, message) = refused(&none).await;
    assert!(["unreachable", "silent"].contains(&kind), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_authenticate_with_a_password() {
    if missing() {
        return;
    }
    let server = EtcdServer::start(ROOMY_BYTES).await;
    let known = asking_for_users(&server, settings(&server));
    works(&known).await;
    assert_eq!(refused(&settings(&server)).await.0, "denied");
    fs::write(server.file("password"), "wrong").unwrap();
    assert_eq!(refused(&known).await.0, "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_and_its_clients_authenticate_with_certificates() {
    if missing() {
        return;
    }
    let server = EtcdServer::start_secured(ROOMY_BYTES).await;
    let proven = EtcdSettings {
        ca: Some(server.file("ca.pem")),
        certificate: Some(server.file("client.pem")),
        key: Some(server.file("client.key")),
        ..settings(&server)
    };
    works(&proven).await;

    // Another authority, trusted by us but not by etcd.
    let elsewhere = tempfile::tempdir().unwrap();
    let ca = issue::authority(elsewhere.path(), "other").unwrap();
    let distrusting = EtcdSettings {
        ca: Some(ca.certificate),
        ..proven.clone()
    };
    let (kind, message) = refused(&distrusting).await;
    assert_eq!(kind, "unreachable", "{message}");
    assert!(
        message.contains("UnknownIssuer") && message.contains("`etcd.ca`"),
        "{message}"
    );
    // A client without a certificate.
    let anonymous = EtcdSettings {
        certificate: None,
        key: None,
        ..proven.clone()
    };
    let (kind, message) = refused(&anonymous).await;
    assert_eq!(kind, "unreachable", "{message}");
    assert!(
        message.contains("`etcd.certificate` is not set") && !message.contains("transport error"),
        "{message}"
    );
    // A client with a certificate of the other authority.
    let user = PeerRole::User("client".to_owned());
    let other = issue::certificate(elsewhere.path(), "client", &user, &[], 1).unwrap();
    let stranger = EtcdSettings {
        certificate: Some(other.certificate),
        key: Some(other.key),
        ..proven.clone()
    };
    let (kind, message) = refused(&stranger).await;
    assert_eq!(kind, "unreachable", "{message}");
    assert!(
        message.contains("not accept `etcd.certificate`"),
        "{message}"
    );

    // A password in addition to a certificate that maps to no user of etcd.
    let known = asking_for_users(&server, proven.clone());
    works(&known).await;
    assert_eq!(refused(&proven).await.0, "denied");
    fs::write(server.file("password"), "wrong").unwrap();
    assert_eq!(refused(&known).await.0, "denied");
}
