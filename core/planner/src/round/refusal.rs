//! Refusal of a unit that found no room: determines the reason to report.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::state::Job;
use muster_model::host::HostClaim;
use muster_model::ids::{JobId, UnitId, UnitIndex};
use muster_model::time::TimeMs;

use crate::allowance::amounts_asked;
use crate::blocker::{CellsShortage, KindQuota};
use crate::diagnose::Diagnosis;
use crate::round::{Refusal, Round};
use crate::unit::{self, Lack, Shortage};
use crate::{Blocker, feasibility};

/// Maximum number of units per round whose lack of room is diagnosed. Beyond it they are reported as
/// lacking resources, which is true of all.
const DIAGNOSED_MAX: usize = 256;

/// Maximum number of jobs that a blocker lists.
const JOBS_NAMED_MAX: usize = 4;

impl From<Blocker> for Refusal {
    fn from(blocker: Blocker) -> Self {
        Self {
            blocker,
            shortage: None,
        }
    }
}

impl Round<'_> {
    /// Reason why a unit that found no room waits.
    pub(super) fn refusal(&mut self, job: &Job, unit: UnitIndex, shortage: Shortage) -> Refusal {
        if let Some(blocker) = feasibility::impossible(self.state, job, unit) {
            return blocker.into();
        }
        let mut blocker = Blocker::Resources {
            need_gpus: shortage.need_gpus,
            free_gpus: shortage.free_gpus,
            fits_tasks: shortage.fits_tasks,
            need_tasks: shortage.need_tasks,
        };
        if self.diagnosed < DIAGNOSED_MAX {
            self.diagnosed += 1;
            blocker = self.reserved_by_others(job, unit).unwrap_or_else(|| {
                let lacking = Diagnosis {
                    capacity: &self.capacity,
                    job,
                    unit,
                    shortage: &shortage,
                };
                lacking.blocker()
            });
        }
        Refusal {
            blocker,
            shortage: Some(shortage),
        }
    }

    /// Reason why a unit of a virtual cluster waits that found room neither in cells nor, if it may run
    /// there, outside.
    pub(super) fn refusal_in_cells(
        &mut self,
        job: &Job,
        unit: UnitIndex,
        outside: Option<Shortage>,
    ) -> Refusal {
        if let Some(blocker) = feasibility::impossible(self.state, job, unit) {
            return blocker.into();
        }
        let queue: Arc<str> = Arc::from(job.spec.queue.as_str());
        let allocation = &self.state.index.allocation;
        let kinds = allocation.quotas(&queue).map(|(kind, quota)| KindQuota {
            kind: allocation.tree().kind_name(kind),
            guaranteed: quota.count,
            bound: quota.bound,
        });
        let left_gpus = self.clusters.gpus_left(&queue);
        let short = CellsShortage {
            queue: queue.to_string(),
            need_gpus: amounts_asked(job, unit).gpus,
            left_gpus,
            kinds: kinds.collect(),
            outside_free_gpus: outside.as_ref().map(|outside| outside.free_gpus),
        };
        let shortage = outside.unwrap_or(Shortage {
            need_gpus: short.need_gpus,
            free_gpus: left_gpus,
            fits_tasks: 0,
            need_tasks: job.tasks_of(unit).len() as u64,
            lacks_gpus: true,
            lack: Lack::Gpus,
        });
        Refusal {
            blocker: Blocker::Cells(Box::new(short)),
            shortage: Some(shortage),
        }
    }

    /// Whether the unit would fit in the free resources without the claims of others, and the jobs that
    /// hold those claims.
    fn reserved_by_others(&mut self, job: &Job, unit: UnitIndex) -> Option<Blocker> {
        if self.state.index.claims.is_empty() {
            return None;
        }
        let steps = self.plan.steps.len();
        if self
            .unclaimed
            .as_ref()
            .is_none_or(|(known, _)| *known != steps)
        {
            self.unclaimed = Some((steps, self.capacity.without_claims()));
        }
        let (_, unclaimed) = self.unclaimed.as_ref()?;
        let placed = unit::place(&mut unclaimed.clone(), job, unit).ok()?;
        let hosts = placed
            .tasks
            .iter()
            .filter_map(|task| self.state.host(task.host));
        let claimants: BTreeSet<UnitId> = hosts
            .flat_map(|host| host.claims.iter().map(HostClaim::unit_id))
            .collect();
        let expected = claimants.iter().map(|claimant| {
            let unit = self.state.job(claimant.job)?.unit(claimant.unit)?;
            unit.claim.as_deref()?.expected_at
        });
        let until: Option<Vec<TimeMs>> = expected.collect();
        let mut jobs: Vec<JobId> = claimants.iter().map(|claimant| claimant.job).collect();
        jobs.dedup();
        jobs.truncate(JOBS_NAMED_MAX);
        Some(Blocker::ReservedByOthers {
            jobs,
            until: until.and_then(|until| until.into_iter().max()),
        })
    }
}
