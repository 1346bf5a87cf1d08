//! Job specifications, and helpers to read job state.

use muster_client::{Client, ClientError, JobDetail, LogUpdate, LogsRequest};
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;

use crate::eventually::eventually;

/// A job of one task that runs a shell script; it requests no resources and has a stop grace of a second.
#[must_use]
pub fn shell(script: &str) -> v1::JobSpec {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    v1::JobSpec {
        name: "test".to_owned(),
        user: "ada".to_owned(),
        stop_grace_ms: Some(1_000),
        groups: vec![v1::TaskGroup {
            command,
            ..v1::TaskGroup::default()
        }],
        ..v1::JobSpec::default()
    }
}

/// Makes every task of the job request GPUs.
#[must_use]
pub fn with_gpus(mut spec: v1::JobSpec, gpus: u32) -> v1::JobSpec {
    for group in &mut spec.groups {
        group.resources.get_or_insert_default().gpus = gpus;
    }
    spec
}

/// Submits a job; repeats the call while the cluster does not support the specification yet.
pub async fn submit(client: &Client, spec: v1::JobSpec) -> JobId {
    eventually("the job is accepted", async || {
        client.submit_job(spec.clone()).await.ok()
    })
    .await
    .job
}

/// Waits until all tasks of a job run; returns the running attempt of its only unit.
pub async fn only_attempt(client: &Client, job: JobId) -> v1::Attempt {
    let running = |detail: JobDetail| {
        let unit = detail.units.into_iter().next()?;
        let is_running = unit.phase() == v1::UnitPhase::Running;
        unit.attempt.filter(|_| is_running)
    };
    eventually("the job runs", async || {
        let detail = client.get_job(job, 1, v1::Consistency::Linearizable).await;
        running(detail.ok()?)
    })
    .await
}

/// Standard output so far of a job's first task in its newest attempt.
///
/// # Errors
/// Those of [`muster_client::TaskLogs::next`].
pub async fn output(client: &Client, job: JobId) -> Result<String, ClientError> {
    let mut logs = client.logs(LogsRequest {
        job,
        task: TaskIndex(0),
        stream: v1::LogStream::Stdout,
        follow: false,
        ..LogsRequest::default()
    });
    let mut text = Vec::new();
    while let Some(update) = logs.next().await? {
        if let LogUpdate::Data { data, .. } = update {
            text.extend_from_slice(&data);
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Waits until a job's first task has printed this many lines; returns them.
pub async fn printed(client: &Client, job: JobId, lines: usize) -> Vec<String> {
    eventually("the task prints", async || {
        let text = output(client, job).await.ok()?;
        let found: Vec<String> = text.lines().map(str::to_owned).collect();
        (text.ends_with('\n') && found.len() >= lines).then_some(found)
    })
    .await
}
