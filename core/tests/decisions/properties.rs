//! Properties over random histories: the planner's word is accepted whole, the reactor comes to rest, the
//! agent never breaks its rules.

use std::collections::BTreeMap;

use muster_core::apply::apply;
use muster_core::audit::audit;
use muster_core::plan::{self, Basis, Blocker, Budget, WaitingByReason, explain, plan};
use muster_core::state::State;
use muster_core::testing::draw_command;
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_accepted_whole_and_leaves_the_state_sound(
        entropies in prop::collection::vec(any::<u64>(), 0..120),
    ) {
        let mut state = state_after(&entropies);
        let now = state.time;
        let planned = plan(&state, now, Budget::default());
        prop_assert_eq!(&planned, &plan(&state, now, Budget::default()), "the same twice");
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
    fn explain_names_what_the_round_meets(
        entropies in prop::collection::vec(any::<u64>(), 0..120),
    ) {
        let mut state = state_after(&entropies);
        let mut planned = plan(&state, state.time, Budget::default());
        // What follows a claim is told of the state that it leaves behind: the cluster comes to rest first.
        let mut rounds = 0;
        while !planned.steps.is_empty() {
            rounds += 1;
            prop_assert!(rounds < 64, "nothing is proposed for ever: {:?}", planned.steps);
            let now = state.time;
            for step in &planned.steps {
                apply(&mut state, now, step);
            }
            planned = plan(&state, now, Budget::default());
        }
        // Claims are tried on forks, with rounds of their own: a round that explains is not told what became of them.
        let mut claims = !state.index.claims.is_empty() || planned.more;
        let met: BTreeMap<_, _> = planned.blocked.iter().cloned().collect();
        let mut waiting = WaitingByReason::new();
        for job in state.jobs.values() {
            let explained = explain(&state, job.id, state.time);
            prop_assert!(explained.is_some(), "the job is there");
            let Some(explained) = explained else { continue };
            let blocker = explained.blocker;
            prop_assert_eq!(&blocker, &plan::blocker(&state, job.id, state.time));
            if let Some(start) = explained.start {
                prop_assert!(start.at >= state.time);
                prop_assert!((start.basis == Basis::Free) == blocker.is_none());
            }
            prop_assert!(!explained.remedy_is_enough || explained.remedy.is_some());
            if let Some(blocker) = &blocker {
                *waiting.entry(blocker.reason()).or_default() += 1;
            }
            claims |= matches!(blocker, Some(Blocker::Reserved { .. }));
            match (met.get(&job.id), blocker) {
                _ if claims => {}
                (Some(met), blocker) => prop_assert_eq!(Some(met), blocker.as_ref()),
                // Behind one that waits.
                (None, Some(_)) => prop_assert!(job.counts.waiting > 0, "something of it waits"),
                (None, None) => prop_assert_eq!(job.counts.waiting, 0, "all of it is placed"),
            }
        }
        if !claims {
            prop_assert_eq!(waiting, planned.waiting, "each job is counted by its reason");
        }
    }
}
