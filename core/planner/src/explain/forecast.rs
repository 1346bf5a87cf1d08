//! Start time estimate of a waiting job, by simulation: planning continues in a fork of the state, in which
//! running work ends as expected.
//!
//! Jobs ahead, limits, cells, claims and preemption count as they would in the leader: every step is
//! planned and applied in the same way. Events that cannot be foreseen do not occur in the fork: new jobs,
//! failures, and the end of work that has no time limit, no known kind, and has only just started.

use std::collections::BTreeSet;

use muster_engine::apply::apply;
use muster_engine::state::{Attempt, Job, Running, State};
use muster_model::command::{Command, Exit, Placement, TaskOutcome, TaskReport, Victim};
use muster_model::ids::{HostId, JobId, UnitId, UnitIndex};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::explain::search_budget::SearchBudget;
use crate::explain::turn::TurnOutcome;
use crate::running::{End, by_end};
use crate::{Blocker, Budget, Plan, plan};

/// Maximum number of rounds planned ahead.
const ROUNDS_MAX: usize = 256;

/// Maximum number of tasks ended ahead.
const TASKS_ENDED_MAX: usize = 65_536;

/// Minimum run time, in milliseconds, from which the age of an attempt is used to estimate its end.
const AGE_MS_MIN: u64 = 60_000;

/// Expected start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Expected time.
    pub at: TimeMs,
    /// Basis of the estimate.
    pub basis: Basis,
}

/// Basis of an expected start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Basis {
    /// There is room now.
    Free,
    /// A reservation with an expected time.
    Reserved,
    /// The awaited work ends by its time limit, or when work of its kind usually does.
    Known,
    /// Some of the awaited work is only assumed to run as long again as it has run.
    Estimated,
}

/// Expected start of the job's next unit; `None` if unknown.
pub(super) fn start(
    state: &State,
    job: &Job,
    outcome: &TurnOutcome<'_>,
    budget: &SearchBudget<'_>,
) -> Option<Start> {
    let now = outcome.now.max(state.time);
    match &outcome.blocker {
        None => Some(Start {
            at: now,
            basis: Basis::Free,
        }),
        Some(Blocker::Cancelling | Blocker::NoSuchHost { .. } | Blocker::ExceedsCluster { .. }) => {
            None
        }
        Some(
            Blocker::Reserved {
                expected_at: Some(at),
                ..
            }
            | Blocker::Moving {
                expected_at: Some(at),
                ..
            },
        ) => Some(Start {
            at: (*at).max(now),
            basis: Basis::Reserved,
        }),
        Some(_) => Forecast::new(state, now).run(job.id, budget),
    }
}

/// Expected end of an attempt, ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ending {
    at: TimeMs,
    attempt: Victim,
    /// Whether the end is known from a time limit or from experience.
    is_known: bool,
}

/// The fork and the expected events.
struct Forecast {
    state: State,
    now: TimeMs,
    endings: BTreeSet<Ending>,
    /// Hosts on which work was assumed to have ended because of its age.
    guessed: BTreeSet<HostId>,
    tasks_left: usize,
}

impl Forecast {
    fn new(state: &State, now: TimeMs) -> Self {
        let attempts = by_end(state, now);
        let endings = attempts
            .iter()
            .filter_map(|(_, running)| ending(state, running, now))
            .collect();
        Self {
            state: state.clone(),
            now,
            endings,
            guessed: BTreeSet::new(),
            tasks_left: TASKS_ENDED_MAX,
        }
    }

    fn run(mut self, job: JobId, budget: &SearchBudget<'_>) -> Option<Start> {
        for _ in 0..ROUNDS_MAX {
            if !budget.try_spend() {
                return None;
            }
            let plan = plan(&self.state, self.now, Budget::default());
            if let Some(placement) = plan.placements().find(|placed| placed.job == job) {
                return Some(self.start_of(placement));
            }
            self.apply_plan(&plan);
            if !plan.more {
                self.advance(plan.again_at)?;
            }
        }
        None
    }

    fn start_of(&self, placement: &Placement) -> Start {
        let mut hosts = placement.tasks.iter().map(|task| task.host);
        let guessed = hosts.any(|host| self.guessed.contains(&host));
        Start {
            at: self.now,
            basis: if guessed {
                Basis::Estimated
            } else {
                Basis::Known
            },
        }
    }

    fn apply_plan(&mut self, plan: &Plan) {
        for step in &plan.steps {
            apply(&mut self.state, self.now, step);
            match step {
                Command::Place(placed) => self.record_expected_end(placed.unit_id()),
                Command::Claim(claiming) => {
                    for victim in &claiming.victims {
                        self.record_expected_end(victim.unit_id());
                    }
                }
                Command::StopAttempt { job, unit, .. } => {
                    self.record_expected_end(UnitId::new(*job, *unit));
                }
                _ => {}
            }
        }
    }

    /// Records the expected end of a unit's attempt.
    fn record_expected_end(&mut self, id: UnitId) {
        if let Some(running) = Running::of(&self.state, id) {
            self.endings.extend(ending(&self.state, &running, self.now));
        }
    }

    /// Advances to the next time at which something ends or can be decided; `None` if there is none.
    fn advance(&mut self, again_at: Option<TimeMs>) -> Option<()> {
        let next = self.endings.first().map(|ending| ending.at);
        let later = |at: &TimeMs| *at > self.now;
        let again_at = again_at.filter(later);
        let at = [next, again_at].into_iter().flatten().min()?;
        self.now = self.now.max(at);
        while let Some(ending) = self.endings.pop_first() {
            if ending.at > self.now {
                self.endings.insert(ending);
                break;
            }
            self.end(ending)?;
        }
        Some(())
    }

    fn end(&mut self, ending: Ending) -> Option<()> {
        let id = ending.attempt.unit_id();
        let attempt = self.state.attempt(id);
        let Some(attempt) = attempt.filter(|attempt| attempt.epoch == ending.attempt.epoch) else {
            return Some(());
        };
        if !ending.is_known {
            self.guessed.extend(attempt.hosts());
        }
        let reports = end_reports(id.job, id.unit, attempt);
        self.tasks_left = self.tasks_left.checked_sub(reports.len())?;
        for report in reports {
            let leader = self.state.leadership.epoch;
            let report = Command::ReportTask(TaskReport { leader, ..report });
            apply(&mut self.state, self.now, &report);
        }
        Some(())
    }
}

/// Expected end of an attempt, as far as known.
fn ending(state: &State, running: &Running<'_>, now: TimeMs) -> Option<Ending> {
    let end = End::of(state, running, now);
    let since = running
        .attempt
        .running_at
        .unwrap_or(running.attempt.placed_at);
    let is_usable = end.is_known || now.since(since) >= AGE_MS_MIN;
    is_usable.then_some(Ending {
        at: end.at,
        attempt: running.as_victim(),
        is_known: end.is_known,
    })
}

/// The end reports of all tasks of an attempt: on their own, or because they were stopped.
fn end_reports(job: JobId, unit: UnitIndex, attempt: &Attempt) -> Vec<TaskReport> {
    let stopping = attempt.stop.is_some();
    let exit = Exit {
        code: (!stopping).then_some(0),
        signal: stopping.then_some(15),
        out_of_memory: false,
        lease_expired: false,
        start_error: None,
        ..Exit::default()
    };
    let open = attempt.tasks.iter().filter(|run| !run.phase.is_terminal());
    open.map(|run| TaskReport {
        leader: attempt.leader,
        job,
        unit,
        epoch: attempt.epoch,
        task: run.task,
        outcome: TaskOutcome::Exited(exit.clone()),
    })
    .collect()
}
