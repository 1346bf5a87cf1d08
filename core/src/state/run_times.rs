//! How long work usually runs: learnt from the finished jobs that are still remembered.

use std::sync::Arc;

use imbl::OrdMap;

use crate::ids::UnitIndex;
use crate::lifecycle::{JobPhase, UnitPhase};
use crate::spec::JobSpec;
use crate::state::Job;

/// Jobs that are alike: of one queue, user and name.
type Kind = (Arc<str>, Arc<str>, Arc<str>);

/// Run times of jobs that ended well, summed up by kind; no entry counts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    kinds: OrdMap<Kind, Sum>,
}

/// Jobs and their run times together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    jobs: u64,
    total_ms: u64,
}

impl RunTimes {
    /// How long jobs of this kind ran on average; none if none of them is remembered.
    #[must_use]
    pub fn usual_ms(&self, spec: &JobSpec) -> Option<u64> {
        if self.kinds.is_empty() {
            return None;
        }
        let sum = self.kinds.get(&kind(spec))?;
        Some(sum.total_ms / sum.jobs)
    }

    /// A job has finished.
    pub(crate) fn learn(&mut self, job: &Job) {
        if let Some(run_ms) = run_ms(job) {
            let sum = self.kinds.entry(kind(&job.spec)).or_default();
            sum.jobs += 1;
            sum.total_ms = sum.total_ms.wrapping_add(run_ms);
        }
    }

    /// A finished job is forgotten.
    pub(crate) fn forget(&mut self, job: &Job) {
        let kind = kind(&job.spec);
        if let Some(run_ms) = run_ms(job)
            && let Some(sum) = self.kinds.get_mut(&kind)
        {
            sum.jobs -= 1;
            sum.total_ms = sum.total_ms.wrapping_sub(run_ms);
            if sum.jobs == 0 {
                self.kinds.remove(&kind);
            }
        }
    }
}

fn kind(spec: &JobSpec) -> Kind {
    let text = |text: &String| Arc::from(text.as_str());
    (text(&spec.queue), text(&spec.user), text(&spec.name))
}

/// How long the last attempt of a job's first unit ran, if all ended well.
fn run_ms(job: &Job) -> Option<u64> {
    let unit = job.unit(UnitIndex(0))?;
    let past = unit.past.last()?;
    let ended_well = job.phase == JobPhase::Succeeded && unit.phase == UnitPhase::Succeeded;
    ended_well.then(|| past.running_at.map(|since| past.ended_at.since(since)))?
}
