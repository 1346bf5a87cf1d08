//! Several rounds in one plan.
//!
//! What follows a claim at the cost of others depends on what it changes: rights, usage, what is free. So a claim ends
//! its round, and the next one sees the state as it will be when the steps are applied, by applying them to a fork. A
//! claim that is refused there is not proposed: its unit claims nothing in the rest of the plan, and the others have
//! their turn.

use std::collections::BTreeSet;

use crate::apply::apply;
use crate::command::Command;
use crate::ids::{JobId, Revision, UnitIndex};
use crate::plan::round::Round;
use crate::plan::{Budget, Plan, at};
use crate::state::State;
use crate::time::TimeMs;

/// Rounds of one plan at most.
const ROUNDS_MAX: usize = 64;
/// Steps of a round beyond which the next one is left to the next plan: applying them twice would cost more than it
/// gains.
const STEPS_FORKED_MAX: usize = 256;

/// Units whose claims were refused when they were tried on a fork.
pub(super) type Barred = BTreeSet<(JobId, UnitIndex)>;

/// Plans round after round until nothing is left to decide; says whose claims are not among the steps because they
/// would be refused.
pub(super) fn run(state: &State, now: TimeMs, budget: Budget) -> (Plan, Barred) {
    let mut fork = at(state, now);
    let mut left = budget;
    let mut steps = Vec::new();
    let mut barred = Barred::new();
    for _ in 0..ROUNDS_MAX {
        let round = Round::new(&fork, now, left).barring(barred.clone());
        let ran = round.run();
        let mut plan = ran.plan;
        let rest = std::mem::take(&mut plan.steps);
        if !ran.ended || rest.len() > STEPS_FORKED_MAX {
            steps.extend(rest);
            return (Plan { steps, ..plan }, barred);
        }
        left.examined_max = left.examined_max.saturating_sub(ran.examined);
        left.steps_max = left.steps_max.saturating_sub(rest.len());
        if takes_newcomers(&rest, state.revision) {
            // Left to the next plan, with all that it has to say.
            plan = Plan::default();
            left.steps_max = 0;
        } else {
            carry_out(&mut fork, now, rest, (&mut steps, &mut barred));
        }
        if left.examined_max == 0 || left.steps_max == 0 {
            let more = true;
            let plan = Plan {
                steps,
                more,
                ..plan
            };
            return (plan, barred);
        }
    }
    let plan = Plan {
        more: !steps.is_empty(),
        steps,
        ..Plan::default()
    };
    (plan, barred)
}

/// Applies steps to a fork; those that are refused are left out.
fn carry_out(
    fork: &mut State,
    now: TimeMs,
    rest: Vec<Command>,
    (steps, barred): (&mut Vec<Command>, &mut Barred),
) {
    for step in rest {
        match (apply(fork, now, &step).result, &step) {
            (Ok(_), _) => steps.push(step),
            (Err(_), Command::Claim(claiming)) => {
                barred.insert((claiming.job, claiming.unit));
            }
            (Err(_), _) => {}
        }
    }
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
