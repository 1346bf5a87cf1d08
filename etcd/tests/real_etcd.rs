//! The publisher, discovery and founding against a real etcd, which is killed, frozen, filled and locked. Skipped, with a message,
//! where there is none (Debian: `etcd-server` and `etcd-client`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_etcd::mirror::Contents;
use muster_etcd::records::{FORMAT, Replica};
use muster_etcd::{
    Etcd, EtcdError, EtcdSettings, FoundingError, FoundingPlan, Keys, Publication, Publisher,
    Standing, discover, follow, gather,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// etcd's own default.
const ROOMY_BYTES: u64 = 2 << 30;

fn has_etcd() -> bool {
    let runs = |program: &str, word: &str| {
        let mut command = Command::new(program);
        let quiet = command
            .arg(word)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    let has = runs("etcd", "--version") && runs("etcdctl", "version");
    if !has {
        let told = std::io::stderr().write_all(b"skipped: etcd and etcdctl are not installed\n");
        told.unwrap();
    }
    has
}

async fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

struct Server {
    endpoint: String,
    peer: String,
    quota_bytes: u64,
    folder: TempDir,
    life: u32,
    child: Child,
}

impl Server {
    async fn start(quota_bytes: u64) -> Self {
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        };
        let (endpoint, peer, folder) = (free(), free(), tempfile::tempdir().unwrap());
        let child = spawn((&endpoint, &peer), quota_bytes, (&folder, 0));
        let server = Self {
            endpoint,
            peer,
            quota_bytes,
            folder,
            life: 0,
            child,
        };
        server.is_healthy().await;
        server
    }

    async fn start_again(&mut self) {
        let addresses = (&*self.endpoint, &*self.peer);
        self.child = spawn(addresses, self.quota_bytes, (&self.folder, self.life));
        self.is_healthy().await;
    }

    async fn is_healthy(&self) {
        eventually("etcd is ready", || self.ctl(&["endpoint", "health"])).await;
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(done.success());
    }

    fn ctl(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint, "--command-timeout=2s"])
            .args(words)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    /// All keys that begin so, and their values.
    fn below(&self, prefix: &str) -> BTreeMap<String, String> {
        let text = self.ctl(&["get", "--prefix", prefix]).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks_exact(2);
        pairs
            .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
            .collect()
    }

    async fn has_plan(&self, wanted: &Contents) {
        let wanted: BTreeMap<String, String> = { wanted.iter() }
            .map(|(key, value)| (key.clone(), value.to_string()))
            .collect();
        eventually("the plan is mirrored", || {
            (self.below(&keys().plan()) == wanted).then_some(())
        })
        .await;
    }

    async fn names_leader(&self, id: u64) {
        let key = keys().leader();
        eventually("the leader is named", || {
            let value = self.below(&key).remove(&key)?;
            value.contains(&format!("\"id\":{id},")).then_some(())
        })
        .await;
    }

    fn settings(&self) -> EtcdSettings {
        EtcdSettings::new([self.endpoint.clone()])
    }
}

fn spawn(
    (endpoint, peer): (&str, &str),
    quota_bytes: u64,
    (folder, life): (&TempDir, u32),
) -> Child {
    let (endpoint, peer) = (format!("http://{endpoint}"), format!("http://{peer}"));
    Command::new("etcd")
        .args(["--name", "only", "--data-dir"])
        .arg(folder.path().join(format!("data-{life}")))
        .args(["--listen-client-urls", &endpoint])
        .args(["--advertise-client-urls", &endpoint])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("only={peer}")])
        .args(["--quota-backend-bytes", &quota_bytes.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
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

/// What a replica has to say, as the test wants it.
#[derive(Clone, Default)]
struct Said {
    reign: Option<u64>,
    plan: Contents,
}

struct Source(watch::Receiver<Said>);

impl Publication for Source {
    fn reign(&self) -> Option<u64> {
        self.0.borrow().reign
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
    says: watch::Sender<Said>,
    standing: watch::Receiver<Standing>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Publishing {
    fn start(settings: &EtcdSettings, id: u64) -> Self {
        let (says, said) = watch::channel(Said::default());
        let own = Replica {
            format: FORMAT,
            id,
            address: format!("r{id}:7400"),
            name: String::new(),
        };
        let etcd = Etcd::open(settings).unwrap();
        let publisher = Publisher::new(etcd, keys(), own, 2, Source(said));
        let (standing, stop) = (publisher.standing(), CancellationToken::new());
        let task = tokio::spawn(publisher.run(stop.clone()));
        Self {
            says,
            standing,
            stop,
            task,
        }
    }

    fn leads(&self, epoch: u64, plan: &Contents) {
        let (reign, plan) = (Some(epoch), plan.clone());
        self.says.send_replace(Said { reign, plan });
    }

    async fn fails_by(&self, words: &str) {
        eventually(words, || match &*self.standing.borrow() {
            Standing::Fails(reason) => reason.contains(words).then_some(()),
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
    if !has_etcd() {
        return;
    }
    let server = Server::start(ROOMY_BYTES).await;
    let (first, second) = (
        Publishing::start(&server.settings(), 1),
        Publishing::start(&server.settings(), 2),
    );
    let (old, new) = (plan(&[(1, "a"), (2, "b")]), plan(&[(2, "b"), (3, "c")]));
    first.leads(5, &old);
    server.has_plan(&old).await;
    server.names_leader(1).await;

    let (tell, told) = watch::channel(Vec::new());
    let etcd = Etcd::open(&server.settings()).unwrap();
    let following = tokio::spawn(follow(etcd, keys(), move |found| {
        tell.send_replace(found.addresses());
    }));
    second.leads(9, &new);
    server.has_plan(&new).await;
    server.names_leader(2).await;
    eventually("who follows is told", || {
        (*told.borrow() == ["r2:7400", "r1:7400"]).then_some(())
    })
    .await;
    following.abort();

    // The first does not know yet.
    first.leads(5, &plan(&[(1, "a"), (4, "d")]));
    first.fails_by("newer epoch").await;
    server.has_plan(&new).await;
    server.names_leader(2).await;

    // It is told, and stops: its key goes at once, the leader's stays.
    first.says.send_replace(Said::default());
    first.stop().await;
    assert_eq!(server.below(&keys().replicas()).len(), 1);
    server.names_leader(2).await;
    second.stop().await;
    assert!(server.below(&keys().leader()).is_empty());
    server.has_plan(&new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_is_whole_after_etcd_was_dead_or_hung_or_lost_its_data() {
    if !has_etcd() {
        return;
    }
    let mut server = Server::start(ROOMY_BYTES).await;
    let replica = Publishing::start(&server.settings(), 1);
    // More than one transaction takes.
    let many: Contents = (0..1_500)
        .map(|job| (keys().unit(job, 0), Arc::from(format!("value {job}"))))
        .collect();
    replica.leads(5, &many);
    server.has_plan(&many).await;

    server.kill();
    replica.leads(5, &plan(&[(1, "a"), (2_000, "b")]));
    replica.fails_by("is not reached").await;
    server.start_again().await;
    server.has_plan(&plan(&[(1, "a"), (2_000, "b")])).await;

    server.kill();
    server.life += 1;
    server.start_again().await;
    server.has_plan(&plan(&[(1, "a"), (2_000, "b")])).await;
    server.names_leader(1).await;

    server.signal("-STOP");
    replica.leads(5, &plan(&[(3, "c")]));
    replica.fails_by("no answer").await;
    server.signal("-CONT");
    server.has_plan(&plan(&[(3, "c")])).await;
    server.names_leader(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_takes_what_is_removed_and_the_rest_once_there_is_room() {
    if !has_etcd() {
        return;
    }
    let server = Server::start(1 << 20).await;
    let replica = Publishing::start(&server.settings(), 1);
    replica.leads(5, &plan(&[(1, "a"), (2, "b")]));
    server.has_plan(&plan(&[(1, "a"), (2, "b")])).await;
    let filling = "x".repeat(100_000);
    let mut number = 0;
    eventually("etcd is full", || {
        number += 1;
        let put = server.ctl(&["put", &format!("/filling/{number}"), &filling]);
        put.is_none().then_some(())
    })
    .await;

    replica.leads(5, &plan(&[(1, "a"), (3, "c")]));
    replica.fails_by("is full").await;
    server.has_plan(&plan(&[(1, "a")])).await;

    server.ctl(&["del", "--prefix", "/filling/"]).unwrap();
    let status = server.ctl(&["endpoint", "status", "-w", "json"]).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    server.ctl(&["compact", &revision]).unwrap();
    server.ctl(&["defrag"]).unwrap();
    server.ctl(&["alarm", "disarm"]).unwrap();
    server.has_plan(&plan(&[(1, "a"), (3, "c")])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_founded_by_as_many_as_are_expected_and_once() {
    if !has_etcd() {
        return;
    }
    let server = Server::start(ROOMY_BYTES).await;
    let founding = |id: u64, patience| FoundingPlan {
        id,
        address: format!("r{id}:7400"),
        expect: 3,
        patience,
    };
    let start = async |id: u64, patience| {
        let mut etcd = Etcd::open(&server.settings()).unwrap();
        gather(&mut etcd, &keys(), &founding(id, patience)).await
    };
    let first = Publishing::start(&server.settings(), 1);
    let third = Publishing::start(&server.settings(), 3);
    let late = start(1, Duration::from_secs(3)).await;
    let late = late.unwrap_err().to_string();
    assert!(late.starts_with("2 of 3 replicas"), "{late}");

    let second = Publishing::start(&server.settings(), 2);
    let (one, two, three) =
        tokio::join!(start(1, PATIENCE), start(2, PATIENCE), start(3, PATIENCE));
    let founded = one.unwrap();
    assert_eq!(founded.members.keys().collect::<Vec<_>>(), [&1, &2, &3]);
    assert!(!founded.has_begun);
    assert_eq!(two.unwrap(), founded);
    assert_eq!(three.unwrap(), founded);

    let fourth = Publishing::start(&server.settings(), 4);
    let refused = start(4, PATIENCE).await;
    assert!(matches!(refused, Err(FoundingError::Others { id: 4, .. })));
    // A leader has begun: nobody founds it again.
    first.leads(1, &Contents::new());
    server.names_leader(1).await;
    assert!(start(2, PATIENCE).await.unwrap().has_begun);
    server.ctl(&["del", &keys().bootstrap()]).unwrap();
    let refused = start(2, PATIENCE).await;
    assert!(matches!(refused, Err(FoundingError::Lives { .. })));
    for replica in [first, second, third, fourth] {
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_proves_who_it_is() {
    if !has_etcd() {
        return;
    }
    let server = Server::start(ROOMY_BYTES).await;
    server.ctl(&["user", "add", "root:rootword"]).unwrap();
    server.ctl(&["user", "grant-role", "root", "root"]).unwrap();
    server.ctl(&["user", "add", "muster:word"]).unwrap();
    server.ctl(&["role", "add", "muster"]).unwrap();
    let prefix = keys().prefix().to_owned();
    let grant = [
        "role",
        "grant-permission",
        "--prefix",
        "muster",
        "readwrite",
        &prefix,
    ];
    server.ctl(&grant).unwrap();
    server
        .ctl(&["user", "grant-role", "muster", "muster"])
        .unwrap();
    server.ctl(&["auth", "enable"]).unwrap();

    let file = server.folder.path().join("password");
    std::fs::write(&file, "word\n").unwrap();
    let known = EtcdSettings {
        user: Some("muster".to_owned()),
        password_file: Some(file.clone()),
        ..server.settings()
    };
    let replica = Publishing::start(&known, 1);
    eventually("it is published", || {
        (*replica.standing.borrow() == Standing::Works).then_some(())
    })
    .await;
    let mut etcd = Etcd::open(&known).unwrap();
    let found = discover(&mut etcd, &keys()).await.unwrap();
    assert_eq!(found.addresses(), ["r1:7400"]);

    let mut unknown = Etcd::open(&server.settings()).unwrap();
    let refused = discover(&mut unknown, &keys()).await;
    assert!(
        matches!(refused, Err(EtcdError::Denied { .. })),
        "{refused:?}"
    );
    std::fs::write(&file, "wrong").unwrap();
    let mut wrong = Etcd::open(&known).unwrap();
    let refused = discover(&mut wrong, &keys()).await;
    assert!(
        matches!(refused, Err(EtcdError::Denied { .. })),
        "{refused:?}"
    );
}
