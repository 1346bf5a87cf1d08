//! One planning round: the jobs in order, each placed as far as there is room.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::command::{Command, Placement, Standing};
use crate::ids::{JobId, TaskIndex, UnitIndex};
use crate::plan::capacity::Capacity;
use crate::plan::order::Order;
use crate::plan::unit::{self, Shortage};
use crate::plan::{Blocker, Budget, Plan, potential};
use crate::spec::{Resources, TaskGroup};
use crate::state::{Job, State};
use crate::time::TimeMs;

/// What a unit asks for, by group. Units of one demand share their fate, because within a round room only
/// shrinks.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Demand<'a> {
    gang: bool,
    groups: Vec<(&'a Resources, u32, Option<u32>)>,
}

impl<'a> Demand<'a> {
    fn of(job: &'a Job, unit: UnitIndex) -> Self {
        let asked =
            |group: &'a TaskGroup, count| (&group.resources, count, group.tasks_per_host_max);
        let groups = if job.spec.gang {
            let groups = job.spec.groups.iter();
            groups.map(|group| asked(group, group.count)).collect()
        } else {
            let group = job.spec.group_of(TaskIndex(unit.get()));
            group
                .map(|(group, _)| asked(group, 1))
                .into_iter()
                .collect()
        };
        Self {
            gang: job.spec.gang,
            groups,
        }
    }
}

/// Why a unit is not placed in this round.
#[derive(Clone, Debug)]
struct Refusal {
    blocker: Blocker,
    /// Present if it holds up those behind it; a unit that could never be placed holds up nobody.
    shortage: Option<Shortage>,
}

/// What became of a job in its turn.
enum Outcome {
    /// Nothing in it is left that could be placed now.
    Done,
    /// It waits for room, and those behind it with it.
    Holds(Shortage),
    /// The budget is used up.
    OverBudget,
}

/// The state of one round.
pub(super) struct Round<'a> {
    state: &'a State,
    now: TimeMs,
    budget: Budget,
    capacity: Capacity<'a>,
    order: Order<'a>,
    refused: BTreeMap<Demand<'a>, Refusal>,
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
            refused: BTreeMap::new(),
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

    /// Gives the next job its turn, and says which it was and whether others wait behind it now; none if
    /// all had their turn, wait behind others, or the budget is used up.
    pub(super) fn step(&mut self) -> Option<(JobId, bool)> {
        let turn = self.order.next()?;
        match self.examine(turn.job) {
            Outcome::Done => Some((turn.job, false)),
            Outcome::Holds(shortage) => {
                self.order.hold_behind(turn, shortage.lacks_gpus);
                Some((turn.job, true))
            }
            Outcome::OverBudget => {
                self.plan.more = true;
                None
            }
        }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn order(&self) -> &Order<'a> {
        &self.order
    }

    /// Places the job's waiting units in order until one does not fit.
    fn examine(&mut self, id: JobId) -> Outcome {
        let Some(job) = self.state.job(id) else {
            return Outcome::Done;
        };
        if job.cancel.is_some() {
            self.plan.blocked.push((id, Blocker::Cancelling));
            return Outcome::Done;
        }
        let mut until: Option<TimeMs> = None;
        for unit in job.waiting_units() {
            if self.is_over_budget() {
                return Outcome::OverBudget;
            }
            self.examined += 1;
            let not_before = job
                .unit(unit)
                .map_or(TimeMs::default(), |known| known.not_before);
            if not_before > self.now {
                until = Some(until.map_or(not_before, |until| until.min(not_before)));
                continue;
            }
            if let Err(refusal) = self.place(job, unit) {
                self.plan.blocked.push((id, refusal.blocker));
                return refusal.shortage.map_or(Outcome::Done, Outcome::Holds);
            }
        }
        if let Some(until) = until {
            self.plan.blocked.push((id, Blocker::BackOff { until }));
        }
        Outcome::Done
    }

    fn is_over_budget(&self) -> bool {
        self.plan.steps.len() >= self.budget.steps_max || self.examined >= self.budget.examined_max
    }

    fn place(&mut self, job: &'a Job, unit: UnitIndex) -> Result<(), Refusal> {
        if !self.refused.is_empty()
            && let Some(refusal) = self.refused.get(&Demand::of(job, unit))
        {
            return Err(refusal.clone());
        }
        match unit::place(&mut self.capacity, job, unit) {
            Ok(tasks) => {
                self.plan.steps.push(Command::Place(Placement {
                    leader: self.state.leadership.epoch,
                    job: job.id,
                    unit,
                    tasks: Arc::from(tasks),
                    standing: Standing::Share,
                }));
                Ok(())
            }
            Err(shortage) => {
                let refusal = self.refuse(job, unit, shortage);
                self.refused.insert(Demand::of(job, unit), refusal.clone());
                Err(refusal)
            }
        }
    }

    fn refuse(&self, job: &Job, unit: UnitIndex, shortage: Shortage) -> Refusal {
        match potential::impossible(self.state, job, unit) {
            Some(blocker) => Refusal {
                blocker,
                shortage: None,
            },
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
}
