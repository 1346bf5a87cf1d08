//! Job specifications. Absent fields of the wire form get their defaults here; the core's form has every
//! field, and its wire form contains every field, so that it converts back unchanged.

use muster_model::spec::{
    DEFAULT_QUEUE, Execution, GANG_PARTITION_GRACE_MS, JobSpec, Layout, Lifecycle, Resources,
    RetryPolicy, SINGLE_PARTITION_GRACE_MS, STOP_GRACE_MS, Scheduling, TaskGroup,
};

use crate::field::InvalidField;
use crate::v1;

/// Default name of a job's only task group.
const DEFAULT_GROUP: &str = "main";

impl TryFrom<v1::JobSpec> for JobSpec {
    type Error = InvalidField;

    /// Fills in the defaults; validity is checked by `spec::validate`.
    fn try_from(wire: v1::JobSpec) -> Result<Self, InvalidField> {
        let partition_grace_default_ms = if wire.gang {
            GANG_PARTITION_GRACE_MS
        } else {
            SINGLE_PARTITION_GRACE_MS
        };
        // With several groups, an absent name stays empty, and validation rejects it with its position.
        let group_name = if wire.groups.len() == 1 {
            DEFAULT_GROUP
        } else {
            ""
        };
        let groups = wire.groups.into_iter().enumerate();
        Ok(Self {
            name: wire.name,
            user: wire.user,
            queue: wire.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            priority: wire.priority,
            gang: wire.gang,
            groups: groups
                .map(|(position, group)| {
                    group_from_wire(group, group_name)
                        .map_err(|invalid| invalid.within_item("groups", position))
                })
                .collect::<Result<_, _>>()?,
            retry: wire.retry.map_or_else(RetryPolicy::default, Into::into),
            partition_grace_ms: wire
                .partition_grace_ms
                .unwrap_or(partition_grace_default_ms),
            stop_grace_ms: wire.stop_grace_ms.unwrap_or(STOP_GRACE_MS),
            labels: wire.labels,
            scheduling: wire
                .scheduling
                .map_or_else(|| Ok(Scheduling::default()), Scheduling::try_from)
                .map_err(|invalid| invalid.within("scheduling"))?,
            lifecycle: wire
                .lifecycle
                .map_or_else(|| Ok(Lifecycle::default()), Lifecycle::try_from)
                .map_err(|invalid| invalid.within("lifecycle"))?,
        })
    }
}

fn group_from_wire(wire: v1::TaskGroup, default_name: &str) -> Result<TaskGroup, InvalidField> {
    Ok(TaskGroup {
        name: wire.name.unwrap_or_else(|| default_name.to_owned()),
        count: wire.count.unwrap_or(1),
        resources: wire.resources.map_or_else(Resources::default, Into::into),
        command: wire.command,
        environment: wire.environment,
        working_directory: wire.working_directory,
        tasks_per_host_max: wire.tasks_per_host_max,
        layout: wire
            .layout
            .map_or_else(|| Ok(Layout::default()), Layout::try_from)
            .map_err(|invalid| invalid.within("layout"))?,
        execution: wire
            .execution
            .map_or_else(|| Ok(Execution::default()), Execution::try_from)
            .map_err(|invalid| invalid.within("execution"))?,
    })
}

impl From<&JobSpec> for v1::JobSpec {
    fn from(spec: &JobSpec) -> Self {
        Self {
            name: spec.name.clone(),
            user: spec.user.clone(),
            queue: Some(spec.queue.clone()),
            priority: spec.priority,
            gang: spec.gang,
            groups: spec.groups.iter().map(Into::into).collect(),
            retry: Some(spec.retry.into()),
            partition_grace_ms: Some(spec.partition_grace_ms),
            stop_grace_ms: Some(spec.stop_grace_ms),
            labels: spec.labels.clone(),
            // Absent if it requests nothing: most specifications keep their length.
            scheduling: (spec.scheduling != Scheduling::default())
                .then(|| (&spec.scheduling).into()),
            lifecycle: (spec.lifecycle != Lifecycle::default()).then(|| (&spec.lifecycle).into()),
        }
    }
}

impl From<&TaskGroup> for v1::TaskGroup {
    fn from(group: &TaskGroup) -> Self {
        Self {
            name: Some(group.name.clone()),
            count: Some(group.count),
            resources: Some((&group.resources).into()),
            command: group.command.clone(),
            environment: group.environment.clone(),
            working_directory: group.working_directory.clone(),
            tasks_per_host_max: group.tasks_per_host_max,
            layout: (group.layout != Layout::default()).then(|| (&group.layout).into()),
            execution: (group.execution != Execution::default()).then(|| (&group.execution).into()),
        }
    }
}

impl From<v1::Resources> for Resources {
    fn from(wire: v1::Resources) -> Self {
        Self {
            gpus: wire.gpus,
            gpu_models: wire.gpu_models,
            cpus_milli: wire.cpus_milli,
            memory_mib: wire.memory_mib,
        }
    }
}

impl From<&Resources> for v1::Resources {
    fn from(resources: &Resources) -> Self {
        Self {
            gpus: resources.gpus,
            gpu_models: resources.gpu_models.clone(),
            cpus_milli: resources.cpus_milli,
            memory_mib: resources.memory_mib,
        }
    }
}

impl From<v1::RetryPolicy> for RetryPolicy {
    fn from(wire: v1::RetryPolicy) -> Self {
        Self {
            retries_max: wire.retries_max,
            backoff_ms: wire.backoff_ms,
        }
    }
}

impl From<RetryPolicy> for v1::RetryPolicy {
    fn from(retry: RetryPolicy) -> Self {
        Self {
            retries_max: retry.retries_max,
            backoff_ms: retry.backoff_ms,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn minimal(gang: bool) -> v1::JobSpec {
        v1::JobSpec {
            name: "train".to_owned(),
            user: "ada".to_owned(),
            gang,
            groups: vec![v1::TaskGroup {
                command: vec!["true".to_owned()],
                ..v1::TaskGroup::default()
            }],
            ..v1::JobSpec::default()
        }
    }

    #[test]
    fn absent_fields_get_their_defaults() {
        let spec = JobSpec::try_from(minimal(false)).unwrap();
        assert_eq!(spec.queue, "default");
        assert_eq!(spec.groups[0].name, "main");
        assert_eq!(spec.groups[0].count, 1);
        assert_eq!(spec.partition_grace_ms, 45_000);
        assert_eq!(spec.stop_grace_ms, 30_000);
        assert_eq!(spec.retry, RetryPolicy::default());
        assert!(muster_model::spec::validate(&spec).is_empty());
        assert_eq!(
            JobSpec::try_from(minimal(true)).unwrap().partition_grace_ms,
            300_000
        );
    }

    #[test]
    fn an_explicit_value_is_never_replaced_by_a_default() {
        let mut wire = minimal(false);
        wire.queue = Some(String::new());
        wire.groups[0].count = Some(0);
        wire.stop_grace_ms = Some(0);
        let spec = JobSpec::try_from(wire).unwrap();
        assert_eq!(
            (
                spec.queue.as_str(),
                spec.groups[0].count,
                spec.stop_grace_ms
            ),
            ("", 0, 0)
        );
        assert_eq!(JobSpec::try_from(v1::JobSpec::from(&spec)).unwrap(), spec);
    }

    #[test]
    fn two_groups_must_be_named() {
        let mut wire = minimal(false);
        wire.groups.push(wire.groups[0].clone());
        let broken = muster_model::spec::validate(&JobSpec::try_from(wire).unwrap());
        assert_eq!(broken[0].field, "groups[0].name");
    }
}
