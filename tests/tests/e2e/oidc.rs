//! Users whom an identity provider vouches for.

use muster_client::Client;
use muster_proto::v1;
use muster_tests::{IdentityProvider, SecuredCluster, eventually, shell, submit};
use serde_json::json;

/// Seconds that a token holds, or has not held.
const HOUR_S: i64 = 3_600;

#[tokio::test(flavor = "multi_thread")]
async fn whom_an_identity_provider_vouches_for_may_do_what_their_groups_may() {
    let provider = IdentityProvider::begin();
    let oidc = provider.settings(&[("guests", "viewer"), ("staff", "user"), ("ops", "admin")]);
    let cluster = SecuredCluster::start_with(&json!({"oidc": oidc})).await;
    let client = async |user: &str, groups: &[&str], seconds: i64| -> Client {
        let token = provider.token(user, groups, seconds);
        cluster.client_of(None, Some(token)).await
    };
    let newest = v1::Consistency::Linearizable;

    // A job is of the name that was proven.
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

    // Whoever can choose a name there is nobody who has a role here.
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
        let words = ["audit", "log", "--user", user, "-o", "jsonl"];
        let log = cluster.muster(Some(&token), &words).await.ok();
        assert!(log.contains(call), "{user}: {log}");
    }
}
