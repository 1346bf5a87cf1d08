//! The client with replicas that redirect, lose answers, hang, refuse and die.
#![expect(clippy::unwrap_used, reason = "tests")]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Act, Cluster, Running, config, lock, nowhere};
use muster_client::{
    Client, ClientConfig, ClientError, LogUpdate, LogsRequest, TlsMismatch, WatchFilter,
    WatchUpdate,
};
use muster_model::ids::{JobId, Revision, TaskIndex};
use muster_proto::status::{compacted, error, not_leader};
use muster_proto::v1;
use muster_proto::v1::stream_logs_request::Start;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::{Code, Status};

async fn client(addresses: &[&str]) -> Client {
    Client::connect(config(addresses)).await.unwrap()
}

fn two_replicas() -> (Arc<Cluster>, Running, Running) {
    let cluster = Arc::new(Cluster::default());
    let first = Running::start(&cluster).unwrap();
    let second = Running::start(&cluster).unwrap();
    (cluster, first, second)
}

fn events(revision: u64) -> v1::WatchResponse {
    let kind = v1::event::Kind::QueueSet(v1::QueueSet {
        name: revision.to_string(),
    });
    v1::WatchResponse {
        revision,
        time_ms: revision,
        events: vec![v1::Event { kind: Some(kind) }],
    }
}

fn output(offset_bytes: u64, data: &'static str) -> v1::StreamLogsResponse {
    v1::StreamLogsResponse {
        offset_bytes,
        data: data.into(),
        ..v1::StreamLogsResponse::default()
    }
}

#[tokio::test]
async fn a_redirect_leads_to_the_leader_and_is_remembered() {
    let (cluster, follower, leader) = two_replicas();
    follower.react_with([Act::Refuse(not_leader(Some(&leader.address)))]);
    let client = client(&[&follower.address]).await;
    let first = client.submit_job(v1::JobSpec::default()).await.unwrap();
    let second = client.submit_job(v1::JobSpec::default()).await.unwrap();
    assert_eq!((first.job, second.job), (JobId(1), JobId(2)));
    assert_eq!(lock(&cluster.jobs).len(), 2);
    assert_eq!(follower.calls().len(), 1);
    assert_eq!(leader.calls().len(), 2);
}

#[tokio::test]
async fn a_lost_answer_creates_no_second_job() {
    let (cluster, first, second) = two_replicas();
    first.react_with([Act::ServeAndLose(Status::unavailable("going down"))]);
    let client = client(&[&first.address, &second.address]).await;
    let submitted = client.submit_job(v1::JobSpec::default()).await.unwrap();
    assert_eq!(submitted.job, JobId(1));
    assert!(submitted.repeated);
    assert_eq!(lock(&cluster.jobs).len(), 1);
    assert_eq!(
        first.calls(),
        second.calls(),
        "both attempts carry one request id"
    );
}

#[tokio::test]
async fn calls_wait_for_an_election() {
    let (_cluster, first, second) = two_replicas();
    first.react_with([Act::Refuse(not_leader(None)), Act::Refuse(not_leader(None))]);
    second.react_with([Act::Refuse(not_leader(None))]);
    let client = client(&[&first.address, &second.address]).await;
    client.submit_job(v1::JobSpec::default()).await.unwrap();
    assert_eq!(first.calls().len() + second.calls().len(), 4);
}

#[tokio::test]
async fn a_dead_replica_is_skipped() {
    let (_cluster, alive, _) = two_replicas();
    let client = client(&[&nowhere().await.unwrap(), &alive.address]).await;
    let submitted = client.submit_job(v1::JobSpec::default()).await.unwrap();
    assert!(!submitted.repeated);
}

#[tokio::test]
async fn a_hanging_replica_costs_one_short_deadline() {
    let (_cluster, hanging, alive) = two_replicas();
    hanging.react_with([Act::Hang]);
    let client = client(&[&hanging.address, &alive.address]).await;
    let began = Instant::now();
    client.submit_job(v1::JobSpec::default()).await.unwrap();
    let took = began.elapsed();
    assert!(took >= client.config().per_try_deadline, "{took:?}");
    assert!(took < client.config().deadline, "{took:?}");
}

#[tokio::test]
async fn calls_carry_their_deadline_and_streams_have_none() {
    let (_cluster, replica, _) = two_replicas();
    let client = client(&[&replica.address]).await;
    client.submit_job(v1::JobSpec::default()).await.unwrap();
    lock(&replica.replica.watches).push_back(vec![Ok(events(2))]);
    let mut watch = client.watch(Some(Revision(1)), WatchFilter::default());
    watch.next().await.unwrap();
    let deadlines = lock(&replica.replica.deadlines).clone();
    let [Some(sent), None] = &deadlines[..] else {
        panic!("{deadlines:?}");
    };
    // Connecting takes a part of the half second of an attempt.
    let sent: u64 = sent.strip_suffix('u').unwrap().parse().unwrap();
    assert!((100_000..=500_000).contains(&sent), "{sent}");
}

#[tokio::test]
async fn an_expired_deadline_is_not_an_answer_of_a_replica() {
    let (_cluster, replica, _) = two_replicas();
    let over = || Act::Refuse(Status::cancelled("Timeout expired"));
    replica.react_with([over(), over(), over()]);
    let config = ClientConfig {
        discover: false,
        deadline: Duration::from_millis(200),
        ..config(&[&replica.address])
    };
    let client = Client::connect(config).await.unwrap();
    let failed = client.submit_job(v1::JobSpec::default()).await;
    let Err(ClientError::DeadlineExceeded { tried, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert!(tried.iter().all(|it| !it.is_answer), "{tried:?}");
    // It was not called again: the attempt lasted until its timeout.
    assert_eq!(replica.calls().len(), 1);
}

#[tokio::test]
async fn an_unreachable_cluster_is_reported_with_every_address() {
    let (one, two) = (nowhere().await.unwrap(), nowhere().await.unwrap());
    let mut config = config(&[&one, &two]);
    config.unreachable_deadline = Duration::ZERO;
    let client = Client::connect(config).await.unwrap();
    let error = client.submit_job(v1::JobSpec::default()).await.unwrap_err();
    let ClientError::Unreachable { tried, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(tried.len(), 2);
    let text = error.to_string();
    assert!(text.contains(&one) && text.contains(&two), "{text}");
    assert!(text.contains("onnection refused"), "{text}");
}

#[tokio::test]
async fn a_replica_that_requires_tls_is_reported_at_once() {
    // Answer of a TLS server to anything but TLS: an alert.
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // Every HTTP/2 client sends at least this much first.
            if connection.read_exact(&mut [0; 24]).await.is_ok() {
                drop(connection.write_all(&ALERT).await);
            }
        }
    });
    let mut config = config(&[&address]);
    config.unreachable_deadline = Duration::ZERO;
    let client = Client::connect(config).await.unwrap();
    let error = client.submit_job(v1::JobSpec::default()).await.unwrap_err();
    assert_eq!(error.tls_mismatch(), Some(TlsMismatch::PeerEncrypts));
    assert_eq!(
        error.to_string(),
        format!(
            "cannot submit the job: no scheduler replica is reachable \
             ({address}: it speaks TLS, and this side does not)"
        )
    );
}

#[tokio::test]
async fn calls_to_a_cluster_without_a_leader_fail_at_the_deadline() {
    let (_cluster, replica, _) = two_replicas();
    replica.react_with((0..10_000).map(|_| Act::Refuse(not_leader(None))));
    let mut config = config(&[&replica.address]);
    config.deadline = Duration::from_millis(200);
    let client = Client::connect(config).await.unwrap();
    let error = client.submit_job(v1::JobSpec::default()).await.unwrap_err();
    assert!(
        matches!(error, ClientError::DeadlineExceeded { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("knows no leader"), "{error}");
}

#[tokio::test]
async fn a_refusal_is_returned_at_once_with_its_details() {
    let (_cluster, replica, _) = two_replicas();
    let facts = [("queue", "night".to_owned()), ("limit", "3".to_owned())];
    let refusal = error(
        Code::ResourceExhausted,
        "QUEUE_FULL",
        "queue `night` is full",
        &facts,
    );
    replica.react_with([Act::Refuse(refusal)]);
    let client = client(&[&replica.address]).await;
    let error = client.submit_job(v1::JobSpec::default()).await.unwrap_err();
    assert_eq!(error.reason(), Some("QUEUE_FULL"));
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.metadata["limit"], "3");
    assert_eq!(
        error.to_string(),
        "cannot submit the job: queue `night` is full"
    );
    assert_eq!(replica.calls().len(), 1);
}

#[tokio::test]
async fn discovery_learns_members_and_leader() {
    let (cluster, first, second) = two_replicas();
    lock(&cluster.leader).clone_from(&second.address);
    let mut config = config(&[&first.address]);
    config.discover = true;
    let client = Client::connect(config).await.unwrap();
    assert_eq!(
        client.addresses(),
        [first.address.clone(), second.address.clone()]
    );
    client.submit_job(v1::JobSpec::default()).await.unwrap();
    assert_eq!(second.calls().len(), 1);
}

#[tokio::test]
async fn pages_are_read_until_enough() {
    let (_cluster, replica, _) = two_replicas();
    let client = client(&[&replica.address]).await;
    let request = v1::ListJobsRequest::default();
    let (revision, jobs) = client.list_jobs(request, 3).await.unwrap();
    let ids: Vec<u64> = jobs.iter().map(|job| job.id).collect();
    assert_eq!((revision, ids), (Revision(7), vec![0, 1, 2]));
    assert_eq!(replica.calls(), ["list 3 \"\"", "list 1 \"2\""]);
}

#[tokio::test]
async fn a_watch_continues_at_another_replica_without_gap_or_duplicate() {
    let (_cluster, first, second) = two_replicas();
    let dying = Err(Status::unavailable("replica stops"));
    let bookmark = v1::WatchResponse {
        revision: 4,
        ..v1::WatchResponse::default()
    };
    lock(&first.replica.watches).push_back(vec![Ok(events(2)), Ok(events(3)), Ok(bookmark), dying]);
    // A replica that sends too much must not make the client deliver duplicates.
    lock(&second.replica.watches).push_back(vec![Ok(events(3)), Ok(events(6)), Ok(events(7))]);
    let client = client(&[&first.address, &second.address]).await;
    first.react_with([Act::Serve, Act::Refuse(Status::unavailable("gone"))]);
    let mut watch = client.watch(Some(Revision(1)), WatchFilter::default());
    let mut seen = Vec::new();
    while seen.last() != Some(&"events 7".to_owned()) {
        seen.push(match watch.next().await.unwrap() {
            WatchUpdate::Events { revision, .. } => format!("events {revision}"),
            WatchUpdate::Bookmark { revision } => format!("bookmark {revision}"),
            WatchUpdate::Resumed { cause, .. } => format!("resumed: {cause}"),
        });
    }
    let expected = [
        "events 2",
        "events 3",
        "bookmark 4",
        "resumed: replica stops",
        "events 6",
        "events 7",
    ];
    assert_eq!(seen, expected);
    assert_eq!(watch.position(), Some(Revision(7)));
    assert_eq!(second.calls(), ["watch Some(4)"]);
}

#[tokio::test]
async fn a_watch_survives_the_death_of_its_replica() {
    let (_cluster, mut first, second) = two_replicas();
    lock(&first.replica.watches).push_back(vec![Ok(events(2))]);
    lock(&second.replica.watches).push_back(vec![Ok(events(3))]);
    let client = client(&[&first.address, &second.address]).await;
    let mut watch = client.watch(Some(Revision(1)), WatchFilter::default());
    let update = watch.next().await.unwrap();
    assert!(
        matches!(
            update,
            WatchUpdate::Events {
                revision: Revision(2),
                ..
            }
        ),
        "{update:?}"
    );
    first.kill();
    let update = watch.next().await.unwrap();
    assert!(matches!(update, WatchUpdate::Resumed { .. }), "{update:?}");
    let update = watch.next().await.unwrap();
    assert!(
        matches!(
            update,
            WatchUpdate::Events {
                revision: Revision(3),
                ..
            }
        ),
        "{update:?}"
    );
}

#[tokio::test]
async fn compacted_events_are_an_error_and_never_a_gap() {
    let (_cluster, replica, _) = two_replicas();
    replica.react_with([Act::Refuse(compacted(Revision(90)))]);
    let client = client(&[&replica.address]).await;
    let mut watch = client.watch(Some(Revision(5)), WatchFilter::default());
    let error = watch.next().await.unwrap_err();
    let ClientError::Compacted { asked, compacted } = error else {
        panic!("{error}");
    };
    assert_eq!((asked, compacted), (Revision(5), Revision(90)));
}

#[tokio::test]
async fn waiting_for_a_job_reads_it_again_after_its_events() {
    let (_cluster, replica, _) = two_replicas();
    lock(&replica.replica.phases).extend([v1::JobPhase::Running, v1::JobPhase::Failed]);
    lock(&replica.replica.watches).push_back(vec![Ok(events(2))]);
    let client = client(&[&replica.address]).await;
    let detail = client.wait_job(JobId(1)).await.unwrap();
    assert_eq!(detail.phase(), v1::JobPhase::Failed);
    assert_eq!(replica.calls(), ["get 1", "watch Some(1)", "get 1"]);
}

#[tokio::test]
async fn output_resumes_at_the_byte_where_it_was_interrupted() {
    let (_cluster, first, second) = two_replicas();
    let begin = v1::StreamLogsResponse {
        attempt: 2,
        host: "node01".to_owned(),
        ..output(10, "hello ")
    };
    let dying = Err(Status::unavailable("replica stops"));
    lock(&first.replica.logs).push_back(vec![Ok(begin), dying]);
    // Two bytes that were delivered before are sent again.
    lock(&second.replica.logs).push_back(vec![Ok(output(14, "o world"))]);
    first.react_with([Act::Serve, Act::Refuse(Status::unavailable("gone"))]);
    let client = client(&[&first.address, &second.address]).await;
    let mut logs = client.logs(LogsRequest {
        job: JobId(1),
        task: TaskIndex(0),
        stream: v1::LogStream::Stdout,
        follow: true,
        tail_lines: Some(1),
        ..LogsRequest::default()
    });
    let mut text = String::new();
    let mut notes = Vec::new();
    while text.len() < "hello world".len() {
        match logs.next().await.unwrap().unwrap() {
            LogUpdate::Begun { attempt, host } => notes.push(format!("{attempt} on {host}")),
            LogUpdate::Data { data, .. } => text.push_str(std::str::from_utf8(&data).unwrap()),
            LogUpdate::Resumed { cause, .. } => notes.push(cause),
            LogUpdate::Line { .. } => panic!("the worker of this test knows no lines"),
        }
    }
    assert_eq!(text, "hello world");
    assert_eq!(notes, ["2 on node01", "replica stops"]);
    let resumed = ["logs 2 Some(OffsetBytes(16))"];
    assert_eq!(second.calls(), resumed);
}

#[tokio::test]
async fn output_that_is_not_followed_fails_at_the_deadline_of_a_call() {
    let (_cluster, replica, _) = two_replicas();
    replica.react_with((0..10_000).map(|_| Act::Refuse(not_leader(None))));
    let mut config = config(&[&replica.address]);
    config.deadline = Duration::from_millis(200);
    let deadline = config.deadline;
    config.reconnect_deadline = Duration::from_secs(3);
    let client = Client::connect(config).await.unwrap();
    let mut logs = client.logs(LogsRequest {
        job: JobId(1),
        ..LogsRequest::default()
    });
    let error = logs.next().await.unwrap_err();
    assert!(
        matches!(error, ClientError::DeadlineExceeded { deadline: reported, .. } if reported == deadline),
        "{error}"
    );
}

#[tokio::test]
async fn output_interrupted_before_its_first_byte_restarts_at_the_requested_position() {
    let position = v1::LogPosition {
        stdout_bytes: 10,
        stderr_bytes: 4,
    };
    let timed = v1::StreamLogsResponse {
        position: Some(position),
        ..v1::StreamLogsResponse::default()
    };
    for (nothing, start) in [
        (timed, Start::Position(position)),
        (output(10, ""), Start::OffsetBytes(10)),
    ] {
        let (_cluster, first, second) = two_replicas();
        let begin = v1::StreamLogsResponse {
            attempt: 2,
            host: "node01".to_owned(),
            ..nothing
        };
        let dying = Err(Status::unavailable("replica stops"));
        lock(&first.replica.logs).push_back(vec![Ok(begin), dying]);
        lock(&second.replica.logs).push_back(vec![Ok(output(10, "late"))]);
        first.react_with([Act::Serve, Act::Refuse(Status::unavailable("gone"))]);
        let client = client(&[&first.address, &second.address]).await;
        let mut logs = client.logs(LogsRequest {
            job: JobId(1),
            task: TaskIndex(0),
            stream: v1::LogStream::Stdout,
            follow: true,
            tail_lines: Some(1),
            ..LogsRequest::default()
        });
        let mut updates = Vec::new();
        for _ in 0..3 {
            updates.push(logs.next().await.unwrap().unwrap());
        }
        // An update that only carries the position is not delivered.
        assert!(matches!(&updates[0], LogUpdate::Begun { attempt: 2, .. }));
        assert!(matches!(&updates[1], LogUpdate::Resumed { .. }));
        assert!(matches!(&updates[2], LogUpdate::Data { data, .. } if &**data == b"late"));
        assert_eq!(second.calls(), [format!("logs 2 {:?}", Some(start))]);
    }
}

fn head(size_bytes: u64) -> v1::ExportStateResponse {
    let head = v1::ExportHead {
        revision: 7,
        size_bytes,
        ..v1::ExportHead::default()
    };
    let part = v1::export_state_response::Part::Head(head);
    v1::ExportStateResponse { part: Some(part) }
}

fn chunk(bytes: &'static [u8]) -> v1::ExportStateResponse {
    let part = v1::export_state_response::Part::Chunk(bytes.into());
    v1::ExportStateResponse { part: Some(part) }
}

#[tokio::test]
async fn an_interrupted_export_restarts() {
    let (_cluster, first, second) = two_replicas();
    let dying = Err(Status::unavailable("going down"));
    lock(&first.replica.exports).push_back(vec![Ok(head(4)), Ok(chunk(b"ab")), dying]);
    lock(&first.replica.exports).push_back(vec![Ok(head(4)), Ok(chunk(b"wxyz"))]);
    lock(&second.replica.exports).push_back(vec![Ok(head(4)), Ok(chunk(b"wx")), Ok(chunk(b"yz"))]);
    let client = client(&[&first.address, &second.address]).await;
    let mut last = 0;
    let export = client
        .export_state(&mut |progress| last = progress.done_bytes)
        .await
        .unwrap();
    assert_eq!(
        (&*export.bytes, export.head.revision, last),
        (&b"wxyz"[..], 7, 4)
    );
}

#[tokio::test]
async fn a_truncated_export_is_not_accepted_as_complete() {
    let cluster = Arc::new(Cluster::default());
    let replica = Running::start(&cluster).unwrap();
    for _ in 0..3 {
        lock(&replica.replica.exports).push_back(vec![Ok(head(4)), Ok(chunk(b"ab"))]);
    }
    let client = client(&[&replica.address]).await;
    let error = client.export_state(&mut |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("ended early"), "{error}");
}

#[tokio::test]
async fn a_cluster_without_exports_is_recognized() {
    let cluster = Arc::new(Cluster::default());
    let replica = Running::start(&cluster).unwrap();
    replica.react_with([Act::Refuse(Status::unimplemented(""))]);
    let client = client(&[&replica.address]).await;
    let error = client.export_state(&mut |_| ()).await.unwrap_err();
    assert!(error.is_unknown_request(), "{error}");
}
