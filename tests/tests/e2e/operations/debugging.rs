//! Debugging tools of an admin: more detail in a process's log, and a debug bundle.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use muster_client::Token;
use muster_proto::v1;
use muster_tests::{
    Cluster, SECURED_WORKER, SecuredCluster, Shape, eventually, only_attempt, shell, with_gpus,
};
use serde_json::Value;
use tokio::time::sleep;

/// Number of log lines so far of a frequent kind written only at level debug: HTTP/2 frames.
fn noise(log: &str) -> usize {
    let is_noise = |line: &&str| line.contains("DEBUG") && line.contains("h2::");
    log.lines().filter(is_noise).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_log_level_expires_by_itself() {
    let cluster = Cluster::start(Shape::default()).await;
    let refused = cluster
        .muster(&["debug", "log-level", "--replica", "1", "h2=debug"])
        .await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("only the cluster's admins may"),
        "{refused:?}"
    );
    let mut command = cluster.command(&[
        "debug",
        "log-level",
        "--replica",
        "2",
        "--worker",
        "node01",
        "h2=debug",
        "--for",
        "3s",
        "-o",
        "json",
    ]);
    command.env("USER", "root");
    let report = muster_tests::Run::of(command, "").await.json();
    assert_eq!(report["processes"][0]["process"], "replica 2");
    assert_eq!(report["processes"][1]["process"], "worker node01");
    for process in [0, 1] {
        assert_eq!(
            report["processes"][process]["filter"],
            "info,openraft=error,h2=debug"
        );
    }
    let (replica, worker) = (&cluster.replicas[1], &cluster.workers[0]);
    eventually("both log more", async || {
        (noise(&replica.printed()) > 0 && noise(&worker.printed()) > 0).then_some(())
    })
    .await;
    for member in [replica, worker] {
        eventually("it logs as before", async || {
            member
                .printed()
                .contains("the log's levels are as before")
                .then_some(())
        })
        .await;
        let before = noise(&member.printed());
        // Heartbeats continue all the time: a second without lines is due to the level.
        sleep(Duration::from_secs(2)).await;
        assert_eq!(noise(&member.printed()), before, "{}", member.name);
    }
    // Other replicas never logged them.
    assert_eq!(noise(&cluster.replicas[0].printed()), 0);
    assert_eq!(noise(&cluster.workers[1].printed()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_log_levels_are_refused_with_the_valid_form() {
    let cluster = Cluster::start(Shape {
        replicas: 1,
        workers: 1,
        gpus: 1,
    })
    .await;
    let root = async |args: &[&str]| {
        let mut command = cluster.command(args);
        command.env("USER", "root");
        muster_tests::Run::of(command, "").await
    };
    let level = ["debug", "log-level"];
    for (args, code, part) in [
        (
            &["--replica", "1", "h2=loud"][..],
            64,
            "a level is one of off, error",
        ),
        (&["h2=debug"], 64, "--replica <ID>"),
        (&["--replica", "7", "debug"], 1, "replica 7 does not exist"),
        (&["--worker", "nobody", "debug"], 1, "nobody"),
        (
            &["--replica", "1", "debug", "--for", "25h"],
            1,
            "LEVEL_MS_MAX",
        ),
        (
            &["--worker", "node01", "debug", "--for", "25h"],
            1,
            "LEVEL_MS_MAX",
        ),
    ] {
        let run = root(&[&level[..], args].concat()).await;
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.stderr.contains(part), "{run:?}");
    }
}

/// Unpacks a bundle; returns the folder in it.
fn unpack(bundle: &Path, into: &Path) -> std::path::PathBuf {
    let done = Command::new("tar")
        .arg("-xzf")
        .arg(bundle)
        .arg("-C")
        .arg(into)
        .status();
    assert!(done.unwrap().success());
    let folder = { fs::read_dir(into).unwrap() }
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir());
    folder.unwrap()
}

fn files(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.to_str().unwrap().to_owned(), text));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_has_what_a_bug_report_needs_and_no_secrets() {
    let mut cluster = SecuredCluster::start().await;
    let admin = cluster.add_user(&["root-admin", "--role", "admin"]).await;
    let user = cluster.add_user(&["ada", "--role", "user"]).await;
    let client = cluster.client_of(None, Some(user.clone())).await;
    let environment = "0123456789-of-the-environment";
    let mut spec = shell("echo argument-hunter2; sleep 1000");
    let group = &mut spec.groups[0].environment;
    group.insert("DB_PASSWORD".to_owned(), environment.to_owned());
    let spec = with_gpus(spec, 2);
    let running = client.submit_job(spec.clone()).await.unwrap().job;
    only_attempt(&client, running).await;
    let waiting = client.submit_job(spec).await.unwrap().job;
    // A token with one wrong letter would show up in the log of the refusing replica, if any part of a
    // token did.
    let wrong = Token::new(&format!("{}x", user.text()));
    let refused = cluster.client_of(None, Some(wrong.clone())).await;
    assert!(refused.status(v1::Consistency::Stale).await.is_err());

    let bundle = cluster.file("bundle.tar.gz");
    let args = [
        "debug",
        "bundle",
        "--out",
        bundle.to_str().unwrap(),
        "-o",
        "json",
    ];
    let report = cluster.muster(Some(&admin), &args).await.json();
    let unpacked = cluster.file("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let folder = unpack(&bundle, &unpacked);
    let mut found = Vec::new();
    files(&folder, &mut found);
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let manifest: Value = serde_json::from_str(&read("manifest.json")).unwrap();
    let listed = manifest["files"].as_array().unwrap();
    assert_eq!(listed.len() + 1, found.len(), "{manifest:#}");
    assert_eq!(report["files"], listed.len());
    // No replica and no worker of this cluster measures anything.
    let missing: Vec<&str> = manifest["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert!(
        missing.contains(&&*format!("workers/{SECURED_WORKER}/metrics.txt")),
        "{missing:?}"
    );
    for replica in 1..=3 {
        assert!(read(&format!("replicas/{replica}/settings.json")).contains("cluster_id"));
        assert!(read(&format!("replicas/{replica}/log.jsonl")).contains("\"level\""));
        assert!(read(&format!("replicas/{replica}/metrics.txt")).contains("muster_build_info"));
        assert!(read(&format!("replicas/{replica}/about.json")).contains("debug,h2=info"));
    }
    assert!(read(&format!("workers/{SECURED_WORKER}/log.jsonl")).contains("\"level\""));
    assert!(read("status.json").contains("leader"));
    assert!(read("hosts.json").contains(SECURED_WORKER));
    assert!(read("events.jsonl").contains("job_submitted"));
    assert!(
        !read(&format!("explain/{waiting}.json")).is_empty(),
        "{manifest:#}"
    );

    let key = fs::read_to_string(cluster.file("replica-1.key")).unwrap();
    let key_line = key.lines().nth(1).unwrap();
    let secrets = [
        admin.text(),
        user.text(),
        wrong.text(),
        environment,
        "argument-hunter2",
        key_line,
    ];
    for (name, text) in &found {
        for secret in secrets {
            // Not even its second half, without the user's name.
            let tail = &secret[secret.len() / 2..];
            assert!(
                !text.contains(secret) && !text.contains(tail),
                "{secret} in {name}"
            );
        }
        assert!(!text.contains("PRIVATE KEY"), "{name}");
    }

    // A dead replica is reported as missing; a user who is not an admin gets what a user may see.
    cluster.kill_first_replica();
    let second = cluster.file("second.tar.gz");
    let args = [
        "debug",
        "bundle",
        "--out",
        second.to_str().unwrap(),
        "-o",
        "json",
    ];
    let report = eventually("a bundle of the remaining data", async || {
        drop(fs::remove_file(&second));
        let run = cluster.muster(Some(&admin), &args).await;
        (run.code == 0).then(|| run.json())
    })
    .await;
    let missing = report["missing"].as_array().unwrap();
    assert!(
        missing.iter().any(|it| it["name"] == "replicas/1"),
        "{report:#}"
    );
    let third = cluster.file("third.tar.gz");
    let args = [
        "debug",
        "bundle",
        "--out",
        third.to_str().unwrap(),
        "-o",
        "json",
    ];
    let report = cluster.muster(Some(&user), &args).await.json();
    let missing = report["missing"].as_array().unwrap();
    let is_refused = |it: &&Value| {
        let why = it["why"].as_str().unwrap();
        it["name"] == "replicas/2" && why.contains("this requires role `admin`")
    };
    assert!(missing.iter().any(|it| is_refused(&it)), "{report:#}");
}
