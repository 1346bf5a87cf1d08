//! Users authenticated by an identity provider.

use muster_client::{Client, ClientConfig, ClientError, ExecOptions};
use muster_model::ids::JobId;
use muster_proto::v1;
use muster_tests::{IdentityProvider, SecuredCluster, eventually, shell, submit};
use serde_json::json;

/// Seconds that a token is valid, or has been expired.
const HOUR_S: i64 = 3_600;

#[tokio::test(flavor = "multi_thread")]
async fn users_of_an_identity_provider_have_the_rights_of_their_groups() {
    let provider = IdentityProvider::create();
    let oidc = provider.settings(&[("guests", "viewer"), ("staff", "user"), ("ops", "admin")]);
    let cluster = SecuredCluster::start_with(&json!({"oidc": oidc})).await;
    let client = async |user: &str, groups: &[&str], seconds: i64| -> Client {
        let token = provider.token(user, groups, seconds);
        cluster.client_of(None, Some(token)).await
    };
    let newest = v1::Consistency::Linearizable;

    // A job belongs to the authenticated name.
    let ida = client("ida@idp.example", &["others", "staff"], HOUR_S).await;
    let mut forged = shell("sleep 60");
    forged.user = "root".to_owned();
    let job = submit(&ida, forged).await;
    let read = ida.get_job(job, 1, newest).await.unwrap().job;
    assert_eq!(read.spec.unwrap().user, "ida@idp.example");

    let guest = client("gus", &["guests"], HOUR_S).await;
    guest.get_job(job, 1, newest).await.unwrap();
    for refused in [
        guest.submit_job(shell("true")).await.map(drop),
        guest.cancel_job(job, "ida@idp.example", "").await.map(drop),
        ida.set_queue("mine", None).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().reason(), Some("ROLE_TOO_WEAK"));
    }
    let late = client("ida@idp.example", &["staff"], -HOUR_S).await;
    let refused = late.get_job(job, 1, newest).await.unwrap_err();
    assert_eq!(refused.reason(), Some("BAD_TOKEN"));
    assert!(refused.to_string().contains("expired"), "{refused}");

    // A user who can choose a name at the provider has no role here.
    let admin = client("opal", &["ops"], HOUR_S).await;
    admin.set_queue("research", None).await.unwrap();
    let bob = client("bob", &["ops"], HOUR_S).await;
    bob.list_users(newest).await.unwrap();
    drop(cluster.add_user(&["bob", "--role", "viewer"]).await);
    eventually("the name is this cluster's own", async || {
        let refused = bob.list_users(newest).await.err()?;
        (refused.reason() == Some("USER_IS_LOCAL")).then_some(())
    })
    .await;

    let token = provider.token("opal", &["ops"], HOUR_S);
    for (user, call) in [
        ("ida@idp.example", "SubmitJob"),
        ("gus", "ROLE_TOO_WEAK"),
        ("opal", "SetQueue"),
    ] {
        let args = ["audit", "log", "--user", user, "-o", "jsonl"];
        let log = cluster.muster(Some(&token), &args).await.ok();
        assert!(log.contains(call), "{user}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_to_exec_in_tasks_of_others_is_checked_at_every_replica() {
    let provider = IdentityProvider::create();
    let oidc = provider.settings(&[("staff", "user"), ("ops", "admin")]);
    let cluster = SecuredCluster::start_with(&json!({"oidc": oidc})).await;
    let grace = cluster.add_user(&["grace", "--role", "admin"]).await;
    let oscar = cluster.add_user(&["oscar", "--role", "operator"]).await;
    let ida = provider.token("ida", &["staff"], HOUR_S);
    let owner = cluster.client_of(None, Some(ida.clone())).await;
    let job = submit(&owner, shell("sleep 60")).await;
    eventually("its user opens an exec session in the task", async || {
        enter(&owner, job).await.ok()
    })
    .await;

    let opal = provider.token("opal", &["ops"], HOUR_S);
    let ivo = provider.token("ivo", &["staff"], HOUR_S);
    for address in &cluster.addresses {
        for (name, token, may) in [
            ("ida", &ida, true),
            ("opal", &opal, true),
            ("grace", &grace, true),
            ("ivo", &ivo, false),
            ("oscar", &oscar, false),
        ] {
            let client = Client::connect(ClientConfig {
                tls: cluster.tls(None),
                token: Some(token.clone()),
                discover: false,
                ..ClientConfig::new([address.clone()])
            });
            let entered = enter(&client.await.unwrap(), job).await;
            match entered {
                Ok(()) => assert!(may, "{name} at {address}"),
                Err(refused) => {
                    assert!(!may, "{name} at {address}: {refused}");
                    assert_eq!(refused.reason(), Some("NOT_YOURS"), "{name}: {refused}");
                }
            }
        }
    }
}

/// Runs an exec session in a job's first task, to its end.
async fn enter(client: &Client, job: JobId) -> Result<(), ClientError> {
    let options = ExecOptions {
        job,
        command: vec!["true".to_owned()],
        ..ExecOptions::default()
    };
    let mut command = client.exec(options).await?;
    while command.next().await?.is_some() {}
    Ok(())
}
