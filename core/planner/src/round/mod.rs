//! Scheduling round: one pass over the waiting jobs in fair-share order, which places each unit that fits.
//!
//! A unit that finds no room may claim it ([`claims`](crate::claims)), which ends the round. Otherwise it is
//! refused with a reason; depending on its queue, the jobs behind it are backfilled or wait as well.

mod in_cells;
mod refusal;
mod trial;
mod vacancies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::state::{Claim, Job, Purpose, Running, State, amounts_of};
use muster_model::command::{AllocationBasis, Command, Placement, TaskPlacement};
use muster_model::ids::{HostId, JobId, TaskIndex, UnitId, UnitIndex};
use muster_model::time::TimeMs;

use crate::allowance::{Allowance, amounts_asked};
use crate::capacity::Capacity;
use crate::order::{Order, Turn};
use crate::running::End;
use crate::unit::{self, Shortage};
use crate::vc::Clusters;
use crate::{Blocker, Budget, Plan, Reason};

/// Key of whether a unit finds room in this round, in which room only shrinks: the number of its placement
/// class, the group of an independent task, and while something is reserved, the maximum run time.
pub(super) type Demand = (usize, usize, Option<u64>);

/// Key of whether a unit may preempt: its demand, its queue, its user if limits count per user, and its
/// priority.
pub(super) type PreemptionKey = (Demand, Arc<str>, Option<Arc<str>>, i32);

/// Reason why a unit is not placed in this round.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) blocker: Blocker,
    /// Present if the unit lacks room and could ever have it.
    pub(super) shortage: Option<Shortage>,
}

/// State of one round.
pub(super) struct Round<'a> {
    pub(super) state: &'a State,
    pub(super) now: TimeMs,
    budget: Budget,
    pub(super) capacity: Capacity<'a>,
    pub(super) order: Order<'a>,
    pub(super) allowance: Allowance<'a>,
    clusters: Clusters<'a>,
    refused: BTreeMap<Demand, Refusal>,
    /// Hosts with bound cells of virtual clusters at the time at which an opportunistic unit first needed them.
    bound_hosts: Option<Arc<BTreeSet<HostId>>>,
    /// Demands for which there is no room on other hosts.
    full_outside_cells: BTreeSet<Demand>,
    /// Waiting classes that were closed before all their jobs had their turn, with the blocker.
    closed: BTreeMap<usize, Blocker>,
    /// Waiting classes whose head waits for room, the first of each queue and kind of hosts.
    pub(super) heads: Vec<usize>,
    /// Units placed before their turn because what they had claimed was free.
    pub(super) placed_early: BTreeSet<UnitId>,
    /// Jobs by waiting class that have no waiting unit left before their turn.
    pub(super) done_early: BTreeSet<(usize, JobId)>,
    /// All attempts by expected end, computed when a reservation first needs them.
    pub(super) ending: Option<Arc<[(End, Running<'a>)]>>,
    /// Demands with queue and priority for which no attempt can be preempted.
    pub(super) failed_preemptions: BTreeSet<PreemptionKey>,
    /// Jobs of several units of which one has a claim and no other was refused so far.
    pub(super) reserved: BTreeMap<JobId, Blocker>,
    /// Jobs of several units of which some wait for the end of their back-off, with the earliest end.
    back_offs: BTreeMap<JobId, TimeMs>,
    /// Capacity without any claims, valid after the given number of steps of the round.
    unclaimed: Option<(usize, Capacity<'a>)>,
    /// Number of units whose lack of room was diagnosed.
    diagnosed: usize,
    /// Further decisions depend on the last one, usually a claim: they are left to the next round.
    pub(super) ended: bool,
    examined: usize,
    /// Units placed in this round, for jobs that limit their units at a time.
    placed_at_once: BTreeMap<JobId, u64>,
    /// Units that may claim nothing in this round.
    pub(super) barred: BTreeSet<UnitId>,
    pub(super) plan: Plan,
}

/// Result of a round.
pub(super) struct RoundOutcome {
    pub(super) plan: Plan,
    /// Whether the rest is left to another round that takes account of its decisions.
    pub(super) ended: bool,
    pub(super) examined: usize,
}

impl<'a> Round<'a> {
    pub(super) fn new(state: &'a State, now: TimeMs, budget: Budget) -> Self {
        Self {
            state,
            // Stamps never decrease, even if the wall clock does.
            now: now.max(state.time),
            budget,
            capacity: Capacity::new(state).at(now.max(state.time)),
            order: Order::new(state),
            allowance: Allowance::new(state),
            clusters: Clusters::new(state),
            refused: BTreeMap::new(),
            bound_hosts: None,
            full_outside_cells: BTreeSet::new(),
            closed: BTreeMap::new(),
            heads: Vec::new(),
            placed_early: BTreeSet::new(),
            done_early: BTreeSet::new(),
            ending: None,
            failed_preemptions: BTreeSet::new(),
            reserved: BTreeMap::new(),
            back_offs: BTreeMap::new(),
            unclaimed: None,
            diagnosed: 0,
            ended: false,
            examined: 0,
            placed_at_once: BTreeMap::new(),
            barred: BTreeSet::new(),
            plan: Plan::default(),
        }
    }

    /// The same round without claims for some units, whose claims were refused.
    pub(super) fn barring(mut self, barred: BTreeSet<UnitId>) -> Self {
        self.barred = barred;
        self
    }

    pub(super) fn run(mut self) -> RoundOutcome {
        self.fill_vacancies();
        self.place_claimed();
        while self.step().is_some() {}
        self.upgrade();
        self.count_held();
        let not_over = (self.now.after(1), UnitId::MIN)..;
        let delayed = self.state.index.delayed.range(not_over).next();
        let delayed_until = delayed.map(|(end, _)| *end);
        let held_until = self.state.held_look_at(self.now);
        for at in delayed_until.into_iter().chain(held_until) {
            self.again_at(at);
        }
        RoundOutcome {
            plan: self.plan,
            ended: self.ended,
            examined: self.examined,
        }
    }

    /// Jobs that wait for others to end and suspended jobs have no turn, but are counted.
    fn count_held(&mut self) {
        let index = &self.state.index;
        let waits = |id: &&JobId| (self.state.job(**id)).is_some_and(|job| job.counts.waiting > 0);
        let suspended: Vec<&JobId> = index.suspended.iter().filter(waits).collect();
        // A job that is held in both ways is reported as suspended.
        let both = suspended.iter().filter(|id| index.is_held(***id)).count() as u64;
        if !suspended.is_empty() {
            *self.plan.waiting.entry(Reason::Suspended).or_default() += suspended.len() as u64;
        }
        let held = index.held_jobs() - both;
        if held > 0 {
            *self.plan.waiting.entry(Reason::Dependencies).or_default() += held;
        }
    }

    /// Records a time at which there is something to decide at the latest.
    pub(super) fn again_at(&mut self, at: TimeMs) {
        let known = self.plan.again_at;
        self.plan.again_at = Some(known.map_or(at, |known| known.min(at)));
    }

    /// Gives the next job its turn for one unit and returns that turn; `None` if all had their turn or the
    /// budget is spent.
    pub(super) fn step(&mut self) -> Option<Turn> {
        let turn = self.order.next()?;
        if self.ended || self.is_over_budget() {
            self.plan.more = true;
            return None;
        }
        self.examined += 1;
        self.examine(turn);
        Some(turn)
    }

    pub(super) fn is_over_budget(&self) -> bool {
        self.plan.steps.len() >= self.budget.steps_max || self.examined >= self.budget.examined_max
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn order(&self) -> &Order<'a> {
        &self.order
    }

    /// Whether a job has no waiting unit left although it had no turn.
    pub(super) fn is_done_early(&self, class: usize, job: JobId) -> bool {
        self.done_early.contains(&(class, job))
    }

    /// Blocker of a waiting class that was closed.
    pub(super) fn closed(&self, class: usize) -> Option<&Blocker> {
        self.closed.get(&class)
    }

    /// Places the next unit of the job whose turn it is.
    fn examine(&mut self, turn: Turn) {
        let Some(job) = self.state.job(turn.job) else {
            self.order.pass(turn);
            return;
        };
        if self.done_early.remove(&(turn.class, job.id)) {
            self.order.pass(turn);
            return;
        }
        if job.cancel.is_some() {
            self.block(turn, Blocker::Cancelling);
            return;
        }
        if let Some(max) = self.at_once_reached(job) {
            self.block(turn, Blocker::TasksAtOnce { max });
            return;
        }
        let Some(unit) = self.next_ready_unit(turn, job) else {
            self.end_turns(turn, job.id);
            return;
        };
        match self.place(turn, job, unit) {
            Ok(()) if job.spec.units() == 1 => self.order.pass(turn),
            Ok(()) => {}
            Err(refusal) => self.refuse_unit(turn, job, unit, refusal),
        }
    }

    /// The next unit of a job that may start now and was not placed early. For units that are passed over
    /// because they may start only later, the earliest such time is recorded.
    fn next_ready_unit(&mut self, turn: Turn, job: &Job) -> Option<UnitIndex> {
        let held_until = self.state.held_until(job);
        while let Some(unit) = self.order.next_unit(turn) {
            let back_off_until = job
                .unit(unit)
                .map_or(TimeMs::default(), |known| known.not_before);
            let not_before = back_off_until.max(held_until);
            if not_before > self.now {
                let earliest = self.back_offs.entry(job.id).or_insert(not_before);
                *earliest = not_before.min(*earliest);
            } else if !self.placed_early.contains(&UnitId::new(job.id, unit)) {
                return Some(unit);
            }
        }
        None
    }

    /// Ends the turns of a job none of whose units is left to be placed: it waits for what one of them
    /// claims or, if none does, for the end of the first back-off.
    fn end_turns(&mut self, turn: Turn, job: JobId) {
        let back_off = self.back_offs.remove(&job);
        if let Some(claimed) = self.reserved.remove(&job) {
            self.block_claimant(turn, claimed);
        } else if let Some(until) = back_off {
            self.block(turn, Blocker::BackOff { until });
        } else {
            self.order.pass(turn);
        }
    }

    /// The job's limit of units at a time, if it is reached, counting those placed in this round.
    pub(super) fn at_once_reached(&self, job: &Job) -> Option<u32> {
        let max = job.spec.lifecycle.tasks_at_once_max?;
        let placed = self.placed_at_once.get(&job.id).copied().unwrap_or(0);
        (job.counts.active() + placed >= u64::from(max)).then_some(max)
    }

    /// The job waits; those behind it take their turn.
    pub(super) fn block(&mut self, turn: Turn, blocker: Blocker) {
        *self.plan.waiting.entry(blocker.reason()).or_default() += 1;
        self.plan.blocked.push((turn.job, blocker));
        self.order.pass(turn);
    }

    /// Blocks the job and its waiting class; if the queue does not backfill, also all jobs behind it that
    /// compete with it.
    pub(super) fn refuse(&mut self, turn: Turn, refusal: Refusal) {
        let queued = self.order.queued(turn.class);
        let uniform = queued.class.shape.is_uniform();
        let blocker = refusal.blocker.clone();
        self.block(turn, refusal.blocker);
        let held = match refusal.shortage {
            Some(shortage) => self.hold_behind(turn, shortage.lacks_gpus),
            None => false,
        };
        if !held && uniform {
            self.close(turn.class, blocker);
        }
    }

    /// If the queue does not backfill, blocks all jobs behind that compete with the job; returns whether
    /// that is the case.
    fn hold_behind(&mut self, turn: Turn, lacks_gpus: bool) -> bool {
        let queue = self
            .state
            .queues
            .get(&self.order.queued(turn.class).class.queue);
        if queue.is_none_or(|queue| queue.config.backfill) {
            return false;
        }
        let ahead = turn.job;
        for class in self.order.competing(turn.class, lacks_gpus) {
            self.close(class, Blocker::BehindHead { ahead });
        }
        true
    }

    /// Blocks the job until what it claims is free. If the queue does not backfill, no job overtakes it
    /// meanwhile.
    pub(super) fn block_claimant(&mut self, turn: Turn, blocker: Blocker) {
        self.block(turn, blocker);
        let needs_gpus = self.order.queued(turn.class).class.shape.needs_gpus();
        self.hold_behind(turn, needs_gpus);
    }

    fn close(&mut self, class: usize, blocker: Blocker) {
        let jobs = (class, JobId(0))..=(class, JobId(u64::MAX));
        let done = self.done_early.range(jobs).count() as u64;
        let left = self.order.close(class).saturating_sub(done);
        if left > 0 {
            *self.plan.waiting.entry(blocker.reason()).or_default() += left;
            self.closed.insert(class, blocker);
        }
    }

    pub(super) fn place(&mut self, turn: Turn, job: &Job, unit: UnitIndex) -> Result<(), Refusal> {
        if self.clusters.serves(job, unit) {
            return self.place_in_cells(turn, job, unit);
        }
        let claim = job.unit(unit).and_then(|known| known.claim.as_deref());
        let demand = self.demand(turn, job, unit);
        if claim.is_none()
            && let Some(refusal) = self.refused.get(&demand)
        {
            return Err(refusal.clone());
        }
        let allocation_basis = self.allocation_basis_without_gpus(job);
        match self.find(turn, job, unit, &allocation_basis) {
            Ok(tasks) => {
                self.propose_placement(turn, job, unit, tasks, allocation_basis);
                Ok(())
            }
            // Attempts being stopped count until they have ended.
            Err(Missing::Allowance(_))
                if let Some(claim) = claim
                    && self.is_entitled_after_stops(job, unit, claim) =>
            {
                Err(reserved(claim).into())
            }
            Err(Missing::Allowance(refusal)) => Err(refusal),
            Err(Missing::Room(_)) if let Some(claim) = claim => Err(reserved(claim).into()),
            Err(Missing::Room(shortage)) => {
                let refusal = self.refusal(job, unit, shortage);
                self.refused.insert(demand, refusal.clone());
                Err(refusal)
            }
        }
    }

    /// Allocates room for a unit, or returns what is missing.
    fn find(
        &mut self,
        turn: Turn,
        job: &Job,
        unit: UnitIndex,
        allocation_basis: &AllocationBasis,
    ) -> Result<Vec<TaskPlacement>, Missing> {
        if self.order.queued(turn.class).limited {
            self.check_limits(job, allocation_basis, unit)
                .map_err(Missing::Allowance)?;
            return self.find_within_limits(turn, job, unit, allocation_basis);
        }
        if let Some(tasks) = self.find_outside_cells(turn, job, unit, allocation_basis) {
            let requester = self.capacity.requester(job, unit);
            self.capacity.commit(requester, &tasks);
            return Ok(tasks);
        }
        unit::place(&mut self.capacity, job, unit)
            .map(|placed| placed.tasks)
            .map_err(Missing::Room)
    }

    /// Room for the whole of an opportunistic unit on hosts without bound cells: in a bound cell, the next unit of
    /// the owner would preempt it.
    fn find_outside_cells(
        &mut self,
        turn: Turn,
        job: &Job,
        unit: UnitIndex,
        allocation_basis: &AllocationBasis,
    ) -> Option<Vec<TaskPlacement>> {
        if *allocation_basis != AllocationBasis::Opportunistic {
            return None;
        }
        let hosts = Arc::clone(
            self.bound_hosts
                .get_or_insert_with(|| self.clusters.bound_hosts()),
        );
        let demand = self.demand(turn, job, unit);
        if hosts.is_empty() || self.full_outside_cells.contains(&demand) {
            return None;
        }
        let mut outside = self.capacity.without_hosts(hosts.iter().copied());
        let placed = unit::place(&mut outside, job, unit);
        let wanted = job.tasks_of(unit).len();
        let whole = placed.ok().filter(|placed| placed.tasks.len() == wanted);
        if whole.is_none() {
            self.full_outside_cells.insert(demand);
        }
        whole.map(|placed| placed.tasks)
    }

    /// Allocation basis of a unit without GPUs in cells: work of a virtual cluster without GPUs still
    /// counts as guaranteed.
    fn allocation_basis_without_gpus(&self, job: &Job) -> AllocationBasis {
        let is_firm = !job.spec.scheduling.opportunistic;
        match is_firm && self.clusters.is_cluster(&job.spec.queue) {
            true => AllocationBasis::Cells(Vec::new()),
            false => allocation_basis_of(self.state, job),
        }
    }

    pub(super) fn demand(&self, turn: Turn, job: &Job, unit: UnitIndex) -> Demand {
        let queued = self.order.queued(turn.class);
        let group = match queued.class.shape.is_uniform() {
            true => 0,
            false => group_position(job, unit),
        };
        let shape = &queued.class.shape;
        let index = &self.state.index;
        let counts = !index.claims.is_empty() || !index.planned.is_empty();
        let run_time_ms = shape.run_time_ms().filter(|_| counts);
        (queued.placement_class, group, run_time_ms)
    }

    fn check_limits(
        &self,
        job: &Job,
        allocation_basis: &AllocationBasis,
        unit: UnitIndex,
    ) -> Result<(), Refusal> {
        let asked = amounts_asked(job, unit);
        let allowance = self.allowance.for_unit(job, unit);
        match allowance.reached(&job.spec, allocation_basis, &asked) {
            Some(limit) => Err(Blocker::Limit(Box::new(limit)).into()),
            None => Ok(()),
        }
    }

    /// Room on GPUs of a model of which the queue may have more.
    fn find_within_limits(
        &mut self,
        turn: Turn,
        job: &Job,
        unit: UnitIndex,
        allocation_basis: &AllocationBasis,
    ) -> Result<Vec<TaskPlacement>, Missing> {
        let mut trial = self.capacity.clone();
        let tasks = match self.find_outside_cells(turn, job, unit, allocation_basis) {
            Some(tasks) => {
                trial.commit(trial.requester(job, unit), &tasks);
                tasks
            }
            None => {
                let placed = unit::place(&mut trial, job, unit);
                placed.map_err(Missing::Room)?.tasks
            }
        };
        let amounts = amounts_of(&self.state.hosts, &job.spec, &tasks);
        let allowance = self.allowance.for_unit(job, unit);
        if let Some(limit) = allowance.reached(&job.spec, allocation_basis, &amounts) {
            return Err(Missing::Allowance(Blocker::Limit(Box::new(limit)).into()));
        }
        self.capacity = trial;
        Ok(tasks)
    }

    fn propose_placement(
        &mut self,
        turn: Turn,
        job: &Job,
        unit: UnitIndex,
        tasks: Vec<TaskPlacement>,
        allocation_basis: AllocationBasis,
    ) {
        let amounts = amounts_of(&self.state.hosts, &job.spec, &tasks);
        if self.order.queued(turn.class).limited {
            self.allowance = self.allowance.for_unit(job, unit);
            self.allowance
                .charge(&job.spec, &allocation_basis, &amounts);
        }
        if job.spec.lifecycle.tasks_at_once_max.is_some() {
            *self.placed_at_once.entry(job.id).or_default() += 1;
        }
        let opportunistic = allocation_basis == AllocationBasis::Opportunistic;
        self.order.charge(turn.class, &amounts, opportunistic);
        self.plan.steps.push(Command::Place(Placement {
            leader: self.state.leadership.epoch,
            job: job.id,
            unit,
            tasks: Arc::from(tasks),
            basis: allocation_basis,
            barrier: false,
        }));
    }
}

fn reserved(claim: &Claim) -> Blocker {
    if let Purpose::Gathered {
        moved,
        cost_gpu_ms,
        gain_gpu_ms,
    } = &claim.purpose
    {
        return Blocker::Moving {
            moves: moved.len() as u64,
            cost_gpu_ms: *cost_gpu_ms,
            gain_gpu_ms: *gain_gpu_ms,
            expected_at: claim.expected_at,
        };
    }
    Blocker::Reserved {
        victims: claim.victims.len() as u64,
        expected_at: claim.expected_at,
    }
}

/// What a unit is missing.
enum Missing {
    Room(Shortage),
    Allowance(Refusal),
}

/// Allocation basis of a job. Work of a virtual cluster that is given no cells runs as opportunistic.
pub(super) fn allocation_basis_of(state: &State, job: &Job) -> AllocationBasis {
    match job.spec.scheduling.opportunistic || wants_cells(state, job) {
        true => AllocationBasis::Opportunistic,
        false => AllocationBasis::Share,
    }
}

/// Whether the job's guarantee is given in cells.
fn wants_cells(state: &State, job: &Job) -> bool {
    let queue = state.queues.get(job.spec.queue.as_str());
    let needs_gpus = || job.spec.groups.iter().any(|group| group.resources.gpus > 0);
    queue.is_some_and(|queue| queue.config.is_virtual_cluster() && !queue.retired) && needs_gpus()
}

/// Position of the group of an independent task.
fn group_position(job: &Job, unit: UnitIndex) -> usize {
    let group = job.spec.group_of(TaskIndex(unit.get()));
    let name = group.map(|(group, _)| group.name.as_str());
    let mut groups = job.spec.groups.iter();
    groups
        .position(|group| Some(group.name.as_str()) == name)
        .unwrap_or_default()
}
