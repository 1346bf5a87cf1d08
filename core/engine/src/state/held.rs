//! Which jobs wait for which others: derived from the specifications and from how those others stand.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::ids::JobId;
use muster_model::spec::Dependency;

use crate::state::{Index, Job};

/// Jobs that wait for others to end, both ways. No empty set is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// For whom a job waits.
    open: OrdMap<JobId, OrdSet<JobId>>,
    /// Who waits for a job.
    dependents: OrdMap<JobId, OrdSet<JobId>>,
}

impl Index {
    /// Notes what a job has to wait for: those of its dependencies that have not ended.
    pub(crate) fn hold(&mut self, jobs: &OrdMap<JobId, Arc<Job>>, job: &Job) {
        if job.phase.is_terminal() {
            return;
        }
        let is_open = |dependency: &&Dependency| {
            let other = jobs.get(&dependency.job);
            other.is_some_and(|other| !other.phase.is_terminal())
        };
        for dependency in job.spec.lifecycle.after.iter().filter(is_open) {
            let Held { open, dependents } = &mut self.held;
            open.entry(job.id).or_default().insert(dependency.job);
            dependents.entry(dependency.job).or_default().insert(job.id);
        }
    }

    /// Whether a job waits for others to end: nothing of it may be placed.
    #[must_use]
    pub fn is_held(&self, job: JobId) -> bool {
        self.held.open.contains_key(&job)
    }

    /// How many jobs wait for others to end.
    #[must_use]
    pub fn held_jobs(&self) -> u64 {
        self.held.open.len() as u64
    }

    /// The jobs that a job waits for, ascending.
    #[must_use]
    pub fn open_of(&self, job: JobId) -> Vec<JobId> {
        let open = self.held.open.get(&job);
        open.into_iter().flatten().copied().collect()
    }

    /// The jobs that wait for a job, ascending.
    #[must_use]
    pub fn dependents_of(&self, job: JobId) -> OrdSet<JobId> {
        self.held.dependents.get(&job).cloned().unwrap_or_default()
    }

    /// A job waits for another one no more; true if it waits for nobody any more.
    pub(crate) fn let_go(&mut self, job: JobId, ended: JobId) -> bool {
        remove(&mut self.held.dependents, ended, job);
        remove(&mut self.held.open, job, ended);
        !self.is_held(job)
    }

    /// A job that has ended itself waits for nobody.
    pub(crate) fn forget_held(&mut self, job: JobId) {
        for other in self.held.open.remove(&job).into_iter().flatten() {
            remove(&mut self.held.dependents, other, job);
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
