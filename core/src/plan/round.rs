//! One planning round: the jobs in order, unit by unit, each placed where there is room.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::command::{Command, Placement, Standing, TaskPlacement};
use crate::ids::{JobId, TaskIndex, UnitIndex};
use crate::plan::allowance::{Allowance, amounts_asked};
use crate::plan::capacity::Capacity;
use crate::plan::order::{Order, Turn};
use crate::plan::unit::{self, Shortage};
use crate::plan::{Blocker, Budget, Plan, potential};
use crate::state::{Job, State, amounts_of};
use crate::time::TimeMs;

/// What decides whether a unit finds room in this round, where room only shrinks: the place's number, and the group
/// that an independent task belongs to.
type Demand = (usize, usize);

/// Why a unit is not placed in this round.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) blocker: Blocker,
    /// Present if room is what it lacks, and it could ever have it.
    pub(super) shortage: Option<Shortage>,
}

impl From<Blocker> for Refusal {
    fn from(blocker: Blocker) -> Self {
        Self {
            blocker,
            shortage: None,
        }
    }
}

/// The state of one round.
pub(super) struct Round<'a> {
    state: &'a State,
    now: TimeMs,
    budget: Budget,
    capacity: Capacity<'a>,
    order: Order<'a>,
    allowance: Allowance<'a>,
    refused: BTreeMap<Demand, Refusal>,
    /// Lines that were closed before all their jobs had their turn, and what keeps those.
    closed: BTreeMap<usize, Blocker>,
    examined: usize,
    plan: Plan,
}

impl<'a> Round<'a> {
    pub(super) fn new(state: &'a State, now: TimeMs, budget: Budget) -> Self {
        Self {
            state,
            // Stamps never go back, even where the wall clock does.
            now: now.max(state.time),
            budget,
            capacity: Capacity::new(state),
            order: Order::new(state),
            allowance: Allowance::new(state),
            refused: BTreeMap::new(),
            closed: BTreeMap::new(),
            examined: 0,
            plan: Plan::default(),
        }
    }

    pub(super) fn run(mut self) -> Plan {
        while self.step().is_some() {}
        let not_over = (self.now.after(1), JobId(0), UnitIndex(0))..;
        let first = self.state.index.delayed.range(not_over).next();
        self.plan.again_at = first.map(|(end, _, _)| *end);
        self.plan
    }

    /// Gives the next job its turn, for one unit, and says which it was; none if all had their turn or the budget is
    /// used up.
    pub(super) fn step(&mut self) -> Option<Turn> {
        let turn = self.order.next()?;
        if self.is_over_budget() {
            self.plan.more = true;
            return None;
        }
        self.examined += 1;
        self.examine(turn);
        Some(turn)
    }

    fn is_over_budget(&self) -> bool {
        self.plan.steps.len() >= self.budget.steps_max || self.examined >= self.budget.examined_max
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn order(&self) -> &Order<'a> {
        &self.order
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
        if job.cancel.is_some() {
            self.block(turn, Blocker::Cancelling);
            return;
        }
        let mut until: Option<TimeMs> = None;
        let unit = loop {
            let Some(unit) = self.order.next_unit(turn) else {
                match until {
                    Some(until) => self.block(turn, Blocker::BackOff { until }),
                    None => self.order.pass(turn),
                }
                return;
            };
            let known = job.unit(unit);
            let not_before = known.map_or(TimeMs::default(), |known| known.not_before);
            if not_before <= self.now {
                break unit;
            }
            until = Some(until.map_or(not_before, |until| until.min(not_before)));
        };
        match self.place(turn, job, unit) {
            Ok(()) if job.spec.units() == 1 => self.order.pass(turn),
            Ok(()) => {}
            Err(refusal) => self.refuse(turn, refusal),
        }
    }

    /// The job has to wait; those behind it go on.
    fn block(&mut self, turn: Turn, blocker: Blocker) {
        *self.plan.waiting.entry(blocker.reason()).or_default() += 1;
        self.plan.blocked.push((turn.job, blocker));
        self.order.pass(turn);
    }

    /// The job has to wait, and with it those of its line; where the queue does not backfill, all those behind it
    /// that compete with it.
    fn refuse(&mut self, turn: Turn, refusal: Refusal) {
        let queued = self.order.line(turn.line);
        let uniform = queued.line.shape.is_uniform();
        let backfills = self
            .state
            .queues
            .get(&queued.line.queue)
            .is_none_or(|queue| queue.config.backfill);
        let ahead = turn.job;
        let blocker = refusal.blocker.clone();
        self.block(turn, refusal.blocker);
        match refusal.shortage {
            Some(shortage) if !backfills => {
                for line in self.order.competing(turn.line, shortage.lacks_gpus) {
                    self.close(line, Blocker::Behind { ahead });
                }
            }
            _ if uniform => self.close(turn.line, blocker),
            _ => {}
        }
    }

    fn close(&mut self, line: usize, blocker: Blocker) {
        let left = self.order.close(line);
        if left > 0 {
            *self.plan.waiting.entry(blocker.reason()).or_default() += left;
            self.closed.insert(line, blocker);
        }
    }

    fn place(&mut self, turn: Turn, job: &Job, unit: UnitIndex) -> Result<(), Refusal> {
        let demand = self.demand(turn, job, unit);
        if let Some(refusal) = self.refused.get(&demand) {
            return Err(refusal.clone());
        }
        let limited = self.order.line(turn.line).limited;
        let standing = standing_of(job);
        if limited {
            self.check_limits(job, &standing, unit)?;
        }
        let found = match limited {
            true => self.find_within_limits(job, unit, &standing),
            false => unit::place(&mut self.capacity, job, unit)
                .map(|placed| placed.tasks)
                .map_err(Wanting::Room),
        };
        match found {
            Ok(tasks) => {
                self.give(turn, (job, unit), (tasks, standing));
                Ok(())
            }
            Err(Wanting::Allowance(refusal)) => Err(refusal),
            Err(Wanting::Room(shortage)) => {
                let refusal = refusal_of(self.state, job, unit, shortage);
                self.refused.insert(demand, refusal.clone());
                Err(refusal)
            }
        }
    }

    fn demand(&self, turn: Turn, job: &Job, unit: UnitIndex) -> Demand {
        let queued = self.order.line(turn.line);
        let group = match queued.line.shape.is_uniform() {
            true => 0,
            false => group_position(job, unit),
        };
        (queued.places, group)
    }

    fn check_limits(&self, job: &Job, standing: &Standing, unit: UnitIndex) -> Result<(), Refusal> {
        let asked = amounts_asked(job, unit);
        match self.allowance.reached(&job.spec, standing, &asked) {
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
        if let Some(limit) = self.allowance.reached(&job.spec, standing, &amounts) {
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
            self.allowance.give(&job.spec, &standing, &amounts);
        }
        let opportunistic = standing == Standing::Opportunistic;
        self.order.give(turn.line, &amounts, opportunistic);
        self.plan.steps.push(Command::Place(Placement {
            leader: self.state.leadership.epoch,
            job: job.id,
            unit,
            tasks: Arc::from(tasks),
            standing,
        }));
    }
}

/// What a unit lacks.
enum Wanting {
    Room(Shortage),
    Allowance(Refusal),
}

fn standing_of(job: &Job) -> Standing {
    match job.spec.scheduling.opportunistic {
        true => Standing::Opportunistic,
        false => Standing::Share,
    }
}

fn refusal_of(state: &State, job: &Job, unit: UnitIndex, shortage: Shortage) -> Refusal {
    match potential::impossible(state, job, unit) {
        Some(blocker) => blocker.into(),
        None => Refusal {
            blocker: Blocker::Resources {
                need_gpus: shortage.need_gpus,
                free_gpus: shortage.free_gpus,
                fits_tasks: shortage.fits_tasks,
                need_tasks: shortage.need_tasks,
            },
            shortage: Some(shortage),
        },
    }
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
