//! Preemption for units of virtual clusters: makes room in guaranteed cells.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::cells::Allocation;
use muster_engine::rights::{Preemptor, may_preempt};
use muster_engine::state::{AttemptClass, BasisKind, Job};
use muster_model::command::{AllocationBasis, Command, Victim};
use muster_model::ids::{JobId, UnitId, UnitIndex};
use muster_model::quota::Amounts;
use muster_model::topology::CellId;

use crate::capacity::Capacity;
use crate::vc::hosts::PreemptionScope;
use crate::vc::{ClusterPlacement, Clusters};

/// Maximum number of attempts that lose their cells to one unit. Beyond it even attempts that tolerate the
/// loss are stopped.
const DOWNGRADES_MAX: usize = 64;

/// An attempt of the virtual cluster that may continue outside its cells.
struct LazyAttempt<'a> {
    attempt: Victim,
    queue: Arc<str>,
    cells: &'a [CellId],
}

impl<'a> Clusters<'a> {
    /// Finds room in cells for a unit, preempting others where it has the right.
    pub(crate) fn find_by_preemption(
        &self,
        capacity: &Capacity<'a>,
        job: &Job,
        unit: UnitIndex,
    ) -> Option<ClusterPlacement> {
        let claims = job.unit(unit).is_some_and(|known| known.claim.is_some());
        if claims {
            return None;
        }
        let yielding = self.yielding(job, unit);
        for (scope, yields) in [
            (PreemptionScope::None, true),
            (PreemptionScope::Others, false),
            (PreemptionScope::Others, true),
            (PreemptionScope::Priority, false),
            (PreemptionScope::Priority, true),
        ] {
            let found = match yields {
                true => self.find_by_lazy_preemption(capacity, job, unit, &yielding, scope),
                false if !self.may_find(job, unit, scope) => None,
                false => self.find_in(&self.allocation, capacity, scope, job, unit),
            };
            if found.is_some() {
                return found;
            }
        }
        self.find_superseding(capacity, job, unit)
    }

    /// Finds room that lower priorities of the virtual cluster have claimed; claims that are not in the way
    /// stay.
    fn find_superseding(
        &self,
        capacity: &Capacity<'a>,
        job: &Job,
        unit: UnitIndex,
    ) -> Option<ClusterPlacement> {
        let outranked = self.outranked(job);
        if outranked.is_empty() {
            return None;
        }
        let queue = Arc::from(job.spec.queue.as_str());
        let mut fork = capacity.clone();
        let mut allocation = self.allocation.clone();
        for (claimant, cells) in &outranked {
            fork.free_claim(*claimant);
            allocation.release_cells(&queue, cells);
        }
        let mut found = self.find_in(&allocation, &fork, PreemptionScope::Claims, job, unit)?;
        for (claimant, cells) in outranked {
            let stays = !found.supersedes.contains(&claimant);
            let mut cells = cells.iter();
            if stays && !cells.all(|cell| found.allocation.bind_safely(&queue, cell).is_ok()) {
                return None;
            }
        }
        found.is_free = false;
        (!found.supersedes.is_empty()).then_some(found)
    }

    /// Claims of lower priorities of the job's virtual cluster, ascending, with their cells.
    fn outranked(&self, job: &Job) -> Vec<(UnitId, &'a [CellId])> {
        let queue = self.state.queues.get(job.spec.queue.as_str());
        if !queue.is_some_and(|queue| queue.config.preempt_by_priority) {
            return Vec::new();
        }
        let claims = self.state.index.claims.keys();
        claims
            .filter_map(|id| {
                let other = self.state.job(id.job)?;
                let claim = other.unit(id.unit)?.claim.as_deref()?;
                let below =
                    other.spec.queue == job.spec.queue && other.spec.priority < job.spec.priority;
                let cells = claim.allocation_basis.cells()?;
                below.then_some((*id, cells))
            })
            .collect()
    }

    /// Takes cells from attempts, one more at a time, until there is room; then returns the cells of
    /// attempts that need not have yielded.
    fn find_by_lazy_preemption(
        &self,
        capacity: &Capacity<'a>,
        job: &Job,
        unit: UnitIndex,
        yielding: &[LazyAttempt<'a>],
        scope: PreemptionScope,
    ) -> Option<ClusterPlacement> {
        let mut allocation = self.allocation.clone();
        for (position, last) in yielding.iter().enumerate() {
            allocation.release_cells(&last.queue, last.cells);
            let Some(mut found) = self.find_in(&allocation, capacity, scope, job, unit) else {
                continue;
            };
            for yielded in &yielding[..=position] {
                let stopped = found.victims.contains(&yielded.attempt);
                if !stopped && !rebind(&mut found.allocation, yielded) {
                    found.downgrades.push(self.downgrade(yielded.attempt));
                } else if stopped {
                    // The attempt keeps its cells until it has ended, which must be possible in addition to
                    // the new ones.
                    if !rebind(&mut found.allocation, yielded) {
                        return None;
                    }
                }
            }
            return Some(found);
        }
        None
    }

    fn downgrade(&self, attempt: Victim) -> Command {
        Command::SetAllocationBasis {
            leader: self.state.leadership.epoch,
            job: attempt.job,
            unit: attempt.unit,
            epoch: attempt.epoch,
            allocation_basis: AllocationBasis::Opportunistic,
        }
    }

    /// Attempts in cells of the unit's virtual cluster that tolerate losing them to it: lowest priority
    /// first, then newest.
    fn yielding(&self, job: &Job, unit: UnitIndex) -> Vec<LazyAttempt<'a>> {
        let allocation_basis = AllocationBasis::Cells(Vec::new());
        let preemptor = Preemptor {
            job,
            unit,
            allocation_basis: &allocation_basis,
            amounts: &Amounts::default(),
        };
        let mut yielding: Vec<(_, LazyAttempt<'a>)> = Vec::new();
        for id in self.lazy_jobs(job) {
            let Some(other) = self.state.job(id) else {
                continue;
            };
            for (index, known) in &other.units {
                let Some(attempt) = known.attempt.as_deref() else {
                    continue;
                };
                let Some(cells) = attempt.allocation_basis.cells() else {
                    continue;
                };
                if may_preempt(self.state, preemptor, other, attempt).is_ok() {
                    let order = (other.spec.priority, Reverse(attempt.epoch));
                    let attempt = Victim {
                        job: id,
                        unit: *index,
                        epoch: attempt.epoch,
                    };
                    let queue = Arc::from(other.spec.queue.as_str());
                    yielding.push((
                        order,
                        LazyAttempt {
                            attempt,
                            queue,
                            cells,
                        },
                    ));
                }
            }
        }
        yielding.sort_by_key(|(order, _)| *order);
        yielding.truncate(DOWNGRADES_MAX);
        yielding.into_iter().map(|(_, yielding)| yielding).collect()
    }

    /// Jobs of a lower priority in cells of the job's virtual cluster that tolerate losing them.
    fn lazy_jobs(&self, job: &Job) -> BTreeSet<JobId> {
        let first = AttemptClass {
            basis: BasisKind::Cells,
            queue: Arc::from(job.spec.queue.as_str()),
            priority: i32::MIN,
            gpus: 0,
        };
        let end = AttemptClass {
            priority: job.spec.priority,
            ..first.clone()
        };
        let lower = self.state.index.attempts.range(first..end);
        lower
            .flat_map(|(_, attempts)| attempts.iter().map(|key| key.job.0))
            .filter(|id| {
                let other = self.state.job(*id);
                other.is_some_and(|other| other.spec.scheduling.lazy_preemption)
            })
            .collect()
    }
}

/// Returns an attempt's cells to it; false if they, or the quota, are taken.
fn rebind(allocation: &mut Allocation, yielded: &LazyAttempt<'_>) -> bool {
    let mut trial = allocation.clone();
    let bound = yielded
        .cells
        .iter()
        .all(|cell| trial.bind_safely(&yielded.queue, cell).is_ok());
    if bound {
        *allocation = trial;
    }
    bound
}
