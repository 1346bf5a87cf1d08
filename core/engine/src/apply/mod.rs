//! The state transition function: applies one command at a time, in log order, identically on every replica.
//!
//! Every command takes a revision, even a refused one. A refused command changes nothing else but the time.
//! Each family of commands has its own file; shared steps (a change of a host or a unit with all its
//! consequences) are in `edit`, `ending` and `stopping`.

mod access;
mod attempt;
mod checkpoint;
mod claim;
mod cluster;
mod config;
mod edit;
mod host;
mod job;

pub use claim::claim_check::check_claim;
pub use job::admission::basis_mismatch;

use std::collections::VecDeque;
use std::sync::Arc;

pub use crate::apply::host::health::{is_idle_component, limits_of};
use muster_model::command::Command;
use muster_model::event::{Event, EventKind};
use muster_model::ids::{JobId, Revision};
use muster_model::rejection::Rejection;
use muster_model::spec::Violation;
use muster_model::time::TimeMs;

use crate::apply::attempt::retries::RetryInPlace;
use crate::state::{Answer, State};

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its revision; the last one if it takes several.
    pub revision: Revision,
    /// Its answer, or the reason why it had no effect.
    pub result: Result<Answer, Rejection>,
}

/// Applies the next command, stamped with the leader's time; an earlier time than the newest one counts as
/// the newest one.
pub fn apply(state: &mut State, time: TimeMs, command: &Command) -> Applied {
    state.revision = state.revision.next();
    state.time = state.time.max(time);
    state.index.end_delays(state.time);
    let mut step = Step {
        state,
        events: Vec::new(),
        finished: VecDeque::new(),
        retries_in_place: Vec::new(),
    };
    let result = step.dispatch(command);
    step.retry_in_place();
    step.settle_dependents();
    // A pipeline takes more than one revision.
    let revision = step.state.revision;
    step.publish(result.is_err());
    Applied { revision, result }
}

/// One command being applied: the state it changes and the events it causes.
struct Step<'a> {
    state: &'a mut State,
    events: Vec<Event>,
    /// Jobs ended by this command whose dependents are not settled yet.
    finished: VecDeque<JobId>,
    /// Units whose attempts were ended by this command and that may be retried in place.
    retries_in_place: Vec<RetryInPlace>,
}

impl Step<'_> {
    fn dispatch(&mut self, command: &Command) -> Result<Answer, Rejection> {
        self.require_leader(command)?;
        match command {
            Command::LeadershipStarted { replica } => Ok(self.leadership_started(*replica)),
            Command::SubmitJob { request, spec } => self.submit_job(*request, spec),
            Command::SubmitPipeline { request, pipeline } => {
                self.submit_pipeline(*request, pipeline)
            }
            Command::CancelJob {
                request,
                job,
                author,
                reason,
            } => self.cancel_job(*request, *job, author, reason),
            Command::SuspendJob {
                request,
                job,
                author,
                reason,
            } => self.suspend_job(*request, *job, author, reason),
            Command::ResumeJob {
                request,
                job,
                author,
                reason,
            } => self.resume_job(*request, *job, author, reason),
            Command::Host(command) => self.host(command),
            Command::Place(placement) => self.place(placement),
            Command::SwapMember(swap) => self.swap_member(swap),
            Command::ReportTask(report) => self.report_task(report),
            Command::ReleaseGang {
                job, unit, epoch, ..
            } => self.release_gang(*job, *unit, *epoch),
            Command::StopAttempt {
                job,
                unit,
                epoch,
                reason,
                ..
            } => self.stop_attempt(*job, *unit, *epoch, reason),
            Command::Block {
                request,
                target,
                block,
                spares_last,
            } => self.block(*request, target, block, *spares_last),
            Command::Unblock {
                request,
                target,
                author,
                planned,
            } => self.unblock(*request, target, author, *planned),
            Command::ExpireBlocks { .. } => Ok(self.expire_blocks()),
            Command::Checkpoint(command) => self.checkpoint(command),
            Command::Config(command) => self.config(command),
            Command::RecordReplicas { replicas, .. } => Ok(self.record_replicas(replicas)),
            Command::Claim(claiming) => self.claim(claiming),
            Command::DropClaim {
                job, unit, reason, ..
            } => self.drop_claim(*job, *unit, reason),
            Command::SetAllocationBasis {
                job,
                unit,
                epoch,
                allocation_basis,
                ..
            } => self.set_allocation_basis(*job, *unit, *epoch, allocation_basis),
            Command::Health(command) => self.health(command),
            Command::Access(command) => self.access(command),
            Command::Prune { .. } => Ok(self.prune()),
        }
    }

    fn emit(&mut self, kind: EventKind) {
        self.events.push(Event {
            revision: self.state.revision,
            time: self.state.time,
            kind,
        });
    }

    fn publish(self, refused: bool) {
        assert!(
            !refused || self.events.is_empty(),
            "a refused command has no effect"
        );
        if !self.events.is_empty() {
            let revision = self.state.revision;
            self.state.events.push(revision, Arc::from(self.events));
        }
    }
}

/// Builds the rejection of a request's field that breaks a rule.
fn invalid(field: &str, rule: String) -> Rejection {
    Rejection::InvalidRequest(violation(field, rule))
}

fn violation(field: &str, rule: String) -> Violation {
    Violation {
        field: field.to_owned(),
        rule,
    }
}

/// Rejects a text over its limit.
fn require_length(
    field: &str,
    text: &str,
    limit_name: &str,
    limit: usize,
) -> Result<(), Rejection> {
    if text.len() <= limit {
        return Ok(());
    }
    let given = text.len();
    Err(invalid(
        field,
        format!("{given} bytes are over the limit of {limit} ({limit_name})"),
    ))
}
