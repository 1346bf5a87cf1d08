//! What a run made in a cluster of others, and how it is cleared away.
//!
//! It is found by its mark, not remembered: what an interrupted call still brought about is found, too.

use muster_client::{Client, ClientError};
use muster_core::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use tokio::time::{Duration, Instant, sleep};

use super::Tag;
use super::processes::NamedProcess;
use crate::run::RunError;

/// Jobs of a run that are looked through at most.
const JOBS_MAX: usize = 1_000_000;
/// Longest that clearing away may take: tasks are given time to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks. Nothing must be found twice: a call that was under way may still take effect after the first.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Why jobs are cancelled.
const OVER: &str = "the chaos run is over";

/// Lets frozen processes go on, lifts the blocks of a run, cancels its jobs and waits until they have ended. Gives the jobs.
///
/// # Errors
/// If something stays; the text says what.
pub(super) async fn away(
    client: &Client,
    tag: &Tag,
    processes: &[NamedProcess],
) -> Result<Vec<v1::Job>, RunError> {
    for process in processes {
        process.thaw()?;
    }
    let deadline = Instant::now() + PATIENCE;
    let mut was_clear = false;
    loop {
        let left = pass(client, tag).await;
        let is_clear = matches!(&left, Ok((left, _)) if left.is_none());
        match left {
            Ok((None, own)) if was_clear => return Ok(own),
            Ok(_) | Err(_) if Instant::now() < deadline => {}
            Ok((None, own)) => return Ok(own),
            Ok((Some(left), _)) => return Err(stays(tag, &left)),
            Err(error) => return Err(stays(tag, &format!("it is not known what: {error}"))),
        }
        was_clear = is_clear;
        sleep(LOOK_AGAIN).await;
    }
}

fn stays(tag: &Tag, what: &str) -> RunError {
    RunError::Harness(format!(
        "something of run {} stays ({what}): `muster job list` shows jobs named {}, blocks end by themselves within a minute",
        tag.run,
        tag.name()
    ))
}

/// One look: ends what is found, and tells what was there.
async fn pass(client: &Client, tag: &Tag) -> Result<(Option<String>, Vec<v1::Job>), ClientError> {
    let blocks = own_blocks(client, tag).await?;
    for block in &blocks {
        lift(client, tag, block).await?;
    }
    let (_, own) = own_jobs(client, tag).await?;
    let live: Vec<&v1::Job> = own.iter().filter(|job| !has_ended(job)).collect();
    for job in live.iter().filter(|job| job.cancel.is_none()) {
        match client.cancel_job(JobId(job.id), &tag.user, OVER).await {
            // It ended meanwhile.
            Ok(_) | Err(ClientError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let (blocks, jobs) = (blocks.len(), live.len());
    let left = (blocks + jobs > 0).then(|| format!("{blocks} blocks, {jobs} jobs"));
    Ok((left, own))
}

/// What is blocked by a run.
async fn own_blocks(client: &Client, tag: &Tag) -> Result<Vec<Target>, ClientError> {
    let (_, hosts) = client.list_hosts(v1::ListHostsRequest::default()).await?;
    let (_, gpus) = client.list_gpus(v1::ListGpusRequest::default()).await?;
    let is_ours = |block: &Option<v1::Block>| block.as_ref().is_some_and(|it| tag.has_put(it));
    let hosts = hosts.into_iter().filter(|host| is_ours(&host.block));
    let gpus = gpus.into_iter().filter(|gpu| is_ours(&gpu.block));
    Ok(hosts
        .map(|host| Target::Host(host.name))
        .chain(gpus.map(|gpu| Target::Gpu(gpu.uuid)))
        .collect())
}

/// A host or a GPU as the cluster knows it now.
pub(super) enum Found {
    /// A host.
    Host(Box<v1::Host>),
    /// A GPU.
    Gpu(Box<v1::Gpu>),
}

/// Looks for a host or a GPU.
pub(super) async fn find(client: &Client, target: &Target) -> Result<Option<Found>, ClientError> {
    match target {
        Target::Host(name) => {
            let request = v1::ListHostsRequest {
                names: vec![name.clone()],
                ..v1::ListHostsRequest::default()
            };
            let (_, hosts) = client.list_hosts(request).await?;
            let found = hosts.into_iter().find(|host| host.name == *name);
            Ok(found.map(|host| Found::Host(Box::new(host))))
        }
        Target::Gpu(uuid) => {
            let (_, gpus) = client.list_gpus(v1::ListGpusRequest::default()).await?;
            let found = gpus.into_iter().find(|gpu| gpu.uuid == *uuid);
            Ok(found.map(|gpu| Found::Gpu(Box::new(gpu))))
        }
    }
}

/// Whether a block of a run is on something.
pub(super) async fn has_blocked(
    client: &Client,
    tag: &Tag,
    target: &Target,
) -> Result<bool, ClientError> {
    let block = find(client, target).await?.and_then(|found| match found {
        Found::Host(host) => host.block,
        Found::Gpu(gpu) => gpu.block,
    });
    Ok(block.is_some_and(|block| tag.has_put(&block)))
}

/// Lifts a block of a run; one that somebody else put in its place stays.
pub(super) async fn lift(client: &Client, tag: &Tag, target: &Target) -> Result<(), ClientError> {
    // The cluster lifts whatever is there: it is asked at the last moment.
    if !has_blocked(client, tag, target).await? {
        return Ok(());
    }
    let target = v1::BlockTarget {
        target: Some(target.clone()),
    };
    match client.unblock(target, &tag.user).await {
        // It ended by itself in between.
        Ok(_) | Err(ClientError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The jobs of a run that the cluster remembers, by their label.
pub(super) async fn own_jobs(
    client: &Client,
    tag: &Tag,
) -> Result<(Revision, Vec<v1::Job>), ClientError> {
    let request = v1::ListJobsRequest {
        name: tag.name(),
        ..v1::ListJobsRequest::default()
    };
    let (revision, mut jobs) = client.list_jobs(request, JOBS_MAX).await?;
    jobs.retain(|job| tag.owns(job));
    Ok((revision, jobs))
}

/// Whether nothing of a job runs or waits any more.
pub(super) fn has_ended(job: &v1::Job) -> bool {
    use v1::JobPhase::{Cancelled, Failed, Succeeded};
    matches!(job.phase(), Succeeded | Failed | Cancelled)
}
