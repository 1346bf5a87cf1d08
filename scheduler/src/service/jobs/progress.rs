//! Progress reported by a job's tasks: the leader knows it from the heartbeats; a follower asks the leader.

use muster_model::ids::JobId;
use muster_proto::{status, v1};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::service::context::Context;
use crate::service::jobs::find;

/// Tasks in one answer: at most as many as a page of units.
const TASKS_MAX: usize = 1_000;

/// Progress: from here if this replica leads, through the leader otherwise.
pub(crate) async fn get(
    context: &Context,
    request: v1::GetProgressRequest,
    deadline: Instant,
) -> Result<v1::GetProgressResponse, Status> {
    let leadership = context.handle.leadership().borrow().clone();
    match &leadership.leader {
        _ if leadership.is_self => here(context, &request),
        Some(leader) => {
            let mut client = context.peers.client(&leader.address)?;
            let answer = timeout_at(deadline, client.forward_progress(request)).await;
            let late =
                |_| Status::deadline_exceeded("the leader did not answer before the timeout");
            Ok(answer.map_err(late)??.into_inner())
        }
        None => Err(status::not_leader(None)),
    }
}

/// Progress from this leader's own workers; NOT_LEADER if it does not lead.
pub(crate) fn here(
    context: &Context,
    request: &v1::GetProgressRequest,
) -> Result<v1::GetProgressResponse, Status> {
    let leadership = context.handle.leadership().borrow().clone();
    if !leadership.is_self {
        let leader = leadership.leader.as_ref();
        return Err(status::not_leader(leader.map(|peer| peer.address.as_str())));
    }
    let job = JobId(request.job_id);
    find(&context.fork(), job)?;
    let steps = context.directory.progress(job, TASKS_MAX).into_iter();
    let tasks = steps.map(|step| v1::TaskProgress {
        task: step.task.get(),
        epoch: step.epoch.get(),
        step: step.step,
    });
    Ok(v1::GetProgressResponse {
        tasks: tasks.collect(),
    })
}
