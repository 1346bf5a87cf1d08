//! One planning round: the jobs in order, unit by unit, each placed where there is room.

mod in_cells;
mod refusal;
mod trial;
mod vacancies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::state::{Claim, Job, Purpose, State, amounts_of};
use muster_model::command::{Command, Placement, Standing, TaskPlacement};
use muster_model::ids::{JobId, TaskIndex, UnitIndex};
use muster_model::time::TimeMs;

use crate::allowance::{Allowance, amounts_asked};
use crate::capacity::Capacity;
use crate::order::{Order, Turn};
use crate::running::{End, Running};
use crate::unit::{self, Shortage};
use crate::vc::Clusters;
use crate::{Blocker, Budget, Plan, Reason};

/// What decides whether a unit finds room in this round, where room only shrinks: the place's number, the group that an
/// independent task belongs to, and while something is reserved, how long it may run.
pub(super) type Demand = (usize, usize, Option<u64>);

/// What decides whether a unit may preempt somebody: its demand, its queue, its user where limits count by user, and its
/// priority.
pub(super) type Powerless = (Demand, Arc<str>, Option<Arc<str>>, i32);

/// Why a unit is not placed in this round.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) blocker: Blocker,
    /// Present if room is what it lacks, and it could ever have it.
    pub(super) shortage: Option<Shortage>,
}

/// The state of one round.
pub(super) struct Round<'a> {
    pub(super) state: &'a State,
    pub(super) now: TimeMs,
    budget: Budget,
    pub(super) capacity: Capacity<'a>,
    pub(super) order: Order<'a>,
    pub(super) allowance: Allowance<'a>,
    clusters: Clusters<'a>,
    refused: BTreeMap<Demand, Refusal>,
    /// Lines that were closed before all their jobs had their turn, and what keeps those.
    closed: BTreeMap<usize, Blocker>,
    /// Lines whose head waits for room, the first of each queue and kind of hosts.
    pub(super) heads: Vec<usize>,
    /// Units placed before their turn: what they had claimed was free.
    pub(super) placed_early: BTreeSet<(JobId, UnitIndex)>,
    /// Jobs, by their lines, of which nothing waits any more before their turn.
    pub(super) done_early: BTreeSet<(usize, JobId)>,
    /// All attempts by when they should end, once a reservation asked for them.
    pub(super) ending: Option<Arc<[(End, Running<'a>)]>>,
    /// Units for whose queue and place nobody can be preempted.
    pub(super) powerless: BTreeSet<Powerless>,
    /// Jobs of several units of which one has a claim, and nothing else of them was refused so far.
    pub(super) reserved: BTreeMap<JobId, Blocker>,
    /// Jobs of several units of which some wait for the end of their back-off, and the first such end.
    back_offs: BTreeMap<JobId, TimeMs>,
    /// What there would be if nothing were claimed, after so many steps of the round.
    unclaimed: Option<(usize, Capacity<'a>)>,
    /// Units for whose lack of room a reason was looked for.
    diagnosed: usize,
    /// What comes next depends on what was decided, a claim mostly: it is left to the next round.
    pub(super) ended: bool,
    examined: usize,
    /// Units placed in this round of jobs that may have only so many at a time.
    placed_at_once: BTreeMap<JobId, u64>,
    /// Units that claim nothing in this round.
    pub(super) barred: BTreeSet<(JobId, UnitIndex)>,
    pub(super) plan: Plan,
}

/// What a round came to.
pub(super) struct Ran {
    pub(super) plan: Plan,
    /// Whether it left the rest to a round that sees what it decided.
    pub(super) ended: bool,
    pub(super) examined: usize,
}

impl<'a> Round<'a> {
    pub(super) fn new(state: &'a State, now: TimeMs, budget: Budget) -> Self {
        Self {
            state,
            // Stamps never go back, even where the wall clock does.
            now: now.max(state.time),
            budget,
            capacity: Capacity::new(state).at(now.max(state.time)),
            order: Order::new(state),
            allowance: Allowance::new(state),
            clusters: Clusters::new(state),
            refused: BTreeMap::new(),
            closed: BTreeMap::new(),
            heads: Vec::new(),
            placed_early: BTreeSet::new(),
            done_early: BTreeSet::new(),
            ending: None,
            powerless: BTreeSet::new(),
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

    /// The same round without claims for some units: they were refused.
    pub(super) fn barring(mut self, barred: BTreeSet<(JobId, UnitIndex)>) -> Self {
        self.barred = barred;
        self
    }

    pub(super) fn run(mut self) -> Ran {
        self.fill_vacancies();
        self.place_claimed();
        while self.step().is_some() {}
        self.upgrade();
        self.count_held();
        let not_over = (self.now.after(1), JobId(0), UnitIndex(0))..;
        let first = self.state.index.delayed.range(not_over).next();
        let first = first.map(|(end, _, _)| *end);
        for at in [first, self.state.held_look_at(self.now)]
            .into_iter()
            .flatten()
        {
            self.again_at(at);
        }
        Ran {
            plan: self.plan,
            ended: self.ended,
            examined: self.examined,
        }
    }

    /// Jobs that wait for others to end, and suspended ones, have no turn, and are counted all the same.
    fn count_held(&mut self) {
        let index = &self.state.index;
        let waits = |id: &&JobId| (self.state.job(**id)).is_some_and(|job| job.counts.waiting > 0);
        let suspended: Vec<&JobId> = index.suspended.iter().filter(waits).collect();
        // A job that is kept back in both ways is told to be suspended.
        let both = suspended.iter().filter(|id| index.is_held(***id)).count() as u64;
        if !suspended.is_empty() {
            *self.plan.waiting.entry(Reason::Suspended).or_default() += suspended.len() as u64;
        }
        let held = index.held_jobs() - both;
        if held > 0 {
            *self.plan.waiting.entry(Reason::Dependencies).or_default() += held;
        }
    }

    /// There is something to decide then at the latest.
    pub(super) fn again_at(&mut self, at: TimeMs) {
        let known = self.plan.again_at;
        self.plan.again_at = Some(known.map_or(at, |known| known.min(at)));
    }

    /// Gives the next job its turn, for one unit, and says which it was; none if all had their turn or the budget is
    /// used up.
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

    /// Whether nothing of a job waits any more although it had no turn.
    pub(super) fn is_done_early(&self, line: usize, job: JobId) -> bool {
        self.done_early.contains(&(line, job))
    }

    /// What keeps the jobs of a line that was closed.
    pub(super) fn closed(&self, line: usize) -> Option<&Blocker> {
        self.closed.get(&line)
    }

    /// Places the next unit of the job whose turn it is.
    fn examine(&mut self, turn: Turn) {
        let Some(job) = self.state.job(turn.job) else {
            self.order.pass(turn);
            return;
        };
        if self.done_early.remove(&(turn.line, job.id)) {
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
        let held_until = self.state.held_until(job);
        let unit = loop {
            let Some(unit) = self.order.next_unit(turn) else {
                let until = self.back_offs.remove(&job.id);
                let back_off = until.map(|until| Blocker::BackOff { until });
                match (self.reserved.remove(&job.id), back_off) {
                    (Some(claimed), _) => self.block_claimant(turn, claimed),
                    (None, Some(blocker)) => self.block(turn, blocker),
                    (None, None) => self.order.pass(turn),
                }
                return;
            };
            let known = job.unit(unit);
            let not_before = known.map_or(TimeMs::default(), |known| known.not_before);
            let not_before = not_before.max(held_until);
            if not_before <= self.now && !self.placed_early.contains(&(job.id, unit)) {
                break unit;
            }
            if not_before <= self.now {
                continue;
            }
            let until = self.back_offs.entry(job.id).or_insert(not_before);
            *until = not_before.min(*until);
        };
        match self.place(turn, job, unit) {
            Ok(()) if job.spec.units() == 1 => self.order.pass(turn),
            Ok(()) => {}
            Err(refusal) => self.refuse_unit(turn, (job, unit), refusal),
        }
    }

    /// The most units that a job may have at a time, if it has as many, those placed in this round included.
    pub(super) fn at_once_reached(&self, job: &Job) -> Option<u32> {
        let max = job.spec.lifecycle.tasks_at_once_max?;
        let placed = self.placed_at_once.get(&job.id).copied().unwrap_or(0);
        (job.counts.active() + placed >= u64::from(max)).then_some(max)
    }

    /// The job has to wait; those behind it go on.
    pub(super) fn block(&mut self, turn: Turn, blocker: Blocker) {
        *self.plan.waiting.entry(blocker.reason()).or_default() += 1;
        self.plan.blocked.push((turn.job, blocker));
        self.order.pass(turn);
    }

    /// The job has to wait, and with it those of its line; where the queue does not backfill, all those behind it
    /// that compete with it.
    pub(super) fn refuse(&mut self, turn: Turn, refusal: Refusal) {
        let queued = self.order.line(turn.line);
        let uniform = queued.line.shape.is_uniform();
        let blocker = refusal.blocker.clone();
        self.block(turn, refusal.blocker);
        let held = match refusal.shortage {
            Some(shortage) => self.hold_behind(turn, shortage.lacks_gpus),
            None => false,
        };
        if !held && uniform {
            self.close(turn.line, blocker);
        }
    }

    /// Where the queue does not backfill, all those behind a job wait that compete with it; returns whether that is so.
    fn hold_behind(&mut self, turn: Turn, lacks_gpus: bool) -> bool {
        let queue = self
            .state
            .queues
            .get(&self.order.line(turn.line).line.queue);
        if queue.is_none_or(|queue| queue.config.backfill) {
            return false;
        }
        let ahead = turn.job;
        for line in self.order.competing(turn.line, lacks_gpus) {
            self.close(line, Blocker::Behind { ahead });
        }
        true
    }

    /// The job has to wait until what it claims is free. Nobody passes it meanwhile where nobody passes.
    pub(super) fn block_claimant(&mut self, turn: Turn, blocker: Blocker) {
        self.block(turn, blocker);
        let needs_gpus = self.order.line(turn.line).line.shape.needs_gpus();
        self.hold_behind(turn, needs_gpus);
    }

    fn close(&mut self, line: usize, blocker: Blocker) {
        let jobs = (line, JobId(0))..=(line, JobId(u64::MAX));
        let done = self.done_early.range(jobs).count() as u64;
        let left = self.order.close(line).saturating_sub(done);
        if left > 0 {
            *self.plan.waiting.entry(blocker.reason()).or_default() += left;
            self.closed.insert(line, blocker);
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
        let standing = self.standing_without_gpus(job);
        match self.find(turn, (job, unit), &standing) {
            Ok(tasks) => {
                self.give(turn, (job, unit), (tasks, standing));
                Ok(())
            }
            // What is being stopped counts until it has ended.
            Err(Wanting::Allowance(_))
                if let Some(claim) = claim
                    && self.may_have_soon((job, unit), claim) =>
            {
                Err(reserved(claim).into())
            }
            Err(Wanting::Allowance(refusal)) => Err(refusal),
            Err(Wanting::Room(_)) if let Some(claim) = claim => Err(reserved(claim).into()),
            Err(Wanting::Room(shortage)) => {
                let refusal = self.refusal(job, unit, shortage);
                self.refused.insert(demand, refusal.clone());
                Err(refusal)
            }
        }
    }

    /// Room for a unit, taken; or what it lacks.
    fn find(
        &mut self,
        turn: Turn,
        (job, unit): (&Job, UnitIndex),
        standing: &Standing,
    ) -> Result<Vec<TaskPlacement>, Wanting> {
        if self.order.line(turn.line).limited {
            self.check_limits(job, standing, unit)
                .map_err(Wanting::Allowance)?;
            return self.find_within_limits(job, unit, standing);
        }
        unit::place(&mut self.capacity, job, unit)
            .map(|placed| placed.tasks)
            .map_err(Wanting::Room)
    }

    /// On what ground a unit holds its resources that has no GPU in cells: work of a virtual cluster without GPUs counts
    /// on the cluster all the same.
    fn standing_without_gpus(&self, job: &Job) -> Standing {
        let is_firm = !job.spec.scheduling.opportunistic;
        match is_firm && self.clusters.is_cluster(&job.spec.queue) {
            true => Standing::Cells(Vec::new()),
            false => standing_of(self.state, job),
        }
    }

    pub(super) fn demand(&self, turn: Turn, job: &Job, unit: UnitIndex) -> Demand {
        let queued = self.order.line(turn.line);
        let group = match queued.line.shape.is_uniform() {
            true => 0,
            false => group_position(job, unit),
        };
        let shape = &queued.line.shape;
        let index = &self.state.index;
        let counts = !index.claims.is_empty() || !index.planned.is_empty();
        let run_time_ms = shape.run_time_ms().filter(|_| counts);
        (queued.places, group, run_time_ms)
    }

    fn check_limits(&self, job: &Job, standing: &Standing, unit: UnitIndex) -> Result<(), Refusal> {
        let asked = amounts_asked(job, unit);
        let allowance = self.allowance.for_unit(job, unit);
        match allowance.reached(&job.spec, standing, &asked) {
            Some(limit) => Err(Blocker::Limit(Box::new(limit)).into()),
            None => Ok(()),
        }
    }

    /// Room on GPUs of a model of which the queue may have more.
    fn find_within_limits(
        &mut self,
        job: &Job,
        unit: UnitIndex,
        standing: &Standing,
    ) -> Result<Vec<TaskPlacement>, Wanting> {
        let mut trial = self.capacity.clone();
        let tasks = unit::place(&mut trial, job, unit)
            .map_err(Wanting::Room)?
            .tasks;
        let amounts = amounts_of(&self.state.hosts, &job.spec, &tasks);
        let allowance = self.allowance.for_unit(job, unit);
        if let Some(limit) = allowance.reached(&job.spec, standing, &amounts) {
            return Err(Wanting::Allowance(Blocker::Limit(Box::new(limit)).into()));
        }
        self.capacity = trial;
        Ok(tasks)
    }

    fn give(
        &mut self,
        turn: Turn,
        (job, unit): (&Job, UnitIndex),
        (tasks, standing): (Vec<TaskPlacement>, Standing),
    ) {
        let amounts = amounts_of(&self.state.hosts, &job.spec, &tasks);
        if self.order.line(turn.line).limited {
            self.allowance = self.allowance.for_unit(job, unit);
            self.allowance.give(&job.spec, &standing, &amounts);
        }
        if job.spec.lifecycle.tasks_at_once_max.is_some() {
            *self.placed_at_once.entry(job.id).or_default() += 1;
        }
        let opportunistic = standing == Standing::Opportunistic;
        self.order.give(turn.line, &amounts, opportunistic);
        self.plan.steps.push(Command::Place(Placement {
            leader: self.state.leadership.epoch,
            job: job.id,
            unit,
            tasks: Arc::from(tasks),
            standing,
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

/// What a unit lacks.
enum Wanting {
    Room(Shortage),
    Allowance(Refusal),
}

/// On what ground a job holds its resources. Work of a virtual cluster that is not given cells goes on as opportunistic.
pub(super) fn standing_of(state: &State, job: &Job) -> Standing {
    match job.spec.scheduling.opportunistic || wants_cells(state, job) {
        true => Standing::Opportunistic,
        false => Standing::Share,
    }
}

/// Whether the guarantee that a job counts on is given in cells.
fn wants_cells(state: &State, job: &Job) -> bool {
    let queue = state.queues.get(job.spec.queue.as_str());
    let needs_gpus = || job.spec.groups.iter().any(|group| group.resources.gpus > 0);
    queue.is_some_and(|queue| queue.config.is_virtual_cluster() && !queue.retired) && needs_gpus()
}

/// Which group an independent task belongs to.
fn group_position(job: &Job, unit: UnitIndex) -> usize {
    let group = job.spec.group_of(TaskIndex(unit.get()));
    let name = group.map(|(group, _)| group.name.as_str());
    let mut groups = job.spec.groups.iter();
    groups
        .position(|group| Some(group.name.as_str()) == name)
        .unwrap_or_default()
}
