//! Clean-up of everything that a run created in an external cluster.
//!
//! Jobs and blocks are found by their tag, not remembered, which includes the effects of interrupted calls.

use muster_client::{Client, ClientError};
use muster_model::ids::{JobId, Revision};
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use tokio::time::{Duration, Instant, sleep};

use crate::cluster::NamedProcess;
use crate::error_chain::chain;
use crate::run::RunError;
use crate::run::external::Tag;

/// Maximum number of jobs listed.
const JOBS_MAX: usize = 1_000_000;
/// Maximum time for the clean-up: tasks are given time to stop.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between passes. Two passes in a row must find nothing: a call in flight may take effect after
/// the first.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Reason given for the cancels.
const OVER: &str = "the chaos run is over";

/// Resumes frozen processes, lifts the blocks of a run, cancels its jobs and waits until they have ended.
/// Returns the jobs, including those that have not ended in time, for the checkers. Each step is attempted
/// even if another fails.
///
/// # Errors
/// If anything else remains; the text lists all of it.
pub(super) async fn clean_up(
    client: &Client,
    tag: &Tag,
    processes: &[NamedProcess],
) -> Result<Vec<v1::Job>, RunError> {
    let thawed = processes.iter().map(NamedProcess::thaw);
    // Before waiting for anything.
    let failed = thawed.filter_map(Result::err);
    let mut stay: Vec<RunError> = failed.map(RunError::from).collect();
    match clear(client, tag).await {
        Ok(own) if stay.is_empty() => return Ok(own),
        Ok(_) => {}
        Err(error) => stay.push(error),
    }
    Err(together(stay))
}

/// Merges several errors into one.
pub(super) fn together(mut errors: Vec<RunError>) -> RunError {
    if errors.len() == 1 {
        return errors.remove(0);
    }
    let texts: Vec<String> = errors.iter().map(|error| chain(error)).collect();
    RunError::Harness(texts.join("; and: "))
}

/// Ends everything it finds until it finds nothing more, or time is up.
async fn clear(client: &Client, tag: &Tag) -> Result<Vec<v1::Job>, RunError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut was_clear = false;
    loop {
        let found = pass(client, tag).await;
        let is_clear = found.as_ref().is_ok_and(Pass::is_clear);
        match found {
            Ok(found) if is_clear && was_clear => return Ok(found.own),
            Ok(_) | Err(_) if Instant::now() < deadline => {}
            Ok(found) if found.blocks == 0 => return Ok(found.own),
            Ok(found) => return Err(not_cleaned_up(tag, &format!("{} blocks", found.blocks))),
            Err(error) => return Err(not_cleaned_up(tag, &format!("unknown: {error}"))),
        }
        was_clear = is_clear;
        sleep(LOOK_AGAIN).await;
    }
}

/// Checks that all jobs have ended, for runs without checkers.
///
/// # Errors
/// If one has not.
pub(super) fn check_ended(tag: &Tag, own: &[v1::Job]) -> Result<(), RunError> {
    match own.iter().filter(|job| !has_ended(job)).count() {
        0 => Ok(()),
        live => Err(not_cleaned_up(tag, &format!("{live} jobs"))),
    }
}

fn not_cleaned_up(tag: &Tag, what: &str) -> RunError {
    RunError::Harness(format!(
        "run {} was not fully cleaned up ({what}): `muster job list` shows jobs named {}; \
         blocks expire within a minute",
        tag.run,
        tag.name()
    ))
}

/// Results of one pass.
struct Pass {
    /// Number of blocks of the run.
    blocks: usize,
    /// Its jobs.
    own: Vec<v1::Job>,
}

impl Pass {
    fn is_clear(&self) -> bool {
        self.blocks == 0 && self.own.iter().all(has_ended)
    }
}

/// One pass: ends everything it finds, and reports it.
async fn pass(client: &Client, tag: &Tag) -> Result<Pass, ClientError> {
    // Independent of each other: jobs are cancelled even if blocks cannot be lifted.
    let lifted = lift_all(client, tag).await;
    let own = cancel_all(client, tag).await?;
    let blocks = lifted?;
    Ok(Pass { blocks, own })
}

/// Lifts the blocks of a run; returns their number.
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

/// Cancels the active jobs of a run; returns all of its jobs.
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

/// Components blocked by a run.
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

/// A host or a GPU as currently known to the cluster.
pub(super) enum CurrentComponent {
    /// A host.
    Host(Box<v1::Host>),
    /// A GPU.
    Gpu(Box<v1::Gpu>),
}

/// Looks for a host or a GPU.
pub(super) async fn find(
    client: &Client,
    target: &Target,
) -> Result<Option<CurrentComponent>, ClientError> {
    match target {
        Target::Host(name) => {
            let request = v1::ListHostsRequest {
                names: vec![name.clone()],
                ..v1::ListHostsRequest::default()
            };
            let (_, hosts) = client.list_hosts(request).await?;
            let found = hosts.into_iter().find(|host| host.name == *name);
            Ok(found.map(|host| CurrentComponent::Host(Box::new(host))))
        }
        Target::Gpu(uuid) => {
            let (_, gpus) = client.list_gpus(v1::ListGpusRequest::default()).await?;
            let found = gpus.into_iter().find(|gpu| gpu.uuid == *uuid);
            Ok(found.map(|gpu| CurrentComponent::Gpu(Box::new(gpu))))
        }
    }
}

/// Whether a block of a run is on a component.
pub(super) async fn has_blocked(
    client: &Client,
    tag: &Tag,
    target: &Target,
) -> Result<bool, ClientError> {
    let block = find(client, target).await?.and_then(|found| match found {
        CurrentComponent::Host(host) => host.block,
        CurrentComponent::Gpu(gpu) => gpu.block,
    });
    Ok(block.is_some_and(|block| tag.has_put(&block)))
}

/// Lifts a block of a run, but not one that has replaced it.
pub(super) async fn lift(client: &Client, tag: &Tag, target: &Target) -> Result<(), ClientError> {
    // The cluster lifts any block, so its owner is checked at the last moment.
    if !has_blocked(client, tag, target).await? {
        return Ok(());
    }
    let target = v1::BlockTarget {
        target: Some(target.clone()),
    };
    match client.unblock(target, &tag.user).await {
        // It expired in between.
        Ok(_) | Err(ClientError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The jobs of a run that the cluster still stores, by their label.
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

/// Whether no part of a job is running or waiting.
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
        // Without checkers it is an error.
        let tag = Tag::new("ada", None);
        let check = |phases: &[v1::JobPhase]| check_ended(&tag, &found(0, phases).own);
        assert!(check(&[ended]).is_ok());
        assert!(check(&[ended, live]).is_err_and(|it| it.to_string().contains("1 jobs")));
    }
}
