//! Usual run times, learned from the finished jobs that are still kept.

use std::sync::Arc;

use imbl::OrdMap;
use muster_model::ids::UnitIndex;
use muster_model::lifecycle::{JobPhase, UnitPhase};
use muster_model::spec::JobSpec;

use crate::state::Job;

/// Run times of successful jobs, summed by queue, user and name; no entry is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    queues: OrdMap<Arc<str>, ByUser>,
}

/// Sums by user and name.
type ByUser = OrdMap<Arc<str>, OrdMap<Arc<str>, Sum>>;

/// Number of jobs and their total run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    jobs: u64,
    total_ms: u64,
}

impl RunTimes {
    /// Returns the average run time of similar jobs; `None` if none of them is kept.
    #[must_use]
    pub fn usual_ms(&self, spec: &JobSpec) -> Option<u64> {
        let users = self.queues.get(spec.queue.as_str())?;
        let sum = users.get(spec.user.as_str())?.get(spec.name.as_str())?;
        Some(sum.total_ms / sum.jobs)
    }

    /// Adds a finished job.
    pub(crate) fn learn(&mut self, job: &Job) {
        if let Some(run_ms) = run_ms(job) {
            let text = |text: &String| Arc::from(text.as_str());
            let users = self.queues.entry(text(&job.spec.queue)).or_default();
            let names = users.entry(text(&job.spec.user)).or_default();
            let sum = names.entry(text(&job.spec.name)).or_default();
            sum.jobs += 1;
            sum.total_ms = sum.total_ms.wrapping_add(run_ms);
        }
    }

    /// Removes a finished job that is forgotten.
    pub(crate) fn forget(&mut self, job: &Job) {
        if let Some(run_ms) = run_ms(job) {
            self.forget_one(&job.spec, run_ms);
        }
    }

    fn forget_one(&mut self, spec: &JobSpec, run_ms: u64) -> Option<()> {
        let (queue, user, name) = (&*spec.queue, &*spec.user, &*spec.name);
        let users = self.queues.get_mut(queue)?;
        let names = users.get_mut(user)?;
        let sum = names.get_mut(name)?;
        sum.jobs -= 1;
        sum.total_ms = sum.total_ms.wrapping_sub(run_ms);
        if sum.jobs == 0 {
            names.remove(name);
        }
        if names.is_empty() {
            users.remove(user);
        }
        if users.is_empty() {
            self.queues.remove(queue);
        }
        Some(())
    }
}

/// Returns the run time of the last attempt of a job's first unit, if all units succeeded.
fn run_ms(job: &Job) -> Option<u64> {
    let unit = job.unit(UnitIndex(0))?;
    let past = unit.past.last()?;
    let ended_well = job.phase == JobPhase::Succeeded && unit.phase == UnitPhase::Succeeded;
    ended_well.then(|| past.running_at.map(|since| past.ended_at.since(since)))?
}
