//! Claims of a round: resources reserved for units that found no room.
//!
//! Units whose claims have become free are placed first. A unit that found no room may preempt others, have
//! others moved, or reserve room for later.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::apply::{basis_mismatch, check_claim};
use muster_engine::feasibility::Requester;
use muster_engine::moves;
use muster_engine::state::{Claim, Job, Running, WaitingClass, amounts_of};
use muster_model::command::{AllocationBasis, ClaimSpec, Command, Moving, TaskPlacement, Victim};
use muster_model::ids::{HostId, UnitId, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::time::TimeMs;

use crate::capacity::Capacity;
use crate::order::Turn;
use crate::preempt::{self, Claimant};
use crate::round::{Refusal, Round, allocation_basis_of};
use crate::running::{End, by_end};
use crate::unit::Shortage;
use crate::{Blocker, defragment, reserve};

/// Maximum number of reservations of one queue: the head's, and those of former heads that others have
/// overtaken.
const RESERVATIONS_PER_QUEUE_MAX: usize = 8;

/// Milliseconds after which moves are searched again when none were worth their cost.
pub const MOVES_TRIED_AGAIN_MS: u64 = 60_000;

/// Resources to claim for a unit.
struct Claimed {
    tasks: Vec<TaskPlacement>,
    victims: Vec<Victim>,
    expected_at: Option<TimeMs>,
    moving: Option<Moving>,
    /// GPU-milliseconds lost by the moves.
    cost_gpu_ms: u64,
}

/// What a unit that was not placed does next.
enum Fallback {
    /// It claims resources.
    Claim(Claimed),
    /// It will probably claim resources, but only the next round can use the result of the search.
    NextRound,
    /// It waits until something changes.
    Wait,
}

impl Refusal {
    /// The queue whose limit the unit has reached, if it is enough that others of that queue end.
    fn queue_at_limit(&self) -> Option<&str> {
        match &self.blocker {
            Blocker::Limit(limit) if limit.ends_with_others() => Some(&limit.queue),
            _ => None,
        }
    }

    /// Whether the unit could be placed if others ended.
    fn waits_for_others(&self) -> bool {
        self.shortage.is_some() || self.queue_at_limit().is_some()
    }
}

impl<'a> Round<'a> {
    /// Places the units whose claimed resources are all free.
    pub(super) fn place_claimed(&mut self) {
        let state = self.state;
        if self.drop_invalid_claims() {
            // The next step depends on what that frees.
            self.ended = true;
            return;
        }
        for (id, progress) in &state.index.claims {
            if progress.gpus_held == 0
                && !self.is_over_budget()
                && let Some(job) = state.job(id.job)
                && job.unit_phase(id.unit) == Some(UnitPhase::Waiting)
                && state.held_until(job) <= self.now
            {
                self.place_early(job, id.unit);
            }
        }
    }

    /// Drops claims whose allocation basis no longer exists because their queue became a virtual cluster or
    /// ceased to be one; returns whether there are any. Drops at most as many as the budget allows; the
    /// next plan drops the rest.
    fn drop_invalid_claims(&mut self) -> bool {
        let state = self.state;
        for UnitId { job: id, unit } in state.index.claims.keys().copied() {
            let Some(job) = state.job(id) else { continue };
            let claim = job.unit(unit).and_then(|known| known.claim.as_deref());
            let queue = state.queues.get(job.spec.queue.as_str());
            let Some((claim, queue)) = claim.zip(queue) else {
                continue;
            };
            let basis_gone =
                basis_mismatch(queue, &job.spec, &claim.allocation_basis, &claim.tasks);
            let reason = basis_gone.map(str::to_owned);
            if let Some(reason) = reason.or_else(|| self.maintenance_conflict(job, unit, claim)) {
                if self.is_over_budget() {
                    return true;
                }
                self.plan.steps.push(Command::DropClaim {
                    leader: state.leadership.epoch,
                    job: id,
                    unit,
                    reason,
                });
            }
        }
        !self.plan.steps.is_empty()
    }

    /// Reason why a unit can no longer start where it claims: one of the hosts has a planned block that
    /// begins too soon and is not over when the unit starts. Otherwise schedules another check for the time
    /// from which such a block keeps the unit off.
    fn maintenance_conflict(
        &mut self,
        job: &Job,
        unit: UnitIndex,
        claim: &Claim,
    ) -> Option<String> {
        let state = self.state;
        if state.index.planned.is_empty() {
            return None;
        }
        let hosts: BTreeSet<HostId> = claim.tasks.iter().map(|task| task.host).collect();
        let planned = hosts.into_iter().filter_map(|host| state.host(host));
        let requester = Requester::for_claim(job, unit, claim.expected_at, self.now);
        for host in planned {
            let current = host
                .planned
                .as_ref()
                .filter(|block| !block.has_expired_at(requester.now));
            let Some(planned) = current.and_then(|block| block.planned) else {
                continue;
            };
            if requester.maintenance_misfit(host).is_some() {
                let in_s = planned.at.since(self.now) / 1_000;
                let name = &host.name;
                return Some(format!("host {name} is to be blocked in {in_s} s"));
            }
            let run_time_ms_max = job.spec.scheduling.run_time_ms_max;
            self.again_at(planned.blocks_from(run_time_ms_max));
        }
        None
    }

    fn place_early(&mut self, job: &'a Job, unit: UnitIndex) {
        let (class, _) = WaitingClass::of(&self.state.queues, job);
        let Some(class) = self.order.position(&class) else {
            return;
        };
        if self.at_once_reached(job).is_some() {
            return;
        }
        let turn = Turn { job: job.id, class };
        match self.place(turn, job, unit) {
            Ok(()) => {
                self.placed_early.insert(UnitId::new(job.id, unit));
                let of_job = self.placed_early.range(UnitId::all_of(job.id));
                if of_job.count() as u64 == job.counts.waiting {
                    self.done_early.insert((class, job.id));
                }
            }
            // The unit is no longer entitled to its reservation: other units are. During moves a limit may
            // only appear to be reached.
            Err(Refusal {
                blocker: Blocker::Limit(limit),
                ..
            }) if !moves::counts_twice(self.state) => self.plan.steps.push(Command::DropClaim {
                leader: self.state.leadership.epoch,
                job: job.id,
                unit,
                reason: limit.to_string(),
            }),
            Err(_) => {}
        }
    }

    /// Decides what follows for a unit that was not placed. A unit that holds a claim waits for it; any
    /// other one claims resources if it can ([`Self::fallback`]) and is refused if not.
    pub(super) fn refuse_unit(
        &mut self,
        turn: Turn,
        job: &'a Job,
        unit: UnitIndex,
        refusal: Refusal,
    ) {
        let waits_for_claim = matches!(
            refusal.blocker,
            Blocker::Reserved { .. } | Blocker::Moving { .. }
        );
        // Recorded first: a unit that waits for its claim is the head of its queue too, so that no unit
        // behind it reserves.
        let is_head = self.is_head(turn, waits_for_claim || refusal.waits_for_others());
        if waits_for_claim {
            self.wait_for_claim(turn, job, refusal.blocker);
            return;
        }
        let has_claim = job.unit(unit).is_some_and(|known| known.claim.is_some());
        if has_claim || self.barred.contains(&UnitId::new(job.id, unit)) {
            self.refuse(turn, refusal);
            return;
        }
        match self.fallback(turn, job, unit, &refusal, is_head) {
            Fallback::Claim(claimed) if !self.has_steps() => self.claim(turn, job, unit, claimed),
            // Rights and running attempts were read from the state: placements of this round may have used
            // them up, and a successor of a leader that crashes in between would observe that.
            Fallback::Claim(_) | Fallback::NextRound => {
                self.ended = true;
                self.plan.more = true;
            }
            Fallback::Wait => self.refuse(turn, refusal),
        }
    }

    /// How a unit without a claim may get resources, tried in this order:
    ///
    /// 1. Preemption, which depends on the unit's rights and not on its place in the queue.
    /// 2. Moves of others, for the head of a queue that lacks room.
    /// 3. A reservation, for the head of a queue that waits for others to end.
    fn fallback(
        &mut self,
        turn: Turn,
        job: &'a Job,
        unit: UnitIndex,
        refusal: &Refusal,
        is_head: bool,
    ) -> Fallback {
        let lacks_room_or_limit =
            refusal.shortage.is_some() || matches!(refusal.blocker, Blocker::Limit(_));
        if lacks_room_or_limit
            && self.state.index.claims.len() < muster_model::limits::CLAIMS_MAX
            && let Some(claimed) = self.preemption(turn, job, unit)
        {
            return Fallback::Claim(claimed);
        }
        // A head waits for others: it lacks room, or its queue is at a limit.
        if !is_head {
            return Fallback::Wait;
        }
        if let Some(shortage) = &refusal.shortage
            && let Some(claimed) = self.moves(job, unit, shortage)
        {
            return Fallback::Claim(claimed);
        }
        if !self.may_reserve(job, unit) {
            return Fallback::Wait;
        }
        let queue_at_limit = refusal.queue_at_limit();
        if self.has_steps() && queue_at_limit.is_none() {
            // Nearly always succeeds: the search is left to the round that can use its result.
            return Fallback::NextRound;
        }
        self.reservation(job, unit, queue_at_limit)
            .map_or(Fallback::Wait, Fallback::Claim)
    }

    /// Whether the job is the first of its queue that waits for such hosts, because they are full or
    /// because the queue is at its limit; if so, it is recorded as the head.
    fn is_head(&mut self, turn: Turn, waits: bool) -> bool {
        let ours = self.order.queued(turn.class).class;
        // Work without GPUs takes the CPUs of any host.
        let competes = |other: &usize| {
            let theirs = self.order.queued(*other).class;
            let any_host = !ours.shape.needs_gpus() || !theirs.shape.needs_gpus();
            theirs.queue == ours.queue && (any_host || theirs.shape.meets(&ours.shape))
        };
        let head = waits && !self.heads.iter().any(competes);
        if head {
            self.heads.push(turn.class);
        }
        head
    }

    fn preemption(&mut self, turn: Turn, job: &'a Job, unit: UnitIndex) -> Option<Claimed> {
        let allocation_basis = allocation_basis_of(self.state, job);
        if allocation_basis == AllocationBasis::Opportunistic {
            return None;
        }
        let class = self.order.queued(turn.class).class;
        let (queue, user) = (Arc::clone(&class.queue), class.user.clone());
        let known = (self.demand(turn, job, unit), queue, user, job.spec.priority);
        if self.failed_preemptions.contains(&known) {
            return None;
        }
        let claimant = Claimant {
            job,
            unit,
            allocation_basis: &allocation_basis,
            now: self.now,
        };
        let allowance = self.allowance.for_unit(job, unit);
        let proposed = preempt::propose(&self.capacity, &allowance, claimant);
        if proposed.found.is_none() {
            self.failed_preemptions.insert(known);
            if let Some(end) = proposed.protection_ends {
                self.again_at(end);
            }
        }
        proposed.found.map(|found| Claimed {
            tasks: found.tasks,
            victims: found.victims,
            expected_at: Some(found.expected_at),
            moving: None,
            cost_gpu_ms: 0,
        })
    }

    /// Moves of other units, if room is only fragmented and the unit has waited long enough.
    fn moves(&mut self, job: &'a Job, unit: UnitIndex, shortage: &Shortage) -> Option<Claimed> {
        let state = self.state;
        let config = state.defragment.as_ref()?;
        if allocation_basis_of(state, job) != AllocationBasis::Share
            || !defragment::is_in_pieces(shortage)
        {
            return None;
        }
        let due = reserve::waits_since(state, job, unit).after(config.after_ms);
        if due > self.now {
            self.again_at(due);
            return None;
        }
        let ending = self.ending();
        let Some(found) = defragment::propose(&self.capacity, job, unit, &ending) else {
            // A newer checkpoint, or time alone, may make moves worth their cost.
            self.plan.moves_not_worthwhile = true;
            self.again_at(self.now.after(MOVES_TRIED_AGAIN_MS));
            return None;
        };
        let claimed = Claimed {
            tasks: found.tasks,
            victims: Vec::new(),
            expected_at: Some(found.expected_at),
            moving: Some(found.moving),
            cost_gpu_ms: found.cost_gpu_ms,
        };
        // A step that `apply` would refuse is not proposed, or it would be proposed again and again.
        if self.has_steps() || check_claim(state, &self.claiming(job, unit, &claimed)).is_ok() {
            return Some(claimed);
        }
        self.plan.moves_not_worthwhile = true;
        None
    }

    /// Whether a unit has waited long enough for a reservation, and its queue does not have too many.
    fn may_reserve(&mut self, job: &Job, unit: UnitIndex) -> bool {
        let Some(queue) = self.state.queues.get(job.spec.queue.as_str()) else {
            return false;
        };
        if allocation_basis_of(self.state, job) == AllocationBasis::Opportunistic {
            return false;
        }
        let due = reserve::waits_since(self.state, job, unit).after(queue.config.reserve_after_ms);
        if due > self.now {
            self.again_at(due);
            return false;
        }
        let of_queue = self.state.index.claims.keys().filter(|claimant| {
            let other = self.state.job(claimant.job);
            other.is_some_and(|other| other.spec.queue == job.spec.queue)
        });
        of_queue.count() < RESERVATIONS_PER_QUEUE_MAX
    }

    /// A reservation; for a unit whose queue is at its limit, on resources that others of the queue hold.
    fn reservation(
        &mut self,
        job: &'a Job,
        unit: UnitIndex,
        at_limit: Option<&str>,
    ) -> Option<Claimed> {
        let ending = self.ending();
        let allowance = self.allowance.for_unit(job, unit);
        let allocation_basis = allocation_basis_of(self.state, job);
        // The lack of room may have been found for another queue; this one may be at its limit.
        let is_allowed = |tasks: &[TaskPlacement]| {
            let amounts = amounts_of(&self.state.hosts, &job.spec, tasks);
            let reached =
                allowance.reached_by_claim(&job.spec, &allocation_basis, &amounts, Some(tasks));
            reached.is_none()
        };
        let propose =
            |capacity: &Capacity<'_>| reserve::propose(capacity, job, unit, &ending, is_allowed);
        let found = match at_limit {
            Some(queue) => {
                let held = reserve::held_by(self.state, queue, &ending);
                propose(&self.capacity.within(held))
            }
            None => propose(&self.capacity),
        }?;
        Some(Claimed {
            tasks: found.tasks,
            victims: Vec::new(),
            expected_at: found.expected_at,
            moving: None,
            cost_gpu_ms: 0,
        })
    }

    /// All running attempts by expected end.
    fn ending(&mut self) -> Arc<[(End, Running<'a>)]> {
        let (state, now) = (self.state, self.now);
        let ending = self.ending.get_or_insert_with(|| by_end(state, now).into());
        Arc::clone(ending)
    }

    /// Whether a unit may have what it claims once all attempts being stopped have ended.
    pub(super) fn is_entitled_after_stops(
        &self,
        job: &Job,
        unit: UnitIndex,
        claim: &Claim,
    ) -> bool {
        let later = self.allowance.for_unit(job, unit).without_stopping();
        let amounts = amounts_of(&self.state.hosts, &job.spec, &claim.tasks);
        let tasks = Some(&*claim.tasks);
        let reached = later.reached_by_claim(&job.spec, &claim.allocation_basis, &amounts, tasks);
        reached.is_none()
    }

    fn has_steps(&self) -> bool {
        !self.plan.steps.is_empty()
    }

    /// The unit only has to wait for what it claimed; the job's other units take their turn.
    fn wait_for_claim(&mut self, turn: Turn, job: &Job, blocker: Blocker) {
        if job.spec.units() == 1 {
            self.block_claimant(turn, blocker);
        } else {
            self.reserved.entry(job.id).or_insert(blocker);
        }
    }

    fn claim(&mut self, turn: Turn, job: &Job, unit: UnitIndex, claimed: Claimed) {
        let expected_at = claimed.expected_at;
        let blocker = match &claimed.moving {
            Some(moving) => Blocker::Moving {
                moves: moving.moves.len() as u64,
                cost_gpu_ms: claimed.cost_gpu_ms,
                gain_gpu_ms: moving.gain_gpu_ms,
                expected_at,
            },
            None => Blocker::Reserved {
                victims: claimed.victims.len() as u64,
                expected_at,
            },
        };
        self.block_claimant(turn, blocker);
        self.ended = true;
        let claiming = self.claiming(job, unit, &claimed);
        self.plan.steps.push(Command::Claim(claiming));
    }

    fn claiming(&self, job: &Job, unit: UnitIndex, claimed: &Claimed) -> ClaimSpec {
        ClaimSpec {
            leader: self.state.leadership.epoch,
            job: job.id,
            unit,
            tasks: Arc::from(claimed.tasks.as_slice()),
            basis: allocation_basis_of(self.state, job),
            victims: claimed.victims.clone(),
            supersedes: Vec::new(),
            expected_at: claimed.expected_at,
            moving: claimed.moving.clone(),
        }
    }
}
