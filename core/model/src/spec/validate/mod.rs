//! Validation of a specification, before anything is written.

mod container;
mod execution;
mod lifecycle;
mod scheduling;

use std::collections::BTreeSet;

use crate::limits;
use crate::spec::{JobSpec, TaskGroup};

/// A violated rule and its field.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Violation {
    /// Path of the field, as in the job file: `groups[1].count`.
    pub field: String,
    /// The rule, with the limit's name and value where there is one.
    pub rule: String,
}

/// All rules that `spec` violates, in field order; empty if it is valid.
///
/// Whether its queue exists depends on the state and is checked by `apply`.
#[must_use]
pub fn validate(spec: &JobSpec) -> Vec<Violation> {
    let mut found = Findings::default();
    found.name("name", &spec.name);
    found.name("user", &spec.user);
    found.name("queue", &spec.queue);
    found.check(
        spec.priority.unsigned_abs() <= limits::PRIORITY_MAX.unsigned_abs(),
        "priority",
        || format!("must lie within +-{} (PRIORITY_MAX)", limits::PRIORITY_MAX),
    );
    found.durations(spec);
    found.at_most(
        "labels",
        spec.labels.len(),
        "LABELS_MAX",
        limits::LABELS_MAX,
    );
    found.at_most(
        "retry.retries_max",
        spec.retry.retries_max,
        "RETRIES_MAX",
        limits::RETRIES_MAX,
    );
    found.groups(spec);
    execution::check(&mut found, spec);
    scheduling::check(&mut found, spec);
    lifecycle::check(&mut found, spec);
    found.at_most(
        "spec",
        text_bytes(spec),
        "SPEC_BYTES_MAX",
        limits::SPEC_BYTES_MAX,
    );
    found.0
}

/// Encoding overhead of each text in bytes: its length and its tag.
const TEXT_OVERHEAD_BYTES: usize = 8;
/// Encoded size of a task group's numbers in bytes.
const GROUP_OVERHEAD_BYTES: usize = 64;

/// Approximate encoded size of a specification in bytes, which its texts dominate.
pub(super) fn text_bytes(spec: &JobSpec) -> usize {
    let own = [&spec.name, &spec.user, &spec.queue].into_iter();
    let labels = spec.labels.iter().flat_map(|(name, value)| [name, value]);
    let groups = spec.groups.iter().map(|group| {
        let texts = group
            .command
            .iter()
            .chain(&group.resources.gpu_models)
            .chain(&group.working_directory)
            .chain(std::iter::once(&group.name))
            .chain(
                group
                    .environment
                    .iter()
                    .flat_map(|(name, value)| [name, value]),
            );
        GROUP_OVERHEAD_BYTES + texts.map(|text| counted_bytes(text)).sum::<usize>()
    });
    own.chain(labels)
        .chain(scheduling::texts(spec))
        .chain(execution::texts(spec))
        .map(|text| counted_bytes(text))
        .sum::<usize>()
        + groups.sum::<usize>()
}

const fn counted_bytes(text: &str) -> usize {
    text.len() + TEXT_OVERHEAD_BYTES
}

/// Violations found so far.
#[derive(Default)]
pub(super) struct Findings(Vec<Violation>);

impl Findings {
    pub(super) fn into_violations(self) -> Vec<Violation> {
        self.0
    }

    pub(super) fn extend(&mut self, violations: impl Iterator<Item = Violation>) {
        self.0.extend(violations);
    }

    pub(super) fn check(&mut self, holds: bool, field: &str, rule: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation {
                field: field.to_owned(),
                rule: rule(),
            });
        }
    }

    pub(super) fn at_most<T: PartialOrd + std::fmt::Display>(
        &mut self,
        field: &str,
        value: T,
        limit_name: &str,
        limit: T,
    ) {
        let holds = value <= limit;
        self.check(holds, field, || {
            format!("{value} is over the limit of {limit} ({limit_name})")
        });
    }

    pub(super) fn name(&mut self, field: &str, name: &str) {
        self.check(!name.is_empty(), field, || "must not be empty".to_owned());
        self.at_most(field, name.len(), "NAME_BYTES_MAX", limits::NAME_BYTES_MAX);
        self.check(!name.chars().any(char::is_control), field, || {
            "must not contain control characters".to_owned()
        });
    }

    fn durations(&mut self, spec: &JobSpec) {
        self.at_most(
            "stop_grace_ms",
            spec.stop_grace_ms,
            "STOP_GRACE_MS_MAX",
            limits::STOP_GRACE_MS_MAX,
        );
        self.at_most(
            "partition_grace_ms",
            spec.partition_grace_ms,
            "PARTITION_GRACE_MS_MAX",
            limits::PARTITION_GRACE_MS_MAX,
        );
        self.check(
            spec.partition_grace_ms >= limits::PARTITION_GRACE_MS_MIN,
            "partition_grace_ms",
            || {
                format!(
                    "must be at least {} (PARTITION_GRACE_MS_MIN)",
                    limits::PARTITION_GRACE_MS_MIN
                )
            },
        );
    }

    fn groups(&mut self, spec: &JobSpec) {
        self.check(!spec.groups.is_empty(), "groups", || {
            "must name at least one task group".to_owned()
        });
        self.at_most(
            "groups",
            spec.groups.len(),
            "GROUPS_PER_JOB_MAX",
            limits::GROUPS_PER_JOB_MAX,
        );
        self.at_most(
            "groups",
            spec.tasks(),
            "TASKS_PER_JOB_MAX",
            limits::TASKS_PER_JOB_MAX,
        );
        if spec.gang {
            self.at_most(
                "groups",
                spec.tasks(),
                "TASKS_PER_GANG_MAX",
                limits::TASKS_PER_GANG_MAX,
            );
        }
        let mut names = BTreeSet::new();
        for (position, group) in spec.groups.iter().enumerate() {
            let at = |field: &str| format!("groups[{position}].{field}");
            self.name(&at("name"), &group.name);
            self.check(names.insert(&group.name), &at("name"), || {
                format!(
                    "`{}` names two groups; names are unique within a job",
                    group.name
                )
            });
            self.group(group, &at);
        }
    }

    fn group(&mut self, group: &TaskGroup, at: &dyn Fn(&str) -> String) {
        self.check(group.count > 0, &at("count"), || {
            "must be at least 1".to_owned()
        });
        let has_program = match group.command.first() {
            Some(program) => !program.is_empty() || group.execution.container.is_some(),
            // The image defines the program.
            None => group.execution.container.is_some(),
        };
        self.check(has_program, &at("command"), || {
            "must name a program".to_owned()
        });
        self.check(
            group
                .command
                .iter()
                .all(|argument| !argument.contains('\0')),
            &at("command"),
            || "must not contain NUL bytes".to_owned(),
        );
        self.at_most(
            &at("command"),
            group.command.len(),
            "COMMAND_ARGUMENTS_MAX",
            limits::COMMAND_ARGUMENTS_MAX,
        );
        self.at_most(
            &at("resources.gpus"),
            group.resources.gpus,
            "GPUS_PER_TASK_MAX",
            limits::GPUS_PER_TASK_MAX,
        );
        self.check(
            group.tasks_per_host_max != Some(0),
            &at("tasks_per_host_max"),
            || "must be at least 1, or absent for no limit".to_owned(),
        );
        let absolute = group
            .working_directory
            .as_ref()
            .is_none_or(|path| path.starts_with('/'));
        self.check(absolute, &at("working_directory"), || {
            "must be an absolute path".to_owned()
        });
        self.environment(group, at);
    }

    fn environment(&mut self, group: &TaskGroup, at: &dyn Fn(&str) -> String) {
        self.at_most(
            &at("environment"),
            group.environment.len(),
            "ENVIRONMENT_VARIABLES_MAX",
            limits::ENVIRONMENT_VARIABLES_MAX,
        );
        for (name, value) in &group.environment {
            let usable = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
            self.check(usable, &at("environment"), || {
                format!("`{name}` is not a valid variable name (empty, or contains `=` or NUL)")
            });
            self.check(!name.starts_with("MUSTER_"), &at("environment"), || {
                format!("`{name}` is reserved: names that begin with MUSTER_ are set by the worker")
            });
        }
    }
}
