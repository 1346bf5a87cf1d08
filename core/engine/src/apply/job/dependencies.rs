//! Dependencies between jobs.
//!
//! Unfinished dependencies follow from the specifications and the phases of the other jobs and are kept in
//! the index. A job that ends settles its dependents in the same step, and so on through a chain: in a loop,
//! not by recursion, since a chain may be as long as the log.

use muster_model::event::EventKind;
use muster_model::ids::JobId;
use muster_model::limits;
use muster_model::spec::{Dependency, JobSpec, Violation};

use crate::apply::{Step, violation};
use crate::state::State;

impl Step<'_> {
    /// Records the dependencies of a new job.
    pub(in crate::apply) fn hold(&mut self, id: JobId) {
        let State { jobs, index, .. } = &mut *self.state;
        if let Some(job) = jobs.get(&id) {
            index.hold(jobs, job);
        }
    }

    /// Settles the dependents of the jobs that ended, transitively.
    pub(in crate::apply) fn settle_dependents(&mut self) {
        while let Some(ended) = self.finished.pop_front() {
            for dependent in self.state.index.dependents_of(ended) {
                self.settle(dependent, ended);
            }
        }
    }

    /// Settles one ended dependency of a job.
    fn settle(&mut self, id: JobId, ended: JobId) {
        let (Some(job), Some(other)) = (self.state.job(id), self.state.job(ended)) else {
            return;
        };
        let mut after = job.spec.lifecycle.after.iter();
        let Some(dependency) = after.find(|dependency| dependency.job == ended) else {
            return;
        };
        if dependency.when.holds(other.phase) == Some(false) {
            let reason = cannot_hold(*dependency, other.phase);
            self.abandon(id, &reason);
        } else if self.state.index.remove_dependency(id, ended) {
            let wants_room = self.job_mut(id).wants_room();
            self.index_waiting(id, wants_room);
            self.emit(EventKind::JobEligible { job: id });
        }
    }

    /// Ends a job of which nothing was ever placed.
    fn abandon(&mut self, id: JobId, reason: &str) {
        self.edit_job(id, |job| {
            job.counts.failed += std::mem::take(&mut job.counts.waiting);
            reason.clone_into(&mut job.finish_reason);
        });
    }
}

fn cannot_hold(dependency: Dependency, phase: impl std::fmt::Display) -> String {
    let Dependency { job, when } = dependency;
    format!(
        "job {job} is {phase}: {} can no longer be satisfied",
        when.name()
    )
}

/// Returns the dependencies of a new job that cannot be waited for.
pub(in crate::apply) fn unfit(state: &State, spec: &JobSpec) -> Vec<Violation> {
    let after = spec.lifecycle.after.iter().enumerate();
    let rules = after.filter_map(|(position, dependency)| {
        let rule = why_unfit(state, *dependency)?;
        Some(violation(&format!("lifecycle.after[{position}].job"), rule))
    });
    rules.collect()
}

fn why_unfit(state: &State, dependency: Dependency) -> Option<String> {
    let id = dependency.job;
    let Some(job) = state.job(id) else {
        return Some(format!("job {id} does not exist, or ended and was pruned"));
    };
    match dependency.when.holds(job.phase) {
        Some(true) => None,
        Some(false) => Some(cannot_hold(dependency, job.phase)),
        None if state.index.dependents_of(id).len() >= limits::DEPENDENTS_MAX => Some(format!(
            "{} jobs wait for job {id} already, the limit (DEPENDENTS_MAX)",
            limits::DEPENDENTS_MAX
        )),
        None => None,
    }
}
