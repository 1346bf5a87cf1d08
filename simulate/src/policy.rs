//! Policies of a simulated cluster: the only place where queues, priorities and engine settings are derived
//! from a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use muster_model::command::{Command, ConfigCommand};
use muster_model::ids::{RequestId, RequestKey};
use muster_model::limits;
use muster_model::quota::{
    self, Amounts, CellQuota, Defragment, Guarantee, QueueConfig, QueueOrder, QueueTree,
};
use muster_model::spec::{
    DEFAULT_QUEUE, Execution, GANG_PARTITION_GRACE_MS, JobSpec, Layout, Lifecycle, Resources,
    RetryPolicy, SINGLE_PARTITION_GRACE_MS, STOP_GRACE_MS, Scheduling, TaskGroup,
};
use muster_model::topology::HOST_LEVEL;

use crate::fault::prepare_spec;
use crate::trace::{Cluster, TraceHost, TraceJob};
use crate::workload::Scenario;

/// Author of the queue configuration.
const AUTHOR: &str = "simulator";
/// User of jobs whose trace names none.
const USER_DEFAULT: &str = "trace";
/// Priorities of the service classes that traces name; best-effort classes (`BE`, `Spot`) and unknown ones
/// have 0.
const CLASSES: [(&str, i32); 4] = [
    ("Guaranteed", 100),
    ("HP", 100),
    ("LS", 100),
    ("Burstable", 50),
];

/// Policies under which a cluster is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// One queue for all jobs, in strict order of submission.
    Fifo,
    /// One queue, by the priority or service class of the trace, then in strict order of submission.
    Priority,
    /// One queue in order of submission; small jobs may overtake one that waits for room.
    Backfill,
    /// A queue for every virtual cluster of the trace, each in strict order of submission, without quotas.
    Queues,
    /// A queue for every virtual cluster, all with the same weight, without quotas, with backfill.
    Fair,
    /// A queue for every virtual cluster, each guaranteed its quota of GPUs.
    Capacity,
    /// A queue for every virtual cluster, each guaranteed whole hosts that cover its quota of GPUs.
    Cells,
    /// The queue tree configured in the scenario.
    Tree,
}

/// The error for an unknown policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{name}` (known: {known})")]
pub struct UnknownPolicy {
    name: String,
    known: String,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::Fifo,
        Self::Priority,
        Self::Backfill,
        Self::Queues,
        Self::Fair,
        Self::Capacity,
        Self::Cells,
        Self::Tree,
    ];

    /// Name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Priority => "priority",
            Self::Backfill => "backfill",
            Self::Queues => "queues",
            Self::Fair => "fair",
            Self::Capacity => "capacity",
            Self::Cells => "cells",
            Self::Tree => "tree",
        }
    }

    /// Whether it uses the quotas of virtual clusters.
    #[must_use]
    pub const fn needs_quotas(self) -> bool {
        matches!(self, Self::Capacity | Self::Cells)
    }

    /// Whether it may stop work in favour of other work.
    #[must_use]
    pub const fn preempts(self) -> bool {
        matches!(self, Self::Capacity | Self::Cells | Self::Tree)
    }

    /// The queue in which a job waits.
    fn queue<'a>(self, scenario: &'a Scenario, job: &'a TraceJob) -> &'a str {
        match self {
            Self::Fifo | Self::Priority | Self::Backfill => DEFAULT_QUEUE,
            Self::Queues | Self::Fair | Self::Capacity | Self::Cells => queue_named(job),
            Self::Tree => leaf_for(&scenario.tree, queue_named(job)),
        }
    }

    fn priority(self, job: &TraceJob) -> i32 {
        match self {
            Self::Fifo | Self::Backfill | Self::Queues | Self::Fair => 0,
            Self::Priority | Self::Capacity | Self::Cells | Self::Tree => {
                job.service_class.as_deref().map_or(0, priority_of_class)
            }
        }
    }

    /// The commands that configure the engine for a scenario, before its first job is submitted.
    pub(crate) fn setup(self, scenario: &Scenario) -> Vec<Command> {
        vec![Command::Config(ConfigCommand::ConfigureQueues {
            // Request ids of submissions count up from 1.
            request: RequestKey::of(RequestId(u128::MAX)),
            author: AUTHOR.to_owned(),
            tree: Arc::new(self.tree(scenario)),
        })]
    }

    /// All queues that the scenario's jobs name, and their ancestors.
    fn tree(self, scenario: &Scenario) -> QueueTree {
        if self == Self::Tree {
            return scenario.tree.clone();
        }
        let named = scenario.jobs.iter().map(|job| self.queue(scenario, job));
        let names: BTreeSet<&str> = named
            .chain([DEFAULT_QUEUE])
            .flat_map(quota::within)
            .collect();
        let queues = names.into_iter();
        QueueTree {
            queues: queues
                .map(|name| (name.to_owned(), self.queue_config(scenario, name)))
                .collect(),
            history_half_life_ms: None,
            defragment: scenario.settings.rules.defragment.then(Defragment::default),
        }
    }

    fn queue_config(self, scenario: &Scenario, name: &str) -> QueueConfig {
        let rules = scenario.settings.rules;
        let is_strict = rules.strict || matches!(self, Self::Fifo | Self::Priority | Self::Queues);
        let guarantee = self.guarantee(scenario, name);
        let has_quota = guarantee != Guarantee::default();
        let defaults = QueueConfig::default();
        QueueConfig {
            order: match self {
                Self::Priority | Self::Capacity | Self::Cells | Self::Tree => QueueOrder::Priority,
                Self::Fifo | Self::Backfill | Self::Queues | Self::Fair => QueueOrder::Fifo,
            },
            backfill: !is_strict,
            // Without backfill the head needs no reservation, and a queue with reservations lets others
            // pass.
            reserve_after_ms: if is_strict {
                limits::PERIOD_MS_MAX
            } else {
                defaults.reserve_after_ms
            },
            // A queue without a guarantee uses what is left over.
            borrow: rules.borrow || !has_quota,
            movable: rules.defragment,
            guarantee,
            ..defaults
        }
    }

    fn guarantee(self, scenario: &Scenario, name: &str) -> Guarantee {
        let mut quotas = scenario.quotas.iter();
        let quota = quotas.find(|quota| quota.queue == name);
        match (self, quota) {
            (Self::Capacity, Some(quota)) => Guarantee::Amounts(Amounts {
                gpus: quota.gpus,
                ..Amounts::default()
            }),
            (Self::Cells, Some(quota)) => whole_hosts(scenario, quota.gpus),
            _ => Guarantee::default(),
        }
    }

    /// The submission of a trace's job.
    ///
    /// More than one task is a gang. A fraction of a GPU is rounded up to a whole one. CPUs and memory that
    /// the trace does not give are not requested. A failing job is not retried: the trace's duration covers
    /// all its attempts.
    pub(crate) fn spec(self, scenario: &Scenario, job: &TraceJob) -> JobSpec {
        let mut spec = self.plain_spec(scenario, job);
        if scenario.health_features.is_some() {
            prepare_spec(&mut spec, job);
        }
        spec
    }

    fn plain_spec(self, scenario: &Scenario, job: &TraceJob) -> JobSpec {
        let information = scenario.settings.job_information;
        let gang = job.tasks > 1;
        JobSpec {
            name: match information.alike {
                true => format!("{} GPUs", job.gpus()),
                false => job.name.clone(),
            },
            user: job.user.clone().unwrap_or_else(|| USER_DEFAULT.to_owned()),
            queue: self.queue(scenario, job).to_owned(),
            priority: self.priority(job),
            gang,
            groups: vec![TaskGroup {
                name: "main".to_owned(),
                count: job.tasks,
                resources: Resources {
                    gpus: job.gpus_per_task,
                    gpu_models: job.gpu_models.clone(),
                    cpus_milli: job.cpus_milli_per_task.unwrap_or(0),
                    memory_mib: job.memory_mib_per_task.unwrap_or(0),
                },
                command: vec!["true".to_owned()],
                environment: BTreeMap::new(),
                working_directory: None,
                tasks_per_host_max: None,
                layout: Layout::default(),
                execution: Execution::default(),
            }],
            retry: RetryPolicy {
                retries_max: 0,
                backoff_ms: 0,
            },
            partition_grace_ms: if gang {
                GANG_PARTITION_GRACE_MS
            } else {
                SINGLE_PARTITION_GRACE_MS
            },
            stop_grace_ms: STOP_GRACE_MS,
            labels: BTreeMap::new(),
            scheduling: Scheduling {
                run_time_ms_max: information.limits.of(job.duration_ms),
                ..Scheduling::default()
            },
            lifecycle: Lifecycle::default(),
        }
    }
}

/// Hosts of the first kind with GPUs that cover the given number of GPUs; a remainder smaller than a host
/// is dropped.
fn whole_hosts(scenario: &Scenario, gpus: u64) -> Guarantee {
    let Some(host) = host_kind(&scenario.cluster) else {
        return Guarantee::default();
    };
    Guarantee::Cells(vec![CellQuota {
        level: HOST_LEVEL.to_owned(),
        gpu_model: host.gpu_model.clone(),
        gpus: host.gpus,
        count: u32::try_from(gpus / u64::from(host.gpus)).unwrap_or(u32::MAX),
        pinned: Vec::new(),
    }])
}

/// The queue of a tree in which jobs of a virtual cluster wait: the one with its name, else the first leaf
/// whose last component is its name, else `default`.
fn leaf_for<'a>(tree: &'a QueueTree, cluster: &'a str) -> &'a str {
    if tree.queues.contains_key(cluster) {
        return cluster;
    }
    let is_parent = |name: &str| {
        let mut names = tree.queues.keys();
        names.any(|other| quota::parent_of(other) == Some(name))
    };
    let ends_so = |name: &&String| name.rsplit('/').next() == Some(cluster) && !is_parent(name);
    let leaf = tree.queues.keys().find(ends_so);
    leaf.map_or(DEFAULT_QUEUE, String::as_str)
}

/// The first host with GPUs: quotas are counted in such hosts.
pub(crate) fn host_kind(cluster: &Cluster) -> Option<&TraceHost> {
    cluster.hosts.iter().find(|host| host.gpus > 0)
}

/// The queue under which a job is reported under any policy: its virtual cluster.
pub(crate) fn queue_named(job: &TraceJob) -> &str {
    job.queue.as_deref().unwrap_or(DEFAULT_QUEUE)
}

fn priority_of_class(class: &str) -> i32 {
    let number = class.parse::<i64>().ok();
    let clamped = number.map(|number| {
        let limit = i64::from(limits::PRIORITY_MAX);
        i32::try_from(number.clamp(-limit, limit)).unwrap_or(0)
    });
    let known = CLASSES.iter().find(|(name, _)| *name == class);
    clamped
        .or_else(|| known.map(|(_, priority)| *priority))
        .unwrap_or(0)
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| UnknownPolicy {
            name: text.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_numbers_are_priorities() {
        for (class, priority) in [("LS", 100), ("BE", 0), ("7", 7), ("-3", -3), ("?", 0)] {
            assert_eq!(priority_of_class(class), priority, "{class}");
        }
        assert_eq!(priority_of_class("99999999999"), limits::PRIORITY_MAX);
    }

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("best".parse::<Policy>().is_err());
    }

    #[test]
    fn specifications_are_valid() {
        let job = TraceJob {
            name: "a".to_owned(),
            tasks: 4,
            gpus_per_task: 8,
            duration_ms: Some(0),
            ..TraceJob::default()
        };
        let settings = crate::Settings::default();
        let cluster = Cluster::uniform(1, 8, "gpu");
        let scenario = Scenario::new(cluster, vec![job.clone()], &[], settings);
        for policy in Policy::ALL {
            let violations = muster_model::spec::validate(&policy.spec(&scenario, &job));
            assert!(violations.is_empty(), "{policy}: {violations:?}");
        }
    }

    #[test]
    fn virtual_clusters_find_their_queue_in_a_tree() {
        let names = [
            "research",
            "research/vision",
            "research/vision/a",
            "ops",
            "b",
        ];
        let queues = names.map(|name| (name.to_owned(), QueueConfig::default()));
        let tree = QueueTree {
            queues: queues.into(),
            history_half_life_ms: None,
            defragment: None,
        };
        for (cluster, queue) in [
            ("b", "b"),
            ("a", "research/vision/a"),
            ("vision", DEFAULT_QUEUE),
            ("ops", "ops"),
            ("else", DEFAULT_QUEUE),
        ] {
            assert_eq!(leaf_for(&tree, cluster), queue, "{cluster}");
        }
    }
}
