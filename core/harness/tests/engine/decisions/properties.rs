//! Properties over random histories: plans are accepted whole, the reactor reaches a fixed point, the agent
//! never breaks its rules.

use std::cell::Cell;
use std::collections::BTreeMap;

use muster_engine::apply::apply;
use muster_engine::audit::audit;
use muster_engine::state::State;
use muster_harness::draw_command;
use muster_planner::{
    self as plan, Basis, Blocker, Budget, Plan, WaitingByReason, explain, explain_while, plan,
};
use proptest::prelude::*;

/// A state after a random history.
fn state_after(entropies: &[u64]) -> State {
    let mut state = State::default();
    for entropy in entropies {
        let (time, command) = draw_command(&state, *entropy);
        apply(&mut state, time, &command);
    }
    state
}

/// Executes plan after plan at one time, as the leader does, until a plan is empty; returns the state after
/// that, and the last plan. `None` if that never happens.
fn decide(state: &State) -> Option<(State, Plan)> {
    let mut decided = state.clone();
    for _ in 0..64 {
        let planned = plan(&decided, state.time, Budget::default());
        for step in &planned.steps {
            apply(&mut decided, state.time, step);
        }
        if !planned.more {
            return Some((decided, planned));
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_accepted_whole_and_leaves_the_state_sound(
        entropies in prop::collection::vec(any::<u64>(), 0..120),
    ) {
        let mut state = state_after(&entropies);
        let now = state.time;
        let planned = plan(&state, now, Budget::default());
        prop_assert_eq!(&planned, &plan(&state, now, Budget::default()), "plans are deterministic");
        for step in planned.steps {
            let applied = apply(&mut state, now, &step);
            prop_assert!(applied.result.is_ok(), "{:?}: {:?}", step, applied.result);
            let findings = audit(&state);
            prop_assert!(findings.is_empty(), "{:#?}", findings);
        }
    }

    #[test]
    fn a_budget_only_cuts_the_plan_short(
        entropies in prop::collection::vec(any::<u64>(), 0..120),
        steps_max in 0usize..8,
    ) {
        let state = state_after(&entropies);
        let whole = plan(&state, state.time, Budget::default());
        let cut = plan(&state, state.time, Budget { steps_max, ..Budget::default() });
        let expected = &whole.steps[..steps_max.min(whole.steps.len())];
        prop_assert_eq!(&cut.steps[..], expected);
        prop_assert!(cut.more || cut == whole);
    }

    #[test]
    fn an_explanation_cut_short_still_names_the_blocker(
        entropies in prop::collection::vec(any::<u64>(), 0..120),
        looks in 0usize..16,
    ) {
        let state = state_after(&entropies);
        for job in state.jobs.values() {
            let left = Cell::new(looks);
            let lasts = || left.replace(left.get().saturating_sub(1)) > 0;
            let cut = explain_while(&state, job.id, state.time, &lasts);
            let whole = explain(&state, job.id, state.time);
            let (Some(cut), Some(whole)) = (cut, whole) else {
                return Err(TestCaseError::fail("the job exists"));
            };
            prop_assert!(!whole.is_cut_short);
            prop_assert_eq!(&cut.blocker, &whole.blocker);
            prop_assert!(cut.start.is_none() || cut.start == whole.start);
            prop_assert!(cut.is_cut_short || cut == whole);
        }
    }

    #[test]
    fn explain_agrees_with_the_decision(
        entropies in prop::collection::vec(any::<u64>(), 0..120),
    ) {
        let state = state_after(&entropies);
        let Some((decided, planned)) = decide(&state) else {
            return Err(TestCaseError::fail("planning reaches no fixed point"));
        };
        let met: BTreeMap<_, _> = planned.blocked.iter().cloned().collect();
        let mut waiting = WaitingByReason::new();
        for job in state.jobs.values() {
            let explained = explain(&state, job.id, state.time);
            prop_assert!(explained.is_some(), "the job exists");
            let Some(explained) = explained else { continue };
            let blocker = explained.blocker;
            prop_assert_eq!(&blocker, &plan::blocker(&state, job.id, state.time));
            if let Some(start) = explained.start {
                prop_assert!(start.at >= state.time);
                prop_assert!((start.basis == Basis::Free) == blocker.is_none());
            }
            prop_assert!(!explained.remedy_is_enough || explained.remedy.is_some());
            if blocker == Some(Blocker::Cancelling) {
                prop_assert!(job.cancel.is_some() && job.counts.waiting == 0, "no unit of it waits");
                continue;
            }
            if let Some(blocker) = &blocker {
                *waiting.entry(blocker.reason()).or_default() += 1;
            }
            let left = decided.job(job.id).map_or(0, |job| job.counts.waiting);
            match (met.get(&job.id), blocker) {
                (Some(met), blocker) => prop_assert_eq!(Some(met), blocker.as_ref()),
                // Behind another waiting job.
                (None, Some(_)) => prop_assert!(left > 0, "a unit of it waits"),
                (None, None) => prop_assert_eq!(left, 0, "all units are placed"),
            }
        }
        prop_assert_eq!(waiting, planned.waiting, "each job is counted under its blocker");
    }
}
