//! Limit on kept answers: answers are kept under their request ids for a day in the replicated state, and no
//! user may exhaust the room.

use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::RequestId;
use muster_model::limits::REQUESTS_OF_USERS_MAX;
use muster_model::rejection::Rejection;

/// Refuses a user's request once the answers to users' requests fill their share; a request that is already
/// answered gets its answer again.
pub(in crate::service) fn check(state: &State, command: &Command) -> Result<(), Rejection> {
    let Some(request) = users_request(command) else {
        return Ok(());
    };
    refuse(state.requests.len(), REQUESTS_OF_USERS_MAX, || {
        state.requests.get(request).is_some()
    })
}

fn refuse(kept: usize, limit: usize, is_answered: impl FnOnce() -> bool) -> Result<(), Rejection> {
    if kept < limit || is_answered() {
        return Ok(());
    }
    Err(Rejection::ClusterFull {
        what: "answers kept for repeated requests of users".to_owned(),
        limit_name: "REQUESTS_OF_USERS_MAX".to_owned(),
        limit: u64::try_from(limit).unwrap_or(u64::MAX),
    })
}

/// Whether a command requests the end of a job that was requested before: it is a no-op, so repetitions leave
/// nothing behind. Also holds on a replica that no longer leads.
pub(in crate::service) fn is_done(state: &State, command: &Command) -> bool {
    match command {
        Command::CancelJob { request, job, .. } => {
            let is_cancelled = state
                .job(*job)
                .is_some_and(|job| job.cancel.is_some() && !job.phase.is_terminal());
            is_cancelled && state.requests.get(request.id).is_none()
        }
        _ => false,
    }
}

/// The id of a request that needs no admin.
fn users_request(command: &Command) -> Option<RequestId> {
    match command {
        Command::SubmitJob { request, .. }
        | Command::SubmitPipeline { request, .. }
        | Command::CancelJob { request, .. }
        | Command::SuspendJob { request, .. }
        | Command::ResumeJob { request, .. } => Some(request.id),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, request_id, request_key, single};
    use muster_model::command::AccessCommand;

    use super::*;

    fn cancel(cluster: &Cluster, request: u64, name: &str) -> Command {
        let named = |job: &&std::sync::Arc<muster_engine::state::Job>| job.spec.name == name;
        Command::CancelJob {
            request: request_key(request),
            job: cluster.state.jobs.values().find(named).unwrap().id,
            author: "ada".to_owned(),
            reason: String::new(),
        }
    }

    #[test]
    fn users_requests_leave_room_for_administrators() {
        assert!(refuse(9, 10, || false).is_ok());
        assert!(refuse(10, 10, || true).is_ok());
        let refused = refuse(10, 10, || false).unwrap_err().to_string();
        assert!(refused.contains("REQUESTS_OF_USERS_MAX"), "{refused}");

        let mut cluster = Cluster::with_hosts(1, 1);
        cluster.submit(single("job", 1, 1));
        let of_user = cancel(&cluster, 1_000, "job");
        assert_eq!(users_request(&of_user), Some(request_id(1_000)));
        let of_admin = Command::Access(AccessCommand::RemoveUser {
            request: request_key(1_001),
            author: "grace".to_owned(),
            name: "ada".to_owned(),
        });
        assert_eq!(users_request(&of_admin), None);
    }

    #[test]
    fn a_job_that_is_being_cancelled_is_not_cancelled_again() {
        let mut cluster = Cluster::with_hosts(1, 1);
        let job = cluster.submit(single("job", 1, 1));
        cluster.place_all(job);
        cluster.start_all(job);
        let first = cancel(&cluster, 1_000, "job");
        assert!(!is_done(&cluster.state, &first));
        assert!(cluster.apply(&first).result.is_ok());
        assert!(
            !is_done(&cluster.state, &first),
            "its own answer is kept, and is what a repetition gets"
        );
        assert!(is_done(&cluster.state, &cancel(&cluster, 1_001, "job")));
        cluster.stop_all(job);
        let late = cancel(&cluster, 1_002, "job");
        assert!(
            !is_done(&cluster.state, &late),
            "it has ended: that is refused"
        );
    }
}
