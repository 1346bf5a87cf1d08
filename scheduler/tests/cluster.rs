//! Integration test with three replicas and fake workers, over the public interface.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::{Consistency, HostHealth, JobPhase};
use muster_scheduler::{BackupSettings, SchedulerConfig};
use support::{
    FakeWorker, Group, PRINTED_BYTES, TIMINGS, WorkerOptions, eventually, gang, job, printed_at,
};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::time::{Duration, Instant, timeout};
use tonic::{Code, Status};

const REQUEST: &str = "5f0c8a4e-97f3-4b6a-9a51-0d5f0f6f2a11";
/// Timeout of an impatient caller: shorter than a replica's retries.
const HASTE: Duration = Duration::from_millis(300);

async fn worker_of(group: &Group, number: u32) -> FakeWorker {
    let worker = FakeWorker::start(WorkerOptions::host(number), group.addresses());
    eventually("the worker is welcome", async || {
        worker.look(|seen| (seen.welcomes > 0).then_some(()))
    })
    .await;
    worker
}

async fn reaches(group: &Group, through: u64, job: u64, phase: JobPhase) {
    let client = group.client(through);
    let what = format!("job {job} is {phase:?}");
    eventually(&what, async || {
        (client.phase(job).await == Some(phase)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_submitted_to_a_follower_is_placed_started_and_finished() {
    let group = Group::start().await;
    let worker = worker_of(&group, 1).await;
    let follower = group.follower().await;
    let submitted = group
        .client(follower)
        .submit(REQUEST, gang("train", 4))
        .await
        .unwrap();
    assert!(!submitted.repeated);
    reaches(&group, follower, submitted.job_id, JobPhase::Running).await;
    eventually("the worker holds the gang", async || {
        worker.look(|seen| (seen.tasks.len() == 4).then_some(()))
    })
    .await;

    worker.finish_tasks(0);
    reaches(&group, follower, submitted.job_id, JobPhase::Succeeded).await;
    eventually("the worker is ordered to forget the gang", async || {
        worker.look(|seen| seen.tasks.is_empty().then_some(()))
    })
    .await;
    for id in group.alive() {
        let status = group
            .client(id)
            .status(Consistency::Linearizable)
            .await
            .unwrap();
        assert_eq!(status.gpus.unwrap().free, 8, "replica {id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_submission_is_one_job_on_every_replica() {
    let group = Group::start().await;
    let mut answers = Vec::new();
    for id in group.alive() {
        answers.push(
            group
                .client(id)
                .submit(REQUEST, job("once", 1))
                .await
                .unwrap(),
        );
    }
    assert!(
        answers
            .iter()
            .all(|answer| answer.job_id == answers[0].job_id),
        "{answers:?}"
    );
    assert_eq!(answers.iter().filter(|answer| answer.repeated).count(), 2);

    let other = group
        .client(1)
        .submit(REQUEST, job("another", 2))
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    assert_eq!(ErrorReport::of(&other).reason, "REQUEST_REUSED");
}

#[tokio::test(flavor = "multi_thread")]
async fn running_work_and_writes_survive_a_killed_leader() {
    let mut group = Group::start().await;
    let worker = worker_of(&group, 1).await;
    let leader = group.leader().await;
    let submitted = group
        .client(leader)
        .submit(REQUEST, gang("train", 8))
        .await
        .unwrap();
    reaches(&group, leader, submitted.job_id, JobPhase::Running).await;
    let epochs = eventually("the worker holds the gang", async || {
        worker.look(|seen| (seen.tasks.len() == 8).then(|| seen.tasks.clone()))
    })
    .await;

    group.kill(leader);
    let survivor = group.alive()[0];
    // No wait for a leader here: the replica itself waits for one.
    let repeated = group
        .client(survivor)
        .submit(REQUEST, gang("train", 8))
        .await
        .unwrap();
    assert_eq!(repeated.job_id, submitted.job_id);
    assert!(repeated.repeated);
    eventually("the worker is welcome at the new leader", async || {
        worker.look(|seen| (seen.welcomes > 1 && seen.acknowledged > 2).then_some(()))
    })
    .await;
    assert_eq!(
        worker.look(|seen| seen.tasks.clone()),
        epochs,
        "the gang was not touched"
    );
    worker.finish_tasks(0);
    reaches(&group, survivor, submitted.job_id, JobPhase::Succeeded).await;
}

/// Kills all replicas but one.
async fn leave_alone(group: &mut Group, left: u64) {
    for id in group.alive() {
        if id != left {
            let address = group.address(id);
            group.kill(id);
            eventually("it is gone", async || {
                TcpStream::connect(&address).await.is_err().then_some(())
            })
            .await;
        }
    }
}

/// The reason of a failure that asks for a retry.
fn retryable(failed: &Status) -> String {
    assert_eq!(failed.code(), Code::Unavailable, "{failed:?}");
    ErrorReport::of(failed).reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_majority_reports_it_before_the_requests_deadline() {
    let mut group = Group::start().await;
    let left = group.leader().await;
    leave_alone(&mut group, left).await;
    let client = group.client(left);
    let waits = Duration::from_millis(SchedulerConfig::default().limits.request_ms_default);
    // The result is unknown, if it was proposed before the lease ended.
    let submitted = timeout(waits / 2, client.submit(REQUEST, job("cut-off", 1)))
        .await
        .unwrap()
        .unwrap_err();
    let reason = retryable(&submitted);
    assert!(
        ["UNKNOWN_OUTCOME", "NOT_LEADER"].contains(&&*reason),
        "{reason}"
    );
    let read = timeout(waits / 2, client.job(1)).await.unwrap();
    assert_eq!(retryable(&read.unwrap_err()), "NOT_LEADER");
    let later = timeout(waits / 2, client.submit(REQUEST, job("cut-off", 1)));
    assert_eq!(retryable(&later.await.unwrap().unwrap_err()), "NOT_LEADER");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_follower_reports_it_and_is_not_healthy() {
    let mut group = Group::start().await;
    let left = group.follower().await;
    let client = group.client(left);
    eventually("it serves", async || {
        (client.is_serving().await == Some(true)).then_some(())
    })
    .await;
    leave_alone(&mut group, left).await;
    let waits = Duration::from_millis(SchedulerConfig::default().limits.request_ms_default);
    let read = timeout(waits / 2, client.job(1)).await.unwrap();
    assert_eq!(retryable(&read.unwrap_err()), "NOT_LEADER");
    let submitted = timeout(waits / 2, client.submit(REQUEST, job("cut-off", 1)))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(retryable(&submitted), "NOT_LEADER");
    assert_eq!(client.is_serving().await, Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_continues_the_silence_measured_by_the_killed_one() {
    let mut group = Group::start().await;
    let worker = worker_of(&group, 1).await;
    eventually("heartbeats are acknowledged", async || {
        worker.look(|seen| (seen.acknowledged > 3).then_some(()))
    })
    .await;
    let silent_since_ms = wall_ms();
    drop(worker);
    // Half of the silence is left for the election, so that a slow one does not count.
    tokio::time::sleep(Duration::from_millis(TIMINGS.lost_ms / 2)).await;
    let leader = group.leader().await;
    group.kill(leader);
    let client = group.client(group.alive()[0]);
    let lost_at_ms = eventually("the host is lost", async || {
        let host = client.host("node1").await?;
        (host.health() == HostHealth::Lost).then_some(host.health_since_ms)
    })
    .await;
    // By the log's timestamp: the time of this test's polls does not count. The replicas read the same clock.
    let detected_ms = lost_at_ms.saturating_sub(silent_since_ms);
    // Promise P2: the same time as without the leader's death, 20 % more at most.
    assert!(detected_ms <= TIMINGS.lost_ms * 6 / 5, "{detected_ms} ms");
    assert!(
        detected_ms + 500 > TIMINGS.lost_ms,
        "{detected_ms} ms is too early"
    );
}

/// The wall clock, in milliseconds since 1970, as the log is stamped.
fn wall_ms() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_continues_at_another_replica_without_a_gap() {
    let mut group = Group::start().await;
    let leader = group.leader().await;
    let mut seen = Vec::new();
    let mut position = 0;
    let mut watched = leader;
    let mut submitted = 0;
    for round in 0..2 {
        let client = group.client(watched);
        let mut watch = client.watch(Some(position)).await.unwrap();
        for _ in 0..20 {
            submitted += 1;
            let request = format!("watch-{submitted}");
            client.submit(&request, job("watched", 1)).await.unwrap();
        }
        while seen.len() < submitted {
            let next = timeout(support::TIMEOUT, watch.message())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            assert!(
                next.revision >= position,
                "{} after {position}",
                next.revision
            );
            position = next.revision;
            seen.extend(
                next.events
                    .iter()
                    .filter_map(|event| match event.kind.as_ref()? {
                        v1::event::Kind::JobSubmitted(event) => Some(event.job_id),
                        _ => None,
                    }),
            );
        }
        if round == 0 {
            // Written without a watcher; the watch resumes at a surviving replica.
            group.kill(leader);
            watched = group.alive()[0];
            submitted += 1;
            group
                .client(watched)
                .submit("unwatched", job("unwatched", 1))
                .await
                .unwrap();
        }
    }
    let listed = group.client(watched).jobs();
    let request = v1::ListJobsRequest {
        page_size: 1_000,
        ..v1::ListJobsRequest::default()
    };
    let mut listed = listed
        .clone()
        .list_jobs(request)
        .await
        .unwrap()
        .into_inner();
    listed.jobs.reverse();
    let jobs: Vec<u64> = listed.jobs.iter().map(|job| job.id).collect();
    assert_eq!(seen, jobs, "each job once, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_of_a_connected_host_is_refused() {
    let group = Group::start().await;
    let older = worker_of(&group, 1).await;
    let options = WorkerOptions {
        worker_id: "00000000-0000-0000-0000-00000000beef".to_owned(),
        first_gpu: 900,
        ..WorkerOptions::host(1)
    };
    let other = FakeWorker::start(options, group.addresses());
    let rejected = eventually("another worker of the same name is refused", async || {
        other.look(|seen| seen.rejected.clone())
    })
    .await;
    assert_eq!(rejected.reason, "HOST_IDENTITY_TAKEN");
    assert!(rejected.retry, "the other one may stop");
    drop(other);

    let options = WorkerOptions {
        incarnation: 2,
        ..WorkerOptions::host(1)
    };
    let newer = FakeWorker::start(options, group.addresses());
    let rejected = eventually("a copy of a worker that is alive is refused", async || {
        newer.look(|seen| seen.rejected.clone())
    })
    .await;
    assert_eq!(rejected.reason, "HOST_IDENTITY_TAKEN");
    assert!(rejected.retry, "the other one may stop");
    drop(older);
    eventually("the newer one's heartbeats are acknowledged", async || {
        newer.look(|seen| (seen.acknowledged > 2).then_some(()))
    })
    .await;

    let older = FakeWorker::start(WorkerOptions::host(1), group.addresses());
    let rejected = eventually("the earlier start is refused as stale", async || {
        older.look(|seen| seen.rejected.clone())
    })
    .await;
    assert_eq!(rejected.reason, "STALE_INCARNATION");
    assert!(!rejected.retry, "it never becomes the newest");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_refused_by_field_at_every_replica() {
    let group = Group::start().await;
    for id in group.alive() {
        let client = group.client(id);
        for (count, field) in [(0, "groups"), (1_000_000_000, "groups")] {
            let error = client.submit("bad", job("bad", count)).await.unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            let violations = ErrorReport::of(&error).violations;
            assert!(
                violations.iter().any(|(name, _)| name.contains(field)),
                "{violations:?}"
            );
        }
        let queue = v1::JobSpec {
            queue: Some("nowhere".to_owned()),
            ..job("bad", 1)
        };
        let error = client.submit("queue", queue).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert_eq!(ErrorReport::of(&error).reason, "UNKNOWN_QUEUE");
        let error = client.submit("", job("bad", 1)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let mut large = job("large", 1);
        large.groups[0].command.push("x".repeat(10 << 20));
        let error = client.submit("large", large).await.unwrap_err();
        assert!(error.message().contains("SPEC_BYTES_MAX"), "{error}");
        let error = client.job(u64::MAX).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        let page = v1::ListJobsRequest {
            page_token: "x".to_owned(),
            ..v1::ListJobsRequest::default()
        };
        let error = client.jobs().list_jobs(page).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_transfers_leadership_and_keeps_acknowledged_writes() {
    let mut group = Group::start().await;
    let leader = group.leader().await;
    let submitted = group
        .client(leader)
        .submit(REQUEST, job("kept", 1))
        .await
        .unwrap();
    group.stop(leader).await.unwrap();
    let survivor = group.alive()[0];
    let kept = group.client(survivor).job(submitted.job_id).await.unwrap();
    assert_eq!(kept.job.unwrap().spec.unwrap().name, "kept");
    assert_ne!(group.leader().await, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_hangs_does_not_hold_up_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    // Opening or reading it blocks until there is a writer, as for a file on a dead network mount.
    let key_file = folder.path().join("key");
    let made = std::process::Command::new("mkfifo").arg(&key_file).status();
    assert!(made.unwrap().success());
    let backup = BackupSettings {
        dir: Some(folder.path().join("backups")),
        key_file: Some(key_file.clone()),
        ..BackupSettings::default()
    };
    let mut group = Group::start_alone(&backup).await;
    let leader = group.leader().await;
    // It can be opened for writing only while it is read.
    let writer = eventually("a backup waits for its key", async || {
        pipe::OpenOptions::new().open_sender(&key_file).ok()
    })
    .await;
    let stopped = timeout(support::TIMEOUT, group.stop(leader)).await;
    // The reading thread is released in any case.
    drop(writer);
    stopped.unwrap().unwrap();
}

/// The block of the only host.
fn block_of_only_host(force: bool) -> v1::BlockRequest {
    v1::BlockRequest {
        request_id: "block".to_owned(),
        target: Some(v1::BlockTarget {
            target: Some(v1::block_target::Target::Host("node1".to_owned())),
        }),
        reason: "noisy fan".to_owned(),
        author: "ada".to_owned(),
        force,
        ..v1::BlockRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_caller_goes_away_is_audited() {
    let mut group = Group::start().await;
    let survivor = group.follower().await;
    for id in group.alive() {
        if id != survivor {
            group.kill(id);
        }
    }
    // There is no majority, so the replica is still retrying when the caller gives up.
    let client = group.client(survivor);
    let record = eventually("the call is recorded", async || {
        let call = client.submit(REQUEST, job("train", 1));
        timeout(HASTE, call).await.unwrap_err();
        let records = client.audit_log().await.ok()?;
        records.into_iter().find(|it| it.method == "SubmitJob")
    })
    .await;
    assert_eq!(
        (&*record.user, &*record.code, &*record.reason),
        ("ada", "Cancelled", "UNKNOWN_OUTCOME")
    );
    assert_eq!(
        (record.replica_id, &*record.request_id),
        (survivor, REQUEST)
    );
    assert!(record.time_ms > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_host_of_a_pool_is_blocked_by_force_alone() {
    let group = Group::start().await;
    let _worker = worker_of(&group, 1).await;
    let client = group.client(group.follower().await);
    let dry_run = v1::BlockRequest {
        dry_run: true,
        ..block_of_only_host(false)
    };
    let looked = client.admin().block(dry_run).await.unwrap().into_inner();
    let impact = looked.impact.unwrap();
    assert!(impact.takes_last && impact.takes_work);
    assert_eq!((impact.pool_hosts_left, impact.pool_gpus_left), (0, 0));
    assert_eq!(impact.replaces, None);
    let block = block_of_only_host(false);
    let refused = client.admin().block(block).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("is the last of pool"),
        "{refused}"
    );
    let forced = client.admin().block(block_of_only_host(true)).await;
    assert!(forced.unwrap().into_inner().impact.unwrap().takes_last);
    let repetition = v1::BlockRequest {
        request_id: "again".to_owned(),
        ..block_of_only_host(true)
    };
    let again = client.admin().block(repetition).await.unwrap().into_inner();
    let impact = again.impact.unwrap();
    assert_eq!(impact.replaces.unwrap().reason, "noisy fan");
    assert!(!impact.takes_work);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_host_takes_no_work_and_the_job_knows_why_it_waits() {
    let group = Group::start().await;
    let _worker = worker_of(&group, 1).await;
    let follower = group.follower().await;
    let client = group.client(follower);
    let block = block_of_only_host(true);
    let blocked = client.admin().block(block).await.unwrap().into_inner();
    assert_eq!(blocked.impact.unwrap().gpus, 8);
    let submitted = client.submit(REQUEST, job("waits", 1)).await.unwrap();
    let request = v1::ExplainJobRequest {
        job_id: submitted.job_id,
        consistency: 0,
        ..v1::ExplainJobRequest::default()
    };
    let explained = client
        .jobs()
        .explain_job(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(explained.phase(), JobPhase::Queued);
    let remedy = explained.remedy.and_then(|remedy| remedy.kind);
    assert!(
        matches!(&remedy, Some(v1::remedy::Kind::Unblock(unblock)) if unblock.targets.len() == 1),
        "{remedy:?}"
    );
    let unblock = v1::UnblockRequest {
        request_id: "unblock".to_owned(),
        target: Some(v1::BlockTarget {
            target: Some(v1::block_target::Target::Host("node1".to_owned())),
        }),
        author: "ada".to_owned(),
        planned: false,
    };
    client.admin().unblock(unblock).await.unwrap();
    reaches(&group, follower, submitted.job_id, JobPhase::Running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_receives_complete_output_through_a_follower() {
    let group = Group::start().await;
    let _worker = worker_of(&group, 1).await;
    let follower = group.follower().await;
    let client = group.client(follower);
    let submitted = client.submit(REQUEST, gang("prints", 2)).await.unwrap();
    reaches(&group, follower, submitted.job_id, JobPhase::Running).await;
    let request = v1::StreamLogsRequest {
        job_id: submitted.job_id,
        task: 1,
        ..v1::StreamLogsRequest::default()
    };
    // The worker may be on its way to another replica: the reader then retries from its position.
    let mut position = 0;
    eventually("the output is read whole", async || {
        let from = v1::StreamLogsRequest {
            start: Some(v1::stream_logs_request::Start::OffsetBytes(position)),
            ..request
        };
        let mut output = client.jobs().stream_logs(from).await.ok()?.into_inner();
        while let Some(piece) = output.message().await.ok()? {
            assert_eq!(piece.offset_bytes, position, "a gap or a repetition");
            if position == 0 {
                assert_eq!((piece.host.as_str(), piece.attempt), ("node1", 1));
            }
            assert!(
                piece
                    .data
                    .iter()
                    .zip(position..)
                    .all(|(byte, at)| *byte == printed_at(at))
            );
            position += piece.data.len() as u64;
            // The worker does not wait for its reader.
            tokio::task::yield_now().await;
        }
        Some(())
    })
    .await;
    assert_eq!(position, PRINTED_BYTES);

    let unknown = v1::StreamLogsRequest { task: 7, ..request };
    let error = client.jobs().stream_logs(unknown).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_injected_fault_takes_out_its_gpu_and_no_other() {
    let group = Group::start().await;
    let worker = worker_of(&group, 1).await;
    let follower = group.follower().await;
    let client = group.client(follower);
    let submitted = client.submit(REQUEST, gang("train", 8)).await.unwrap();
    reaches(&group, follower, submitted.job_id, JobPhase::Running).await;
    let gpu = client.host("node1").await.unwrap().gpus[3].uuid.clone();
    let inject = |fault: Option<v1::GpuFault>| v1::InjectFaultRequest {
        host: "node1".to_owned(),
        injection: Some(v1::Injection {
            what: Some(v1::injection::What::Signal(v1::InjectedSignal {
                gpu: gpu.clone(),
                fault,
            })),
        }),
    };
    let fault = v1::GpuFault {
        signal: "xid-79".to_owned(),
        detail: "fell off the bus".to_owned(),
    };
    client
        .admin()
        .inject_fault(inject(Some(fault)))
        .await
        .unwrap();
    eventually("the gang leaves the broken GPU and waits", async || {
        let is_queued = client.phase(submitted.job_id).await == Some(JobPhase::Queued);
        let status = client.status(Consistency::Linearizable).await.ok()?;
        let gpus = status.gpus?;
        (is_queued && (gpus.faulted, gpus.free) == (1, 7)).then_some(())
    })
    .await;
    client.admin().inject_fault(inject(None)).await.unwrap();
    reaches(&group, follower, submitted.job_id, JobPhase::Running).await;
    assert_eq!(worker.look(|seen| seen.tasks.len()), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_leader() {
    let group = Group::start().await;
    let page = group.metrics(group.leader().await).await;
    for name in [
        "muster_raft_is_leader",
        "muster_scheduler_jobs",
        "# HELP muster_scheduler_gpus",
    ] {
        assert!(page.contains(name), "{name} is missing in {page}");
    }
}

/// The metrics of a replica for the calls of one method.
fn calls_of(page: &str, service: &str, method: &str) -> Vec<String> {
    let labels = format!("service=\"{service}\",method=\"{method}\"");
    let lines = page.lines().filter(|line| {
        line.starts_with("muster_scheduler_requests_total") && line.contains(&labels)
    });
    lines.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_counted_by_its_method_and_answer() {
    let group = Group::start().await;
    let leader = group.leader().await;
    let client = group.client(leader);
    client.status(Consistency::Linearizable).await.unwrap();
    client.submit(REQUEST, job("counted", 1)).await.unwrap();
    assert_eq!(client.phase(4_000).await, None, "there is no such job");
    let made_up = client
        .call_unknown_method("/muster.v1.JobService/Made-Up")
        .await;
    assert_eq!(made_up.unwrap_err().code(), Code::Unimplemented);

    let page = group.metrics(leader).await;
    for (service, method, code) in [
        ("muster.v1.ClusterService", "GetStatus", "Ok"),
        ("muster.v1.JobService", "SubmitJob", "Ok"),
        ("muster.v1.JobService", "GetJob", "NotFound"),
        ("unknown", "unknown", "Unimplemented"),
        // Initialized at 0: a rate must show the first failure.
        ("muster.v1.AdminService", "Block", "Unavailable"),
    ] {
        let calls = calls_of(&page, service, method);
        let code = format!("code=\"{code}\"");
        let is_counted = calls.iter().any(|call| call.contains(&code));
        assert!(is_counted, "{service}/{method} {code}: {calls:?}");
    }
    assert!(
        !page.contains("Made-Up"),
        "a label contains the requested path"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_rejects_messages_for_another_replica_or_cluster() {
    let group = Group::start().await;
    let leader = group.leader().await;
    let mut peer = group.client(leader).peer();
    let submission = v1::Write {
        kind: Some(v1::write::Kind::SubmitJob(v1::SubmitJobRequest {
            request_id: REQUEST.to_owned(),
            spec: Some(job("forwarded", 1)),
            validate_only: false,
        })),
    };
    let wrong = [
        (Some("another"), Some(leader), "FOREIGN_CLUSTER"),
        (Some("test"), Some(leader % 3 + 1), "WRONG_REPLICA"),
    ];
    for (cluster, replica, reason) in wrong {
        let cluster_id = cluster.map(str::to_owned);
        let push = v1::PushHeartbeatsRequest {
            leadership_epoch: u64::MAX,
            term: u64::MAX,
            cluster_id: cluster_id.clone(),
            to_replica_id: replica,
            ..v1::PushHeartbeatsRequest::default()
        };
        let get = v1::GetHeartbeatsRequest {
            leadership_epoch: u64::MAX,
            term: u64::MAX,
            cluster_id: cluster_id.clone(),
            to_replica_id: replica,
        };
        let writes = v1::ForwardWritesRequest {
            writes: vec![submission.clone()],
            cluster_id,
            to_replica_id: replica,
        };
        let refusals = [
            peer.push_heartbeats(push).await.unwrap_err(),
            peer.get_heartbeats(get).await.unwrap_err(),
            peer.forward_writes(writes).await.unwrap_err(),
        ];
        for refused in refusals {
            assert_eq!(refused.code(), Code::Unavailable, "{refused}");
            assert_eq!(ErrorReport::of(&refused).reason, reason, "{refused}");
        }
    }
    // Nothing of it was done; messages for this replica are accepted, and so are those of older builds.
    for (cluster, replica, repeated) in [(Some("test"), Some(leader), false), (None, None, true)] {
        let writes = v1::ForwardWritesRequest {
            writes: vec![submission.clone()],
            cluster_id: cluster.map(str::to_owned),
            to_replica_id: replica,
        };
        let mut results = peer
            .forward_writes(writes)
            .await
            .unwrap()
            .into_inner()
            .results;
        match results.remove(0).kind {
            Some(v1::write_result::Kind::SubmitJob(answer)) => {
                assert_eq!(answer.repeated, repeated);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_its_data_does_not_serve() {
    let mut group = Group::start().await;
    let emptied = group.follower().await;
    group.kill(emptied);
    group.start_emptied(emptied).await;
    let others: Vec<u64> = group
        .alive()
        .into_iter()
        .filter(|id| *id != emptied)
        .collect();
    for id in &others {
        let client = group.client(*id);
        eventually("the others serve", async || {
            client.is_serving().await.filter(|serves| *serves)
        })
        .await;
    }
    // The group continues without it, and it does not start to participate again.
    let before = group
        .client(others[0])
        .submit(REQUEST, job("after", 1))
        .await;
    assert!(before.is_ok(), "{before:?}");
    let client = group.client(emptied);
    eventually("the emptied replica answers", async || {
        client.is_serving().await
    })
    .await;
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        assert_ne!(client.is_serving().await, Some(true));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_shows_how_long_each_replica_has_been_silent() {
    let mut group = Group::start().await;
    let leader = group.leader().await;
    let client = group.client(leader);
    let silences = async || {
        let status = client.status(Consistency::Stale).await.ok()?;
        let silence = |replica: &v1::Replica| Some((replica.id, replica.last_heartbeat_age_ms?));
        status
            .replicas
            .iter()
            .map(silence)
            .collect::<Option<Vec<_>>>()
    };
    let all = eventually("all voters answer", silences).await;
    assert_eq!(all.len(), 3);
    let dead = group.follower().await;
    group.kill(dead);
    eventually("one voter is silent, and the others answer", async || {
        let all = silences().await?;
        let is_as_expected = |(id, ago_ms): &(u64, u64)| (*id == dead) == (*ago_ms > 1_000);
        all.iter().all(is_as_expected).then_some(())
    })
    .await;
    // Leadership is not transferred to it, named or not.
    let named = v1::TransferLeaderRequest {
        to_replica_id: dead,
    };
    let refused = client.admin().transfer_leader(named).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("last answered"), "{refused}");
    let taken = eventually("the live one takes over", async || {
        let any = v1::TransferLeaderRequest::default();
        let answer = client.admin().transfer_leader(any).await.ok()?;
        Some(answer.into_inner().to_replica_id)
    })
    .await;
    assert_ne!(taken, dead);
}
