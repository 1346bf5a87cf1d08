//! Unfinished dependencies between jobs: derived from the specifications and the phases of the jobs.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::ids::JobId;
use muster_model::spec::Dependency;

use crate::state::{Index, Job};

/// Unfinished dependencies in both directions. No empty set is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenDependencies {
    /// Unfinished dependencies by dependent job.
    open: OrdMap<JobId, OrdSet<JobId>>,
    /// Dependent jobs by dependency.
    dependents: OrdMap<JobId, OrdSet<JobId>>,
}

impl Index {
    /// Records the dependencies of a job that have not ended.
    pub(crate) fn hold(&mut self, jobs: &OrdMap<JobId, Arc<Job>>, job: &Job) {
        if job.phase.is_terminal() {
            return;
        }
        let is_open = |dependency: &&Dependency| {
            let other = jobs.get(&dependency.job);
            other.is_some_and(|other| !other.phase.is_terminal())
        };
        for dependency in job.spec.lifecycle.after.iter().filter(is_open) {
            let OpenDependencies { open, dependents } = &mut self.open_dependencies;
            open.entry(job.id).or_default().insert(dependency.job);
            dependents.entry(dependency.job).or_default().insert(job.id);
        }
    }

    /// Whether a job waits for others to end: none of its units may be placed.
    #[must_use]
    pub fn is_held(&self, job: JobId) -> bool {
        self.open_dependencies.open.contains_key(&job)
    }

    /// Returns the number of jobs that wait for others to end.
    #[must_use]
    pub fn held_jobs(&self) -> u64 {
        self.open_dependencies.open.len() as u64
    }

    /// Returns the jobs that a job waits for, ascending.
    #[must_use]
    pub fn open_of(&self, job: JobId) -> Vec<JobId> {
        let open = self.open_dependencies.open.get(&job);
        open.into_iter().flatten().copied().collect()
    }

    /// Returns the jobs that wait for a job, ascending.
    #[must_use]
    pub fn dependents_of(&self, job: JobId) -> OrdSet<JobId> {
        self.open_dependencies
            .dependents
            .get(&job)
            .cloned()
            .unwrap_or_default()
    }

    /// Removes an ended dependency of a job; true if none is left.
    pub(crate) fn remove_dependency(&mut self, job: JobId, ended: JobId) -> bool {
        remove(&mut self.open_dependencies.dependents, ended, job);
        remove(&mut self.open_dependencies.open, job, ended);
        !self.is_held(job)
    }

    /// Removes all dependencies of a job that has itself ended.
    pub(crate) fn forget_held(&mut self, job: JobId) {
        for other in self
            .open_dependencies
            .open
            .remove(&job)
            .into_iter()
            .flatten()
        {
            remove(&mut self.open_dependencies.dependents, other, job);
        }
    }
}

fn remove(map: &mut OrdMap<JobId, OrdSet<JobId>>, key: JobId, member: JobId) {
    if let Some(members) = map.get_mut(&key) {
        members.remove(&member);
        if members.is_empty() {
            map.remove(&key);
        }
    }
}
