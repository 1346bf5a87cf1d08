//! Planning loop: runs scheduling rounds until one ends without a preempting claim.
//!
//! The decisions after a preempting claim depend on what it changes: rights, usage, free resources. A claim
//! therefore ends its round, and the next round works on the state as it will be after the steps are
//! applied, by applying them to a fork. A claim that is refused there is not proposed: its unit claims
//! nothing in the rest of the plan, and the others have their turn.
//!
//! Only the findings of the last round are reported, by the plan and by `explain` alike: earlier rounds did
//! not take account of all decisions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use muster_engine::apply::apply;
use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::{Revision, UnitId};
use muster_model::time::TimeMs;

use crate::round::Round;
use crate::{Budget, Plan, at};

/// Maximum number of rounds in one plan.
const ROUNDS_MAX: usize = 64;
/// Maximum number of steps of a round after which another one follows in the same plan: beyond it applying
/// them twice costs more than it gains.
const STEPS_FORKED_MAX: usize = 256;
/// Maximum number of plans that are followed until one leaves nothing to the next.
const PLANS_MAX: usize = 64;

/// Units whose claims were refused when tried on a fork.
type Barred = BTreeSet<UnitId>;

/// The state in which the last round of a plan is made.
pub(super) struct LastRound<'a> {
    /// Owned by the planner from the first claim on, which is tried on a fork.
    pub(super) state: Cow<'a, State>,
    barred: Barred,
}

impl LastRound<'_> {
    /// The last round, before the first turn.
    pub(super) fn round(&self, now: TimeMs) -> Round<'_> {
        let budget = Budget {
            steps_max: usize::MAX,
            examined_max: usize::MAX,
        };
        Round::new(&self.state, now, budget).barring(self.barred.clone())
    }

    /// Converts the borrowed state into an owned one.
    fn kept(self) -> LastRound<'static> {
        LastRound {
            state: Cow::Owned(self.state.into_owned()),
            barred: self.barred,
        }
    }
}

/// Plans round after round until nothing is left to decide.
pub(super) fn run(state: &State, now: TimeMs, budget: Budget) -> Plan {
    plan_rounds(state, now, budget).0
}

/// Follows plan after plan, as the leader does, up to the last round of the one that leaves nothing to the
/// next.
pub(super) fn last_round(state: &State, now: TimeMs) -> LastRound<'static> {
    let budget = Budget {
        steps_max: usize::MAX,
        examined_max: usize::MAX,
    };
    let mut applied = at(state, now).into_owned();
    for _ in 1..PLANS_MAX {
        let (plan, last) = plan_rounds(&applied, now, budget);
        if !plan.more {
            return last.kept();
        }
        for step in &plan.steps {
            apply(&mut applied, now, step);
        }
    }
    plan_rounds(&applied, now, budget).1.kept()
}

/// A plan, and the state in which its last round was made.
fn plan_rounds(state: &State, now: TimeMs, budget: Budget) -> (Plan, LastRound<'_>) {
    let mut last = LastRound {
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
        if preempts_own_placements(&rest, state.revision) {
            // The next plan repeats and reports all of it.
            plan = Plan::default();
            left.steps_max = 0;
        } else {
            steps.extend(apply_steps(&mut last, now, rest));
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

/// Applies steps to a fork; returns those that were not refused.
fn apply_steps(fork: &mut LastRound<'_>, now: TimeMs, rest: Vec<Command>) -> Vec<Command> {
    let mut steps = Vec::with_capacity(rest.len());
    let state = fork.state.to_mut();
    for step in rest {
        match (apply(state, now, &step).result, &step) {
            (Ok(_), _) => steps.push(step),
            (Err(_), Command::Claim(claiming)) => {
                fork.barred.insert(claiming.unit_id());
            }
            (Err(_), _) => {}
        }
    }
    steps
}

/// Whether a claim stops an attempt that the same plan places: its epoch is unknown until then.
fn preempts_own_placements(steps: &[Command], known: Revision) -> bool {
    steps.iter().any(|step| match step {
        Command::Claim(claiming) => {
            let mut victims = claiming.victims.iter();
            victims.any(|victim| victim.epoch.get() > known.get())
        }
        _ => false,
    })
}
