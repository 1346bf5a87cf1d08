//! Turn of a unit of a virtual cluster: it is placed in guaranteed cells, or outside if its queue borrows.

use std::sync::Arc;

use muster_engine::feasibility::Requester;
use muster_engine::state::{Job, amounts_of};
use muster_model::command::{AllocationBasis, ClaimSpec, Command};
use muster_model::ids::{HostId, UnitId, UnitIndex};

use crate::Blocker;
use crate::order::Turn;
use crate::reserve::LEFT_OUT_TRIES_MAX;
use crate::round::{Missing, Refusal, Round, reserved};
use crate::running::stops_end;
use crate::vc::ClusterPlacement;

impl Round<'_> {
    /// Places a unit in cells of its virtual cluster, claims room there by preempting others, or places it
    /// outside the cells if the queue borrows.
    pub(super) fn place_in_cells(
        &mut self,
        turn: Turn,
        job: &Job,
        unit: UnitIndex,
    ) -> Result<(), Refusal> {
        let claim = job.unit(unit).and_then(|known| known.claim.as_deref());
        let avoided = job.hosts_avoided(unit);
        let elsewhere = || {
            let capacity = (!avoided.is_empty())
                .then(|| self.capacity.without_hosts(avoided.iter().copied()))?;
            self.clusters.find(&capacity, job, unit)
        };
        let found = self
            .clusters
            .claimed(&self.capacity, job, unit)
            .or_else(elsewhere)
            .or_else(|| self.clusters.find(&self.capacity, job, unit));
        if let Some(found) = found {
            return self.take_cells(turn, job, unit, found);
        }
        if let Some(claim) = claim {
            return Err(reserved(claim).into());
        }
        let barred = self.barred.contains(&UnitId::new(job.id, unit));
        let by_preemption = self.find_by_preemption(job, unit);
        if let Some(found) = by_preemption.filter(|found| found.is_free || !barred) {
            return self.take_cells(turn, job, unit, found);
        }
        let queue = self.state.queues.get(job.spec.queue.as_str());
        if queue.is_some_and(|queue| queue.config.borrow) {
            let allocation_basis = AllocationBasis::Opportunistic;
            return match self.find_within_limits(turn, job, unit, &allocation_basis) {
                Ok(tasks) => {
                    self.propose_placement(turn, job, unit, tasks, allocation_basis);
                    Ok(())
                }
                Err(Missing::Allowance(refusal)) => Err(refusal),
                Err(Missing::Room(shortage)) => {
                    Err(self.refusal_in_cells(job, unit, Some(shortage)))
                }
            };
        }
        Err(self.refusal_in_cells(job, unit, None))
    }

    /// Room in cells by preemption, on hosts that are not to be blocked too soon after the victims have stopped.
    fn find_by_preemption(&self, job: &Job, unit: UnitIndex) -> Option<ClusterPlacement> {
        let mut left_out: Vec<HostId> = Vec::new();
        for _ in 0..LEFT_OUT_TRIES_MAX {
            let capacity = self.capacity.without_hosts(left_out.iter().copied());
            let found = self.clusters.find_by_preemption(&capacity, job, unit)?;
            let victims = found.victims.iter();
            let graces = victims.filter_map(|victim| self.state.job(victim.job));
            let grace_ms = graces.map(|job| job.spec.stop_grace_ms).max();
            let stopped_at = self.now.after(grace_ms.unwrap_or(0));
            let others_at = stops_end(self.state, &found.tasks, self.now);
            let starts_at = stopped_at.max(others_at);
            let requester = Requester::for_claim(job, unit, Some(starts_at), self.now);
            let too_late = requester.hosts_blocked_too_soon(self.state, &found.tasks);
            if too_late.is_empty() {
                return Some(found);
            }
            left_out.extend(too_late);
        }
        None
    }

    /// Returns cells to attempts that lost them, if the waiting units leave enough quota.
    pub(super) fn upgrade(&mut self) {
        if self.ended || self.plan.more {
            return;
        }
        for step in self.clusters.upgrades() {
            if self.is_over_budget() {
                self.plan.more = true;
                return;
            }
            self.plan.steps.push(step);
        }
    }

    fn take_cells(
        &mut self,
        turn: Turn,
        job: &Job,
        unit: UnitIndex,
        found: ClusterPlacement,
    ) -> Result<(), Refusal> {
        let amounts = amounts_of(&self.state.hosts, &job.spec, &found.tasks);
        let allowance = self.allowance.for_unit(job, unit);
        if self.order.queued(turn.class).limited
            && let Some(limit) = allowance.reached(&job.spec, &found.allocation_basis, &amounts)
        {
            return Err(Blocker::Limit(Box::new(limit)).into());
        }
        let blocker = Blocker::Reserved {
            victims: found.victims.len() as u64,
            expected_at: None,
        };
        self.clusters.commit(&mut self.capacity, job, unit, &found);
        self.plan.steps.extend(found.downgrades);
        if found.is_free {
            self.propose_placement(turn, job, unit, found.tasks, found.allocation_basis);
            return Ok(());
        }
        let claiming = ClaimSpec {
            leader: self.state.leadership.epoch,
            job: job.id,
            unit,
            tasks: Arc::from(found.tasks),
            basis: found.allocation_basis,
            victims: found.victims,
            supersedes: found.supersedes,
            expected_at: None,
            moving: None,
        };
        // The round does not know about this preemption: another unit might select the same victims.
        self.ended = true;
        self.plan.steps.push(Command::Claim(claiming));
        Err(blocker.into())
    }
}
