//! Several rounds in one plan.
//!
//! What follows a claim at the cost of others depends on what it changes: rights, usage, what is free. So a claim ends
//! its round, and the next one sees the state as it will be when the steps are applied, by applying them to a fork. A
//! claim that is refused there is not proposed: its unit claims nothing in the rest of the plan, and the others have
//! their turn.
//!
//! Only what the last round meets is told, by the plan and by `explain` alike: those before it did not see all that was
//! decided.

use std::borrow::Cow;
use std::collections::BTreeSet;

use muster_engine::apply::apply;
use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::{JobId, Revision, UnitIndex};
use muster_model::time::TimeMs;

use crate::round::Round;
use crate::{Budget, Plan, at};

/// Rounds of one plan at most.
const ROUNDS_MAX: usize = 64;
/// Steps of a round beyond which the next one is left to the next plan: applying them twice would cost more than it
/// gains.
const STEPS_FORKED_MAX: usize = 256;
/// Plans that are followed at most until one leaves nothing to the next.
const PLANS_MAX: usize = 64;

/// Units whose claims were refused when they were tried on a fork.
type Barred = BTreeSet<(JobId, UnitIndex)>;

/// The state in which the last round of a plan is made.
pub(super) struct Last<'a> {
    /// The planner's own from the first claim on, which is tried on a fork.
    pub(super) state: Cow<'a, State>,
    barred: Barred,
}

impl Last<'_> {
    /// That round, before anybody's turn.
    pub(super) fn round(&self, now: TimeMs) -> Round<'_> {
        let budget = Budget {
            steps_max: usize::MAX,
            examined_max: usize::MAX,
        };
        Round::new(&self.state, now, budget).barring(self.barred.clone())
    }

    /// The same with a state of its own.
    fn kept(self) -> Last<'static> {
        Last {
            state: Cow::Owned(self.state.into_owned()),
            barred: self.barred,
        }
    }
}

/// Plans round after round until nothing is left to decide.
pub(super) fn run(state: &State, now: TimeMs, budget: Budget) -> Plan {
    follow(state, now, budget).0
}

/// Goes on as the leader does, plan after plan, up to the last round of the one that leaves nothing to the next.
pub(super) fn last(state: &State, now: TimeMs) -> Last<'static> {
    let budget = Budget {
        steps_max: usize::MAX,
        examined_max: usize::MAX,
    };
    let mut applied = at(state, now).into_owned();
    for _ in 1..PLANS_MAX {
        let (plan, last) = follow(&applied, now, budget);
        if !plan.more {
            return last.kept();
        }
        for step in &plan.steps {
            apply(&mut applied, now, step);
        }
    }
    follow(&applied, now, budget).1.kept()
}

/// A plan, and the state in which its last round was made.
fn follow(state: &State, now: TimeMs, budget: Budget) -> (Plan, Last<'_>) {
    let mut last = Last {
        state: at(state, now),
        barred: Barred::new(),
    };
    let mut left = budget;
    let mut steps = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let round = Round::new(&last.state, now, left).barring(last.barred.clone());
        let ran = round.run();
        let mut plan = ran.plan;
        let rest = std::mem::take(&mut plan.steps);
        if !ran.ended || rest.len() > STEPS_FORKED_MAX {
            steps.extend(rest);
            return (Plan { steps, ..plan }, last);
        }
        left.examined_max = left.examined_max.saturating_sub(ran.examined);
        left.steps_max = left.steps_max.saturating_sub(rest.len());
        if takes_newcomers(&rest, state.revision) {
            // Left to the next plan, with all that it has to say.
            plan = Plan::default();
            left.steps_max = 0;
        } else {
            steps.extend(carry_out(&mut last, now, rest));
        }
        if left.examined_max == 0 || left.steps_max == 0 {
            let more = true;
            let plan = Plan {
                steps,
                more,
                ..plan
            };
            return (plan, last);
        }
    }
    let plan = Plan {
        more: !steps.is_empty(),
        steps,
        ..Plan::default()
    };
    (plan, last)
}

/// Applies steps to a fork; returns those that are not refused.
fn carry_out(fork: &mut Last<'_>, now: TimeMs, rest: Vec<Command>) -> Vec<Command> {
    let mut steps = Vec::with_capacity(rest.len());
    let state = fork.state.to_mut();
    for step in rest {
        match (apply(state, now, &step).result, &step) {
            (Ok(_), _) => steps.push(step),
            (Err(_), Command::Claim(claiming)) => {
                fork.barred.insert((claiming.job, claiming.unit));
            }
            (Err(_), _) => {}
        }
    }
    steps
}

/// Whether a claim stops an attempt that the same plan places: its number is not known before that is done.
fn takes_newcomers(steps: &[Command], known: Revision) -> bool {
    steps.iter().any(|step| match step {
        Command::Claim(claiming) => {
            let mut victims = claiming.victims.iter();
            victims.any(|victim| victim.epoch.get() > known.get())
        }
        _ => false,
    })
}
