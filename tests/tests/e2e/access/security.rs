//! Cluster with certificates: requirements for access, and the rights of each role.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_client::{
    Client, ClientConfig, ClientError, ExecOptions, LogsRequest, TlsSettings, Token, WatchFilter,
    WatchUpdate,
};
use muster_model::ids::{JobId, Revision, TaskIndex};
use muster_proto::status::ErrorReport;
use muster_proto::v1::event::Kind;
use muster_proto::{FILE_DESCRIPTOR_SET, v1};
use muster_tests::{
    FakeWorker, IdentityProvider, Run, SecuredCluster, TIMEOUT, eventually, muster, only_attempt,
    output, shell, submit,
};
use muster_tls::{Dialer, Tls};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::json;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

/// Maximum time for an accepted call to answer.
const CALL_MAX: Duration = Duration::from_secs(2);

/// Minimum role per call: as in `docs/security.md`, written independently of the table in the code.
const VIEWERS: &str = "GetJob ListJobs ExplainJob GetPipeline ListPipelines StreamLogs GetProgress GetStatus \
    ListHosts ListGpus ListQueues GetTopology Watch GetHealth";
const USERS: &str = "SubmitJob CancelJob SuspendJob ResumeJob SubmitPipeline JobService/Exec";
const OPERATORS: &str = "ExportState Block Unblock ResetBreaker";
const ADMINS: &str = "SetQueue ConfigureQueues SetTopology SetHealthRules TransferLeader ChangeReplicas \
    TriggerSnapshot SaveSnapshot ReadAuditLog InjectFault SetLogLevel GetDebugInfo AddUser RemoveUser \
    RotateUserToken ListUsers AddJoinToken RevokeJoinToken ListJoinTokens";
const WORKERS: &str = "Session WorkerService/Exec RenewCertificate";
const UNAUTHENTICATED: &str = "GetAuthorities Join";
const REPLICAS: &str = "ForwardWrites ForwardLogs ForwardProgress ForwardExec PushHeartbeats GetHeartbeats Call Append";

/// Calls that are recorded in the audit log for any authenticated caller and any answer. Exec sessions are
/// as well, once they name a task.
const RECORDED: &str = "SubmitJob CancelJob SuspendJob ResumeJob SubmitPipeline Block Unblock ResetBreaker \
    SetQueue ConfigureQueues SetTopology SetHealthRules ChangeReplicas TriggerSnapshot SaveSnapshot \
    InjectFault SetLogLevel GetDebugInfo AddUser RemoveUser RotateUserToken AddJoinToken RevokeJoinToken";
/// Seconds that a token of an identity provider is valid, or has been expired.
const HOUR_S: i64 = 3_600;

/// Every call that a replica serves, as a path.
fn calls() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut paths = BTreeSet::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                paths.insert(format!(
                    "/{}.{}/{}",
                    file.package(),
                    service.name(),
                    method.name()
                ));
            }
        }
    }
    paths
}

/// Required role: 0 a viewer, up to 3 an admin; `None`: not available to users.
fn needed(path: &str) -> Option<usize> {
    let is_in = |names: &str| {
        names
            .split_whitespace()
            .any(|name| path.ends_with(&format!("/{name}")) || path.ends_with(&format!(".{name}")))
    };
    let classes = [VIEWERS, USERS, OPERATORS, ADMINS];
    let found: Vec<usize> = (0..classes.len())
        .filter(|class| is_in(classes[*class]))
        .collect();
    let others = [WORKERS, REPLICAS, UNAUTHENTICATED].map(|names| usize::from(is_in(names)));
    let others: usize = others.iter().sum();
    assert_eq!(found.len() + others, 1, "{path} is in one class");
    found.first().copied()
}

/// Sends calls with an empty message; returns code and reason from the head of the answer.
async fn call(channel: &Channel, path: &str, token: Option<&str>) -> (Code, String) {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(());
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    let path: PathAndQuery = path.parse().unwrap();
    let codec: ProstCodec<(), ()> = ProstCodec::default();
    match timeout(CALL_MAX, grpc.server_streaming(request, path, codec)).await {
        Ok(Err(status)) => (status.code(), ErrorReport::of(&status).reason),
        // Accepted: it works, or waits for more.
        Ok(Ok(_)) | Err(_) => (Code::Ok, String::new()),
    }
}

async fn channel(address: &str, tls: &TlsSettings) -> Result<Channel, tonic::transport::Error> {
    let dialer = Dialer::new(Tls::load(tls).unwrap());
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    dialer.connect(&endpoint.connect_timeout(CALL_MAX)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_requires_its_role() {
    let provider = IdentityProvider::create();
    let oidc = provider.settings(&[("staff", "user")]);
    let cluster = SecuredCluster::start_with(&json!({"oidc": oidc})).await;
    let mut tokens = Vec::new();
    let roles = ["viewer", "user", "operator", "admin"];
    for (strength, role) in roles.into_iter().enumerate() {
        let name = format!("a-{role}");
        let token = cluster.add_user(&[&name, "--role", role]).await;
        tokens.push((strength, token));
    }
    let admin = tokens[3].1.clone();
    tokens.push((1, provider.token("ida", &["staff"], HOUR_S)));
    // Tokens that an identity provider signed, or seems to have signed, and that are not valid here.
    let foreign = [
        (provider.token("ida", &["staff"], -HOUR_S), "BAD_TOKEN"),
        (
            IdentityProvider::create().token("ida", &["staff"], HOUR_S),
            "BAD_TOKEN",
        ),
        (provider.token("ida", &["others"], HOUR_S), "UNKNOWN_USER"),
        (
            provider.token("a-viewer", &["staff"], HOUR_S),
            "USER_IS_LOCAL",
        ),
    ];
    cluster.cert(&["client", "eve"]).await;
    let removed = cluster.add_user(&["bob", "--role", "admin"]).await;
    drop(cluster.muster(None, &["user", "remove", "bob"]).await.ok());
    for address in &cluster.addresses {
        let anonymous = channel(address, &cluster.tls(None)).await.unwrap();
        let worker = channel(address, &cluster.tls(Some("gpu-1"))).await.unwrap();
        let unknown_user = channel(address, &cluster.tls(Some("eve"))).await.unwrap();
        eventually("this replica knows of all users", async || {
            let last = call(
                &anonymous,
                "/muster.v1.AdminService/ListUsers",
                Some(admin.text()),
            )
            .await;
            let gone = call(
                &anonymous,
                "/muster.v1.AdminService/ListUsers",
                Some(removed.text()),
            )
            .await;
            (last.0 == Code::Ok && gone.0 == Code::Unauthenticated).then_some(())
        })
        .await;
        for path in calls() {
            if UNAUTHENTICATED
                .split(' ')
                .any(|name| path.ends_with(&format!("/{name}")))
            {
                let answer = call(&anonymous, &path, None).await;
                assert_ne!(answer.0, Code::Unauthenticated, "{path}: {answer:?}");
                continue;
            }
            let unproven = |reason: &str| (Code::Unauthenticated, reason.to_owned());
            assert_eq!(
                call(&anonymous, &path, None).await,
                unproven("NO_CREDENTIAL"),
                "{path}"
            );
            let wrong = Token::random("a-admin");
            for token in [wrong.text(), removed.text(), "", "muster:a-admin:", "x"] {
                assert_eq!(
                    call(&anonymous, &path, Some(token)).await,
                    unproven("BAD_TOKEN"),
                    "{path}"
                );
            }
            for (token, reason) in &foreign {
                let answer = call(&anonymous, &path, Some(token.text())).await;
                assert_eq!(answer, unproven(reason), "{path}");
            }
            assert_eq!(
                call(&unknown_user, &path, None).await,
                unproven("UNKNOWN_USER"),
                "{path}"
            );
            let too_weak = (Code::PermissionDenied, "ROLE_TOO_WEAK".to_owned());
            for (at, token) in &tokens {
                let is_enough = needed(&path).is_some_and(|least| *at >= least);
                if is_enough && path.ends_with("TransferLeader") {
                    continue;
                }
                let answer = call(&anonymous, &path, Some(token.text())).await;
                assert_eq!(answer != too_weak, is_enough, "{path} as {at}: {answer:?}");
                assert_ne!(answer.0, Code::Unauthenticated, "{path} as {at}");
            }
            let is_of_workers = path.contains("WorkerService")
                || path.ends_with("GetHealth")
                || path.ends_with("RenewCertificate");
            let answer = call(&worker, &path, None).await;
            assert_eq!(
                answer != too_weak,
                is_of_workers,
                "{path} as a worker: {answer:?}"
            );
        }
    }
    for user in ["a-admin", "a-viewer"] {
        let args = ["audit", "log", "--user", user, "-o", "jsonl"];
        let log = cluster.muster(None, &args).await.ok();
        for name in RECORDED.split_whitespace() {
            let is_recorded = log.contains(&format!("\"{name}\""));
            assert!(is_recorded, "{name} of {user} is not on record: {log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_certificate_of_the_authority_are_refused() {
    let cluster = SecuredCluster::start().await;
    let other = tempfile::tempdir().unwrap();
    let folder = other.path().to_str().unwrap();
    for args in [
        &["ca"][..],
        &["replica", "replica-1", "--name", "127.0.0.1"],
    ] {
        let args = [&["cert"], args, &["--folder", folder]].concat();
        drop(Run::of(muster(&args), "").await.ok());
    }
    let address = &cluster.addresses[0];
    // A client of another authority does not talk to the replica, nor the replica to it.
    let foreign = TlsSettings {
        ca: Some(other.path().join("ca.pem")),
        ..TlsSettings::default()
    };
    assert!(channel(address, &foreign).await.is_err());
    let impostor = TlsSettings {
        certificate: Some(other.path().join("replica-1.pem")),
        key: Some(other.path().join("replica-1.key")),
        ..cluster.tls(None)
    };
    if let Ok(channel) = channel(address, &impostor).await {
        let path = "/muster.raft.v1.RaftService/Append".parse().unwrap();
        let mut grpc = Grpc::new(channel);
        let codec: ProstCodec<(), ()> = ProstCodec::default();
        let refused = match grpc.ready().await {
            Ok(()) => grpc
                .server_streaming(Request::new(()), path, codec)
                .await
                .is_err(),
            Err(_) => true,
        };
        assert!(refused, "a replica of another authority speaks raft");
    }
    // No client gets access without TLS.
    let plain = Client::connect(ClientConfig {
        discover: false,
        deadline: Duration::from_secs(2),
        ..ClientConfig::new([address.clone()])
    });
    assert!(
        plain
            .await
            .unwrap()
            .status(v1::Consistency::Stale)
            .await
            .is_err()
    );
    // A worker's certificate is valid for one host.
    let worker = channel(address, &cluster.tls(Some("gpu-1"))).await.unwrap();
    let mut leader = None;
    for address in &cluster.addresses {
        let worker = channel(address, &cluster.tls(Some("gpu-1"))).await.unwrap();
        leader = FakeWorker::try_greet(worker, FakeWorker::registration("gpu-2", &[]))
            .await
            .or(leader);
    }
    drop(worker);
    let message = leader.expect("one of them leads").rejected().message;
    assert!(
        message.contains("gpu-2") && message.contains("gpu-1"),
        "{message}"
    );
}

/// All operations on a job and a pipeline of another user, and in that user's queue.
async fn tried_on(
    client: &Client,
    job: JobId,
    owner: &Client,
) -> Vec<(&'static str, Result<(), ClientError>)> {
    let newest = v1::Consistency::Linearizable;
    let only = v1::PipelineJob {
        spec: Some(shell("sleep 60")),
        ..v1::PipelineJob::default()
    };
    let pipeline = v1::PipelineSpec {
        name: "theirs".to_owned(),
        jobs: vec![only],
    };
    let submitted = owner.submit_pipeline(None, pipeline.clone()).await.unwrap();
    let command = ExecOptions {
        job,
        author: "ada".to_owned(),
        command: vec!["true".to_owned()],
        ..ExecOptions::default()
    };
    let pipeline_read = client.get_pipeline(submitted.pipeline, newest).await;
    let pipeline_sent = client.submit_pipeline(None, pipeline).await;
    vec![
        ("GetJob", client.get_job(job, 1, newest).await.map(drop)),
        (
            "ExplainJob",
            client.explain_job(job, newest).await.map(drop),
        ),
        ("GetProgress", client.job_progress(job).await.map(drop)),
        ("StreamLogs", output(client, job).await.map(drop)),
        ("Exec", client.exec(command).await.map(drop)),
        (
            "SuspendJob",
            client.suspend_job(job, "ada", "").await.map(drop),
        ),
        (
            "ResumeJob",
            client.resume_job(job, "ada", "").await.map(drop),
        ),
        (
            "CancelJob",
            client.cancel_job(job, "ada", "").await.map(drop),
        ),
        (
            "SubmitJob",
            client.submit_job(shell("true")).await.map(drop),
        ),
        ("GetPipeline", pipeline_read.map(drop)),
        ("SubmitPipeline", pipeline_sent.map(drop)),
    ]
}

/// The submissions of these jobs that a watching user receives, up to that of the last one.
async fn submissions_seen(client: &Client, jobs: &[JobId]) -> Vec<JobId> {
    let filter = WatchFilter {
        jobs: jobs.to_vec(),
        kinds: vec![v1::EventKind::JobSubmitted],
    };
    let mut watch = client.watch(Some(Revision(1)), filter);
    let mut seen = Vec::new();
    while seen.last() != jobs.last() {
        let update = timeout(TIMEOUT, watch.next()).await;
        if let WatchUpdate::Events { events, .. } = update.unwrap().unwrap() {
            seen.extend(events.into_iter().filter_map(|event| match event.kind {
                Some(Kind::JobSubmitted(submitted)) => Some(JobId(submitted.job_id)),
                _ => None,
            }));
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn users_act_only_on_their_own_jobs_and_under_their_own_name() {
    let mut cluster = SecuredCluster::start().await;
    let admin = cluster.client_of(Some("replica-1"), None).await;
    admin.set_queue("research", None).await.unwrap();
    let ada = cluster.add_user(&["ada", "--role", "user"]).await;
    let bob = cluster
        .add_user(&["bob", "--role", "user", "--queue", "research"])
        .await;
    let ops = cluster.add_user(&["ops", "--role", "operator"]).await;
    let as_ada = cluster.client_of(None, Some(ada.clone())).await;
    let as_bob = cluster.client_of(None, Some(bob.clone())).await;
    let as_ops = cluster.client_of(None, Some(ops.clone())).await;
    // A specification cannot name another user.
    let mut forged = shell("sleep 60");
    forged.user = "root".to_owned();
    let own = submit(&as_ada, forged).await;
    let job = as_ada
        .get_job(own, 1, v1::Consistency::Linearizable)
        .await
        .unwrap()
        .job;
    assert_eq!(job.spec.unwrap().user, "ada");
    only_attempt(&as_ada, own).await;
    let mut shared = shell("echo hello; sleep 60");
    shared.queue = Some("research".to_owned());
    let of_research = submit(&as_ada, shared.clone()).await;
    // Bob sees and cancels what is in his queue, and nothing else of ada's.
    for (call, answer) in tried_on(&as_bob, own, &as_ada).await {
        let refused = answer.err();
        let reason = refused.as_ref().and_then(ClientError::reason);
        assert_eq!(reason, Some("NOT_YOURS"), "{call}");
    }
    let submissions = submissions_seen(&as_bob, &[own, of_research]).await;
    assert_eq!(submissions, [of_research]);
    let listed = as_bob
        .list_jobs(v1::ListJobsRequest::default(), 100)
        .await
        .unwrap()
        .1;
    assert_eq!(
        listed.iter().map(|job| job.id).collect::<Vec<_>>(),
        [of_research.get()]
    );
    as_bob
        .cancel_job(of_research, "mallory", "done")
        .await
        .unwrap();
    let weak = as_bob.set_queue("mine", None).await.unwrap_err();
    assert_eq!(weak.reason(), Some("ROLE_TOO_WEAK"));
    // Operators act on all; a rotated token is no longer valid, the new one is.
    as_ops.cancel_job(own, "ops", "room").await.unwrap();
    let rotated = Token::new(
        &cluster
            .muster(None, &["user", "rotate", "ada", "--quiet"])
            .await
            .ok(),
    );
    let late = eventually("the old token is refused everywhere", async || {
        as_ada
            .list_jobs(v1::ListJobsRequest::default(), 1)
            .await
            .err()
    })
    .await;
    assert!(matches!(&late, ClientError::Refused { .. }) && late.reason() == Some("BAD_TOKEN"));
    let as_ada = cluster.client_of(None, Some(rotated.clone())).await;
    as_ada
        .list_jobs(v1::ListJobsRequest::default(), 1)
        .await
        .unwrap();
    // The audit log has the authenticated names, and the refused calls of these users.
    let log = cluster
        .muster(None, &["audit", "log", "-o", "jsonl"])
        .await
        .ok();
    let has = |parts: &[&str]| {
        log.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(
        has(&["CancelJob", "\"bob\"", &format!("job {of_research}")]),
        "{log}"
    );
    assert!(
        has(&["SubmitJob", "\"ada\""]) && has(&["SetQueue", "\"bob\"", "ROLE_TOO_WEAK"]),
        "{log}"
    );
    assert!(has(&["SetQueue", "\"a replica\"", "research"]), "{log}");
    assert!(!has(&["mallory"]), "{log}");
    // No token was written: neither to logs, at debug level, nor to data.
    cluster.kill_first_replica();
    submit(&as_ada, shell("true")).await;
    for (path, bytes) in cluster.written() {
        for token in [&ada, &bob, &ops, &rotated] {
            let secret = token.text().rsplit(':').next().unwrap().as_bytes();
            let found = bytes.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "{} contains a token", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_user_can_neither_read_output_nor_send_input() {
    let cluster = SecuredCluster::start().await;
    let ada = cluster.add_user(&["ada", "--role", "user"]).await;
    let as_ada = cluster.client_of(None, Some(ada)).await;
    let id = submit(&as_ada, shell("while :; do echo more; sleep 0.1; done")).await;
    only_attempt(&as_ada, id).await;
    let mut logs = as_ada.logs(LogsRequest {
        job: id,
        task: TaskIndex(0),
        stream: v1::LogStream::Stdout,
        follow: true,
        ..LogsRequest::default()
    });
    assert!(logs.next().await.unwrap().is_some());
    let command = ExecOptions {
        job: id,
        author: "ada".to_owned(),
        command: vec!["cat".to_owned()],
        ..ExecOptions::default()
    };
    // It prints nothing on its own.
    let mut beside = as_ada.exec(command).await.unwrap();
    assert!(beside.next().await.unwrap().is_some());
    drop(cluster.muster(None, &["user", "remove", "ada"]).await.ok());
    let sent_away = async {
        while beside.next().await?.is_some() {}
        Ok::<(), ClientError>(())
    };
    let refused = timeout(TIMEOUT, sent_away).await.unwrap().unwrap_err();
    assert_eq!(refused.reason(), Some("NOT_YOURS"), "{refused}");
    let sent_away = async {
        while logs.next().await?.is_some() {}
        Ok::<(), ClientError>(())
    };
    let refused = timeout(TIMEOUT, sent_away).await.unwrap().unwrap_err();
    // A further call with the token is answered with the fact that it is invalid.
    let reason = refused.reason();
    assert!(
        matches!(reason, Some("NOT_YOURS" | "BAD_TOKEN")),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_certificate_grants_the_role_that_the_cluster_gives_its_name() {
    let cluster = SecuredCluster::start().await;
    cluster.cert(&["client", "carol"]).await;
    let carol = cluster.client_of(Some("carol"), None).await;
    let refused = carol.submit_job(shell("true")).await.unwrap_err();
    assert_eq!(refused.reason(), Some("UNKNOWN_USER"));
    // The token that comes with a role need not be used.
    drop(cluster.add_user(&["carol", "--role", "user"]).await);
    let mut forged = shell("true");
    forged.user = "root".to_owned();
    let job = submit(&carol, forged).await;
    let newest = v1::Consistency::Linearizable;
    let read = carol.get_job(job, 1, newest).await.unwrap().job;
    assert_eq!(read.spec.unwrap().user, "carol");
    let weak = carol.set_queue("mine", None).await.unwrap_err();
    assert_eq!(weak.reason(), Some("ROLE_TOO_WEAK"));
    let args = ["audit", "log", "--user", "carol", "-o", "jsonl"];
    let log = cluster.muster(None, &args).await.ok();
    assert!(
        log.contains("SubmitJob") && log.contains("ROLE_TOO_WEAK"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_on_rate_and_bytes_affect_only_the_user_who_exceeds_them() {
    let limits = json!({
        "calls_per_second_per_user": 5, "calls_at_once_per_user": 10, "request_bytes_per_user_max": 20_000,
    });
    let cluster = SecuredCluster::start_with(&json!({"limits": limits})).await;
    let ada = cluster.add_user(&["ada", "--role", "viewer"]).await;
    let carol = cluster.add_user(&["carol", "--role", "user"]).await;
    let bob = cluster.add_user(&["bob", "--role", "viewer"]).await;
    let anonymous = channel(&cluster.addresses[0], &cluster.tls(None))
        .await
        .unwrap();
    let status = "/muster.v1.ClusterService/GetStatus";
    eventually("this replica knows of the last user", async || {
        (call(&anonymous, status, Some(bob.text())).await.0 == Code::Ok).then_some(())
    })
    .await;
    let mut refused = 0;
    for _ in 0..40 {
        let (code, reason) = call(&anonymous, status, Some(ada.text())).await;
        if code != Code::Ok {
            assert_eq!(
                (code, &*reason),
                (Code::ResourceExhausted, "TOO_MANY_CALLS")
            );
            refused += 1;
        }
    }
    assert!((10..40).contains(&refused), "{refused} of 40 were refused");
    // Others are not held up, nor are workers and replicas; the SDK waits as requested.
    assert_eq!(call(&anonymous, status, Some(bob.text())).await.0, Code::Ok);
    let patient = cluster.client_of(None, Some(ada)).await;
    for _ in 0..20 {
        patient.status(v1::Consistency::Stale).await.unwrap();
    }
    let admin = cluster.client_of(Some("replica-1"), None).await;
    for _ in 0..40 {
        admin.status(v1::Consistency::Stale).await.unwrap();
    }
    // A request that is too large is refused with the limit's name, if it comes from a user.
    let carol = cluster.client_of(None, Some(carol)).await;
    let large = shell(&format!("true {}", "x".repeat(30_000)));
    let refused = carol.submit_job(large.clone()).await.unwrap_err();
    assert_eq!(refused.reason(), Some("TOO_MANY_BYTES"), "{refused}");
    let message = refused.to_string();
    assert!(message.contains("request_bytes_per_user_max"), "{message}");
    carol.submit_job(shell("true")).await.unwrap();
    admin.submit_job(large).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_credential_are_limited_in_size() {
    let cluster = SecuredCluster::start().await;
    let anonymous = channel(&cluster.addresses[0], &cluster.tls(None))
        .await
        .unwrap();
    // Any caller may use these. The text is in the field in which each would look for one.
    for path in [
        "/grpc.health.v1.Health/Check",
        "/muster.v1.JoinService/GetAuthorities",
    ] {
        let answer = async |bytes: usize| {
            let mut grpc = Grpc::new(anonymous.clone());
            grpc.ready().await.unwrap();
            let request = Request::new(v1::JoinRequest {
                request_id: "x".repeat(bytes),
                ..v1::JoinRequest::default()
            });
            let codec: ProstCodec<v1::JoinRequest, ()> = ProstCodec::default();
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(request, path, codec).await;
            answer.map_or_else(|status| ErrorReport::of(&status).reason, |_| String::new())
        };
        assert_eq!(answer(100 << 10).await, "TOO_MANY_BYTES", "{path}");
        assert_eq!(answer(1 << 10).await, "", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_under_a_running_cluster() {
    let mut cluster = SecuredCluster::start().await;
    let admin = cluster.client_of(Some("replica-1"), None).await;
    let before = std::fs::read(cluster.file("replica-1.pem")).unwrap();
    for name in ["replica-1", "replica-2", "replica-3", "gpu-1", "ca"] {
        for end in ["pem", "key"] {
            std::fs::rename(
                cluster.file(&format!("{name}.{end}")),
                cluster.file(&format!("old-{name}.{end}")),
            )
            .unwrap();
        }
    }
    // Another authority and certificates from it: callers with old certificates are refused.
    cluster.cert(&["ca"]).await;
    for replica in ["replica-1", "replica-2", "replica-3"] {
        cluster
            .cert(&["replica", replica, "--name", "127.0.0.1"])
            .await;
    }
    cluster.cert(&["worker", "gpu-1"]).await;
    assert_ne!(
        std::fs::read(cluster.file("replica-1.pem")).unwrap(),
        before
    );
    let old = TlsSettings {
        ca: Some(cluster.file("old-ca.pem")),
        ..TlsSettings::default()
    };
    for address in cluster.addresses.clone() {
        eventually("new certificates are in use", async || {
            let fresh = channel(&address, &cluster.tls(None)).await.ok();
            fresh.filter(|_| true)
        })
        .await;
        eventually("the old authority is not trusted", async || {
            channel(&address, &old).await.is_err().then_some(())
        })
        .await;
    }
    // Existing connections continue, and new ones between all parties are made.
    let renewed = cluster.client_of(Some("replica-2"), None).await;
    let job = submit(&renewed, shell("true")).await;
    let ended = renewed.wait_job(job).await.unwrap();
    assert_eq!(ended.phase(), v1::JobPhase::Succeeded);
    drop(admin);
    assert!(cluster.all_run());
}

#[tokio::test]
async fn processes_that_listen_beyond_loopback_do_not_start_without_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let refused = Run::of(
        muster(&["scheduler", "--listen", "0.0.0.0:0", "--data-dir", data]),
        "",
    )
    .await;
    assert_eq!(refused.code, 64, "{refused:?}");
    for part in [
        "0.0.0.0:0 is not loopback",
        "tls.ca",
        "muster cert",
        "--insecure",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    let far = [
        "worker",
        "--schedulers",
        "10.9.9.9:7400",
        "--data-dir",
        data,
    ];
    let refused = Run::of(muster(&far), "").await;
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(
        refused.stderr.contains("10.9.9.9:7400 is not loopback"),
        "{refused:?}"
    );
    let half = ["scheduler", "--tls-ca", "ca.pem", "--data-dir", data];
    let refused = Run::of(muster(&half), "").await;
    assert!(refused.stderr.contains("tls.certificate"), "{refused:?}");
    let missing = [
        &half[..],
        &["--tls-certificate", "no.pem", "--tls-key", "no.key"],
    ]
    .concat();
    let refused = Run::of(muster(&missing), "").await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("tls.ca: cannot read ca.pem"),
        "{refused:?}"
    );
    // A token is never sent to an unauthenticated server.
    let mut sent = muster(&["job", "list", "--address", "10.9.9.9:7400"]);
    sent.env("MUSTER_TOKEN", Token::random("ada").text());
    let refused = Run::of(sent, "").await;
    assert!(refused.stderr.contains("MUSTER_CACERT"), "{refused:?}");
}

#[tokio::test]
async fn certificates_are_made_once_and_their_keys_are_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let run = async |args: &[&str]| {
        Run::of(muster(&[&["cert"], args, &["--folder", at]].concat()), "").await
    };
    let early = run(&["worker", "gpu-1"]).await;
    assert!(
        early.code == 1 && early.stderr.contains("muster cert ca"),
        "{early:?}"
    );
    drop(run(&["ca"]).await.ok());
    drop(run(&["worker", "gpu-1"]).await.ok());
    for key in ["ca.key", "gpu-1.key"] {
        let mode = std::fs::metadata(folder.path().join(key))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let before = std::fs::read(folder.path().join("gpu-1.key")).unwrap();
    for args in [&["ca"][..], &["worker", "gpu-1"]] {
        let again = run(args).await;
        assert!(
            again.code == 1 && again.stderr.contains("not overwritten"),
            "{again:?}"
        );
    }
    assert_eq!(
        std::fs::read(folder.path().join("gpu-1.key")).unwrap(),
        before
    );
    let strange = run(&["client", "a b"]).await;
    assert!(
        strange.stderr.contains("cannot be used in a certificate"),
        "{strange:?}"
    );
    // A worker with the certificate of another host does not start.
    let settings = serde_json::json!({
        "name": "gpu-2",
        "data_dir": folder.path().join("data"),
        "tls": {
            "ca": folder.path().join("ca.pem"),
            "certificate": folder.path().join("gpu-1.pem"),
            "key": folder.path().join("gpu-1.key"),
        },
        "gpus": "none",
    });
    let config = folder.path().join("config.json");
    std::fs::write(&config, settings.to_string()).unwrap();
    let wrong = Run::of(
        muster(&["worker", "--config", config.to_str().unwrap()]),
        "",
    )
    .await;
    assert!(
        wrong.code == 1 && wrong.stderr.contains("is for worker `gpu-1`"),
        "{wrong:?}"
    );
}
