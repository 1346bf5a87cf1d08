//! Tasks that run as their submitters: from a user's token to the process on a host.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use muster_client::{Client, Token};
use muster_tests::{SecuredCluster, eventually, printed, shell, skip, submit, with_gpus};
use serde_json::{Value, json};

/// GPUs of the host whose tasks run as their submitters: more than the other host has.
const GPUS: u32 = 6;

/// An additional host on which users have accounts: `ada` has one with another name.
async fn add_host(cluster: &mut SecuredCluster) {
    let token = cluster.file("join-token");
    let args = ["worker", "token", "create", "--quiet"];
    fs::write(&token, cluster.muster(None, &args).await.ok()).unwrap();
    let config = cluster.joining_worker("gpu-7", &token);
    let mut settings: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    // Running as the submitter is the default: this worker is root and has a certificate.
    settings["tasks"] = json!({"users": {"ada": "nobody"}});
    settings["gpus"]["simulated"]["count"] = json!(GPUS);
    fs::write(&config, settings.to_string()).unwrap();
    // Created for this user only; others must be able to traverse it.
    fs::set_permissions(cluster.file(""), Permissions::from_mode(0o711)).unwrap();
    cluster.start_joining("gpu-7");
}

async fn user(cluster: &SecuredCluster, name: &str) -> (Token, Client) {
    let token = cluster.add_user(&[name, "--role", "user"]).await;
    let client = cluster.client_of(None, Some(token.clone())).await;
    (token, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_task_runs_under_the_users_account_on_its_host() {
    if !rustix::process::geteuid().is_root() {
        skip("only root runs tasks as other users");
        return;
    }
    let mut cluster = SecuredCluster::start().await;
    add_host(&mut cluster).await;
    let (token, ada) = user(&cluster, "ada").await;
    // The user in the specification is ignored: the authenticated name counts.
    let mut spec = with_gpus(shell("id -un; sleep 1000"), GPUS / 2);
    spec.user = "root".to_owned();
    let job = submit(&ada, spec).await;
    assert_eq!(printed(&ada, job, 1).await, ["nobody"]);
    let number = job.to_string();
    let args = ["job", "exec", &number, "-n", "--", "id", "-un"];
    assert_eq!(cluster.muster(Some(&token), &args).await.ok(), "nobody\n");

    // A user without an account gets an error, and is not charged.
    let (token, eve) = user(&cluster, "muster-test-eve").await;
    let job = submit(&eve, with_gpus(shell("true"), GPUS / 2)).await;
    let number = job.to_string();
    let args = ["job", "explain", &number];
    let explanation = eventually("the refusal is explained", async || {
        let explanation = cluster.muster(Some(&token), &args).await.ok();
        explanation.contains("NO_ACCOUNT").then_some(explanation)
    })
    .await;
    assert!(explanation.contains("`muster-test-eve`"), "{explanation}");
    // The host is not at fault.
    let args = ["job", "get", &number, "-o", "json"];
    eventually("the failure is attributed to the site", async || {
        let output = cluster.muster(Some(&token), &args).await.ok();
        let output: Value = serde_json::from_str(&output).unwrap();
        output
            .to_string()
            .contains("\"class\":\"site\"")
            .then_some(())
    })
    .await;
}
