//! What a run made in a cluster of others, and how it is cleared away.
//!
//! It is found by its mark, not remembered: what an interrupted call still brought about is found, too.

use muster_client::{Client, ClientError};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use tokio::time::{Duration, Instant, sleep};

use crate::error_chain::chain;
use crate::run::RunError;
use crate::run::target::Tag;
use crate::run::target::processes::NamedProcess;

/// Jobs of a run that are looked through at most.
const JOBS_MAX: usize = 1_000_000;
/// Longest that clearing away may take: tasks are given time to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks. Nothing must be found twice: a call that was under way may still take effect after the first.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Why jobs are cancelled.
const OVER: &str = "the chaos run is over";

/// Lets frozen processes go on, lifts the blocks of a run, cancels its jobs and waits until they have ended. Gives the jobs,
/// also those that have not ended in time: that is for the judges. What cannot be done keeps nothing else from being done.
///
/// # Errors
/// If anything else stays; the text says what, all of it.
pub(super) async fn away(
    client: &Client,
    tag: &Tag,
    processes: &[NamedProcess],
) -> Result<Vec<v1::Job>, RunError> {
    let thawed = processes.iter().map(NamedProcess::thaw);
    // Before anything is waited for.
    let mut stay: Vec<RunError> = thawed.filter_map(Result::err).collect();
    match clear(client, tag).await {
        Ok(own) if stay.is_empty() => return Ok(own),
        Ok(_) => {}
        Err(error) => stay.push(error),
    }
    Err(together(stay))
}

/// Several errors as one.
pub(super) fn together(mut errors: Vec<RunError>) -> RunError {
    if errors.len() == 1 {
        return errors.remove(0);
    }
    let texts: Vec<String> = errors.iter().map(|error| chain(error)).collect();
    RunError::Harness(texts.join("; and: "))
}

/// Ends what is found until nothing is found any more, or time is up.
async fn clear(client: &Client, tag: &Tag) -> Result<Vec<v1::Job>, RunError> {
    let deadline = Instant::now() + PATIENCE;
    let mut was_clear = false;
    loop {
        let found = pass(client, tag).await;
        let is_clear = found.as_ref().is_ok_and(Pass::is_clear);
        match found {
            Ok(found) if is_clear && was_clear => return Ok(found.own),
            Ok(_) | Err(_) if Instant::now() < deadline => {}
            Ok(found) if found.blocks == 0 => return Ok(found.own),
            Ok(found) => return Err(stays(tag, &format!("{} blocks", found.blocks))),
            Err(error) => return Err(stays(tag, &format!("it is not known what: {error}"))),
        }
        was_clear = is_clear;
        sleep(LOOK_AGAIN).await;
    }
}

/// Whether all jobs have ended, where no judge will look at them.
///
/// # Errors
/// If one has not.
pub(super) fn check_ended(tag: &Tag, own: &[v1::Job]) -> Result<(), RunError> {
    match own.iter().filter(|job| !has_ended(job)).count() {
        0 => Ok(()),
        live => Err(stays(tag, &format!("{live} jobs"))),
    }
}

fn stays(tag: &Tag, what: &str) -> RunError {
    RunError::Harness(format!(
        "something of run {} stays ({what}): `muster job list` shows jobs named {}, blocks end by themselves within a minute",
        tag.run,
        tag.name()
    ))
}

/// What was there at one look.
struct Pass {
    /// Blocks of the run.
    blocks: usize,
    /// Its jobs.
    own: Vec<v1::Job>,
}

impl Pass {
    fn is_clear(&self) -> bool {
        self.blocks == 0 && self.own.iter().all(has_ended)
    }
}

/// One look: ends what is found, and tells what was there.
async fn pass(client: &Client, tag: &Tag) -> Result<Pass, ClientError> {
    // Neither waits for the other: blocks that cannot be lifted are no reason to leave jobs.
    let lifted = lift_all(client, tag).await;
    let own = cancel_all(client, tag).await?;
    let blocks = lifted?;
    Ok(Pass { blocks, own })
}

/// Lifts the blocks of a run; gives how many there were.
async fn lift_all(client: &Client, tag: &Tag) -> Result<usize, ClientError> {
    let blocks = own_blocks(client, tag).await?;
    let mut lifted = Ok(blocks.len());
    for block in &blocks {
        if let Err(error) = lift(client, tag, block).await {
            lifted = Err(error);
        }
    }
    lifted
}

/// Cancels the jobs of a run that live; gives all of them.
async fn cancel_all(client: &Client, tag: &Tag) -> Result<Vec<v1::Job>, ClientError> {
    let (_, own) = own_jobs(client, tag).await?;
    let mut failed = None;
    let live = own.iter().filter(|job| !has_ended(job));
    for job in live.filter(|job| job.cancel.is_none()) {
        match client.cancel_job(JobId(job.id), &tag.user, OVER).await {
            // It ended meanwhile.
            Ok(_) | Err(ClientError::Refused { .. }) => {}
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(own), Err)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_errors_none_is_lost() {
        let error = |text: &str| RunError::Harness(text.to_owned());
        assert_eq!(together(vec![error("one")]).to_string(), "one");
        let two = together(vec![error("one"), error("two")]);
        assert_eq!(two.to_string(), "one; and: two");
    }

    #[test]
    fn a_job_that_has_not_ended_is_no_reason_to_give_no_verdict() {
        let in_phase = |phase: v1::JobPhase| v1::Job {
            phase: phase.into(),
            ..v1::Job::default()
        };
        let (ended, live) = (v1::JobPhase::Cancelled, v1::JobPhase::Cancelling);
        let found = |blocks, phases: &[v1::JobPhase]| Pass {
            blocks,
            own: phases.iter().copied().map(in_phase).collect(),
        };
        assert!(found(0, &[ended]).is_clear());
        assert!(!found(0, &[ended, live]).is_clear());
        assert!(!found(1, &[]).is_clear());
        // Where no judge looks at it, it is an error.
        let tag = Tag::new("ada", None);
        let check = |phases: &[v1::JobPhase]| check_ended(&tag, &found(0, phases).own);
        assert!(check(&[ended]).is_ok());
        assert!(check(&[ended, live]).is_err_and(|it| it.to_string().contains("1 jobs")));
    }
}
