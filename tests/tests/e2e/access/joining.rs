//! Workers that join without a certificate: with a join token, and under the token's rules.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_client::{Client, JoinToken, JoinTokenOptions, TlsSettings, WatchFilter, WatchUpdate};
use muster_model::ids::Revision;
use muster_proto::v1;
use muster_proto::v1::access_changed::Kind as Change;
use muster_proto::v1::event::Kind;
use muster_tests::{Run, SecuredCluster, eventually, muster};
use muster_tls::{Authority, PeerRole, SigningRequest, Tls, signing_request};

const HOUR: Duration = Duration::from_secs(3_600);

fn kept(cluster: &SecuredCluster, token: &str, name: &str) -> PathBuf {
    let file = cluster.file(name);
    fs::write(&file, token).unwrap();
    file
}

/// Runs a worker that is refused, to its end; returns its output.
async fn refused(cluster: &SecuredCluster, name: &str, token_file: &Path) -> String {
    let config = cluster.joining_worker(name, token_file);
    let args = ["worker", "--config", config.to_str().unwrap()];
    let run = Run::of(muster(&args), "").await;
    assert_eq!(run.code, 1, "{run:?}");
    run.stderr
}

async fn is_up(admin: &Client, name: &str) {
    eventually("the worker is up", async || {
        let all = v1::ListHostsRequest::default();
        let hosts = admin.list_hosts(all).await.ok()?.1;
        let host = hosts.into_iter().find(|host| host.name == name)?;
        (host.health() == v1::HostHealth::Up).then_some(())
    })
    .await;
}

/// Access events that a watcher receives, up to the worker that joined.
async fn access_events(client: &Client) -> Vec<Change> {
    let filter = WatchFilter {
        jobs: Vec::new(),
        kinds: vec![v1::EventKind::AccessChanged],
    };
    let mut watch = client.watch(Some(Revision(1)), filter);
    let mut changes = Vec::new();
    while !matches!(changes.last(), Some(Change::WorkerJoined(_))) {
        if let WatchUpdate::Events { events, .. } = watch.next().await.unwrap() {
            changes.extend(events.into_iter().filter_map(|event| match event.kind {
                Some(Kind::AccessChanged(changed)) => changed.kind,
                _ => None,
            }));
        }
    }
    changes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_joins_by_a_token_and_a_refused_one_gets_the_reason() {
    let mut cluster = SecuredCluster::start().await;
    let admin = cluster.client_of(Some("replica-1"), None).await;
    let viewer = cluster.add_user(&["val", "--role", "viewer"]).await;
    let args = ["worker", "token", "create", "--host-name", "gpu-*"];
    let text = {
        cluster
            .muster(None, &[&args[..], &["--quiet"]].concat())
            .await
    }
    .ok();
    let token = JoinToken::new(&text);
    let id = token.id().unwrap().to_owned();
    let file = kept(&cluster, &text, "join-token");

    // The first replica has no key to sign with, the next one does.
    drop(cluster.joining_worker("gpu-7", &file));
    let member = cluster.start_joining("gpu-7");
    is_up(&admin, "gpu-7").await;
    let folder = cluster.file("gpu-7-data/tls");
    let key = folder.join("worker.key");
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let used = admin
        .list_join_tokens(v1::Consistency::Linearizable)
        .await
        .unwrap()
        .tokens;
    assert_eq!((used[0].uses, used[0].is_spent), (1, true));

    // The token was for one worker, and for hosts of one name; a revoked token and one of another cluster
    // are invalid.
    let why = refused(&cluster, "gpu-8", &file).await;
    assert!(
        why.contains("has admitted its maximum of 1 workers") && why.contains("token create"),
        "{why}"
    );
    let options = JoinTokenOptions {
        ttl: HOUR,
        uses_max: 5,
        host_pattern: Some("gpu-*".to_owned()),
    };
    let (second, _) = admin.add_join_token("grace", options).await.unwrap();
    let second_file = kept(&cluster, second.text(), "second-token");
    let why = refused(&cluster, "cpu-1", &second_file).await;
    assert!(
        why.contains("is for hosts named `gpu-*`, not for `cpu-1`"),
        "{why}"
    );
    let removed = ["worker", "token", "revoke", second.id().unwrap()];
    drop(cluster.muster(None, &removed).await.ok());
    let why = refused(&cluster, "gpu-9", &second_file).await;
    assert!(why.contains("invalid or expired join token"), "{why}");
    let (kept_part, _) = second.text().rsplit_once(':').unwrap();
    let elsewhere = format!("{kept_part}:{}", "0".repeat(64));
    let elsewhere = kept(&cluster, &elsewhere, "foreign-token");
    drop(cluster.joining_worker("gpu-10", &elsewhere));
    let lost = cluster.start_joining("gpu-10");
    eventually("a token of another cluster is not sent", async || {
        cluster
            .log("gpu-10")
            .contains("not those of the join token")
            .then_some(())
    })
    .await;
    cluster.stop(lost);

    // The join is reported to the entitled watchers, and recorded; the secret is only in the files that it
    // was written to.
    let viewer = cluster.client_of(None, Some(viewer)).await;
    let seen = access_events(&admin).await;
    assert!(
        matches!(&seen[0], Change::UserAdded(added) if added.name == "val"),
        "{seen:?}"
    );
    assert!(
        matches!(&seen[1], Change::JoinTokenAdded(added) if added.id == id),
        "{seen:?}"
    );
    let joined = |change: &Change| matches!(change, Change::WorkerJoined(it) if it.host == "gpu-7");
    assert!(seen.last().is_some_and(joined), "{seen:?}");
    let seen = access_events(&viewer).await;
    assert!(seen.len() == 1 && joined(&seen[0]), "{seen:?}");
    let audit = { cluster.muster(None, &["audit", "log"]).await }.ok();
    assert!(
        audit.contains("host gpu-7") && audit.contains(&id),
        "{audit}"
    );
    let secret = text.trim().split(':').nth(2).unwrap().to_owned();
    for (path, bytes) in cluster.written() {
        let holds = bytes
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!holds || path == file, "{}", path.display());
    }

    // A certificate that expires soon is renewed automatically, without a token.
    cluster.stop(member);
    fs::remove_file(&file).unwrap();
    let authority = TlsSettings {
        ca_key: Some(cluster.file("ca.key")),
        ..cluster.tls(None)
    };
    let authority = Authority::open(&authority).unwrap().unwrap();
    let request = SigningRequest::parse(&signing_request(&key).unwrap()).unwrap();
    let role = PeerRole::Worker("gpu-7".to_owned());
    let short = authority.sign(&request, &role, HOUR / 6).unwrap();
    fs::write(folder.join("worker.pem"), short).unwrap();
    let own = TlsSettings {
        ca: Some(folder.join("ca.pem")),
        certificate: Some(folder.join("worker.pem")),
        key: Some(key),
        ca_key: None,
    };
    let expires = || {
        Tls::load(&own)
            .ok()??
            .validity()
            .map(|life| life.expires_at())
    };
    let before = expires().unwrap();
    cluster.start_joining("gpu-7");
    eventually("the certificate is renewed", async || {
        (expires()? > before + 24 * 3_600).then_some(())
    })
    .await;
    is_up(&admin, "gpu-7").await;
}
