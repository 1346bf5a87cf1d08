//! Arbitrary lifecycles.

use std::sync::Arc;

use muster_model::spec::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, Lifecycle, Pipeline,
    PipelineDependency, PipelineJob, StopWarning, SuspendMode,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::{job, spec, text};

pub(super) fn lifecycle() -> impl Strategy<Value = Lifecycle> {
    let numbers = (
        option::of(any::<u32>()),
        any::<u32>(),
        option::of(any::<u32>()),
    );
    let lists = (vec(dependency(), 0..3), vec(exit_rule(), 0..3));
    let mode = prop_oneof![Just(SuspendMode::Keep), Just(SuspendMode::Release)];
    let options = (
        option::of(policy()),
        option::of(any::<bool>()),
        option::of(warning()),
        mode,
        any::<bool>(),
    );
    let given = (numbers, lists, options).prop_map(|(numbers, lists, options)| Lifecycle {
        barrier: options.1,
        tasks_at_once_max: numbers.0,
        after: lists.0,
        rules: lists.1,
        local_retries_max: numbers.1,
        attempts_without_progress_max: numbers.2,
        checkpoints: options.0,
        warning: options.2,
        suspend: options.3,
        member_swap: options.4,
    });
    prop_oneof![Just(Lifecycle::default()), given]
}

/// An arbitrary pipeline.
pub(super) fn pipeline() -> impl Strategy<Value = Pipeline> {
    let after = (any::<u32>(), condition())
        .prop_map(|(position, when)| PipelineDependency { position, when });
    let job = (spec(), vec(after, 0..3)).prop_map(|(spec, after)| PipelineJob {
        spec: Arc::new(spec),
        after,
    });
    (text(), vec(job, 0..3)).prop_map(|(name, jobs)| Pipeline { name, jobs })
}

/// Any signal before SIGTERM.
pub(super) fn warning() -> impl Strategy<Value = StopWarning> {
    (any::<i32>(), any::<bool>(), option::of(any::<u64>())).prop_map(|(signal, to_all, lead_ms)| {
        StopWarning {
            signal,
            to_all,
            lead_ms,
        }
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Succeeded),
        Just(Condition::Ended),
        Just(Condition::Failed),
    ]
}

fn dependency() -> impl Strategy<Value = Dependency> {
    (job(), condition()).prop_map(|(job, when)| Dependency { job, when })
}

fn exit_rule() -> impl Strategy<Value = ExitRule> {
    let on = prop_oneof![
        (any::<i32>(), any::<i32>()).prop_map(|(first, last)| ExitMatch::Codes { first, last }),
        any::<i32>().prop_map(ExitMatch::Signal),
        Just(ExitMatch::OutOfMemory),
    ];
    let then = prop_oneof![
        Just(ExitMeaning::Retry),
        Just(ExitMeaning::RetryFree),
        Just(ExitMeaning::Fail),
        Just(ExitMeaning::Succeed),
    ];
    (on, then).prop_map(|(on, then)| ExitRule { on, then })
}

fn policy() -> impl Strategy<Value = CheckpointPolicy> {
    let numbers = (
        any::<u32>(),
        option::of(any::<u64>()),
        any::<u32>(),
        any::<u64>(),
    );
    (numbers, any::<bool>()).prop_map(|(numbers, remove)| CheckpointPolicy {
        kept_min: numbers.0,
        kept_every: numbers.1,
        remove,
        bad_max: numbers.2,
        restore_window_ms: numbers.3,
    })
}
