//! Validation of lifecycle settings. Whether the named jobs exist depends on the state and is checked
//! elsewhere.

use std::collections::BTreeSet;

use crate::command::{EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN};
use crate::limits;
use crate::spec::validate::Findings;
use crate::spec::{ExitMatch, ExitMeaning, ExitRule, JobSpec, Lifecycle, StopWarning};

/// Highest exit code.
const EXIT_CODE_MAX: i32 = 255;
/// Highest signal number.
const SIGNAL_MAX: i32 = 64;
/// Highest signal number that is not a real-time signal.
const PLAIN_SIGNAL_MAX: i32 = 31;
/// Signals that a job cannot choose as its warning: they have another effect, or are sent anyway.
const SIGNALS_RESERVED: [(i32, &str); 4] = [
    (9, "SIGKILL"),
    (15, "SIGTERM, which is sent anyway,"),
    (18, "SIGCONT"),
    (19, "SIGSTOP"),
];

pub(super) fn check(found: &mut Findings, spec: &JobSpec) {
    let lifecycle = &spec.lifecycle;
    if let Some(max) = lifecycle.tasks_at_once_max {
        let field = "lifecycle.tasks_at_once_max";
        found.check(max > 0, field, || {
            "must be at least 1, or absent for no limit".to_owned()
        });
        found.check(!spec.gang, field, || {
            "is for jobs whose tasks are placed one by one: a gang starts together".to_owned()
        });
    }
    found.check(
        spec.gang || lifecycle.barrier != Some(true),
        "lifecycle.barrier",
        || "is for gangs: the tasks of this job do not start together".to_owned(),
    );
    let swaps = lifecycle.member_swap;
    found.check(spec.gang || !swaps, "lifecycle.member_swap", || {
        "is for gangs: the tasks of this job are placed and restarted independently anyway"
            .to_owned()
    });
    found.check(
        !spec.gang || !swaps || spec.tasks() > 1,
        "lifecycle.member_swap",
        || {
            "is for gangs of several tasks: no task would continue while the only one is replaced"
                .to_owned()
        },
    );
    dependencies(found, lifecycle);
    found.at_most(
        "lifecycle.rules",
        lifecycle.rules.len(),
        "EXIT_RULES_MAX",
        limits::EXIT_RULES_MAX,
    );
    for (position, rule) in lifecycle.rules.iter().enumerate() {
        exit_rule(found, &format!("lifecycle.rules[{position}]"), *rule);
    }
    if let Some(warning) = lifecycle.warning {
        stop_warning(found, spec, warning);
    }
    retries(found, spec);
    checkpoints(found, lifecycle);
}

fn stop_warning(found: &mut Findings, spec: &JobSpec, warning: StopWarning) {
    let signal = warning.signal;
    let field = "lifecycle.warning.signal";
    found.check((1..=PLAIN_SIGNAL_MAX).contains(&signal), field, || {
        format!("must be a signal's number, 1 to {PLAIN_SIGNAL_MAX}")
    });
    let reserved = SIGNALS_RESERVED
        .iter()
        .find(|(number, _)| *number == signal);
    if let Some((_, name)) = reserved {
        found.check(false, field, || format!("{name} cannot serve as a warning"));
    }
    let lead_ms = warning.lead_ms.unwrap_or(0);
    found.check(
        lead_ms <= spec.stop_grace_ms,
        "lifecycle.warning.lead_ms",
        || {
            format!(
                "{lead_ms} is more than the whole grace of {} (stop_grace_ms)",
                spec.stop_grace_ms
            )
        },
    );
}

fn dependencies(found: &mut Findings, lifecycle: &Lifecycle) {
    found.at_most(
        "lifecycle.after",
        lifecycle.after.len(),
        "DEPENDENCIES_MAX",
        limits::DEPENDENCIES_MAX,
    );
    let mut named = BTreeSet::new();
    for (position, dependency) in lifecycle.after.iter().enumerate() {
        let job = dependency.job;
        let field = format!("lifecycle.after[{position}].job");
        found.check(named.insert(job), &field, || {
            format!("job {job} is named twice; each dependency has one condition")
        });
    }
}

fn exit_rule(found: &mut Findings, at: &str, rule: ExitRule) {
    match rule.on {
        ExitMatch::Codes { first, last } => {
            let field = format!("{at}.codes");
            found.check(
                1 <= first && first <= last && last <= EXIT_CODE_MAX,
                &field,
                || format!("must be a range of codes within 1 to {EXIT_CODE_MAX}"),
            );
            let reserved = [EXIT_RUN_AGAIN, EXIT_DO_NOT_RESTART];
            found.check(first != last || !reserved.contains(&first), &field, || {
                format!("{first} has a fixed meaning for every job")
            });
        }
        ExitMatch::Signal(signal) => {
            found.check(
                (1..=SIGNAL_MAX).contains(&signal),
                &format!("{at}.signal"),
                || format!("must be a signal's number, 1 to {SIGNAL_MAX}"),
            );
        }
        ExitMatch::OutOfMemory => {}
    }
}

/// Limits of retries, and that they have an effect.
fn retries(found: &mut Findings, spec: &JobSpec) {
    let lifecycle = &spec.lifecycle;
    let field = "lifecycle.local_retries_max";
    let local = lifecycle.local_retries_max;
    found.check(local <= limits::LOCAL_RETRIES_MAX, field, || {
        let limit = limits::LOCAL_RETRIES_MAX;
        format!("{local} is over the limit of {limit} (LOCAL_RETRIES_MAX)")
    });
    let mut rules = lifecycle.rules.iter();
    let retries =
        spec.retry.retries_max > 0 || rules.any(|rule| rule.then == ExitMeaning::RetryFree);
    found.check(local == 0 || retries, field, || {
        "limits the retries in place: it needs retry.retries_max or a rule that retries free"
            .to_owned()
    });
    let without = lifecycle.attempts_without_progress_max.unwrap_or(0);
    let limit = limits::ATTEMPTS_WITHOUT_PROGRESS_MAX;
    found.check(
        without <= limit,
        "lifecycle.attempts_without_progress_max",
        || format!("{without} is over the limit of {limit} (ATTEMPTS_WITHOUT_PROGRESS_MAX)"),
    );
}

/// A policy keeps at least the required minimum, and no more than is remembered.
fn checkpoints(found: &mut Findings, lifecycle: &Lifecycle) {
    let Some(policy) = lifecycle.checkpoints else {
        return;
    };
    let at = |field: &str| format!("lifecycle.checkpoints.{field}");
    let kept_max = u32::try_from(limits::CHECKPOINTS_PER_JOB_MAX).unwrap_or(u32::MAX);
    let kept = limits::CHECKPOINTS_KEPT_MIN..=kept_max;
    found.check(kept.contains(&policy.kept_min), &at("kept_min"), || {
        let min = limits::CHECKPOINTS_KEPT_MIN;
        format!("must be {min} (CHECKPOINTS_KEPT_MIN) to {kept_max} (CHECKPOINTS_PER_JOB_MAX)")
    });
    found.check(policy.kept_every != Some(0), &at("kept_every"), || {
        "must be at least 1, or absent for none".to_owned()
    });
    let bad_max = limits::BAD_CHECKPOINTS_MAX;
    found.check(
        (1..=bad_max).contains(&policy.bad_max),
        &at("bad_max"),
        || format!("must be 1 to {bad_max} (BAD_CHECKPOINTS_MAX)"),
    );
    let window_max = limits::PERIOD_MS_MAX;
    found.check(
        policy.restore_window_ms <= window_max,
        &at("restore_window_ms"),
        || format!("must be at most {window_max} (PERIOD_MS_MAX)"),
    );
}
