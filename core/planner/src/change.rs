//! Changes to a job's specification that `explain` tries out, such as fewer tasks or another GPU model.

use std::fmt;
use std::sync::Arc;

use muster_engine::state::Job;
use muster_model::spec::{JobSpec, Packing, TaskGroup, Within};
use serde::{Deserialize, Serialize};

use crate::sentence::cpus;

/// A change to a job's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// The group runs fewer tasks.
    FewerTasks {
        /// The group.
        group: String,
        /// Number of tasks.
        tasks: u32,
    },
    /// Another cell level, or the same one as a preference only.
    Within {
        /// The group; `None` for the level that the whole gang shares.
        group: Option<String>,
        /// The level.
        level: String,
        /// Whether the level is required rather than preferred.
        required: bool,
    },
    /// Any host and GPU instead of the named ones.
    AnyPlace,
    /// The hosts are no longer excluded.
    Include {
        /// Host names.
        hosts: Vec<String>,
    },
    /// The models are accepted as well.
    AcceptModels {
        /// Model names.
        models: Vec<String>,
    },
    /// More tasks of a group may share a host.
    TasksPerHost {
        /// The group.
        group: String,
        /// Maximum number per host; unlimited if `None`.
        tasks: Option<u32>,
    },
    /// Other jobs may share its hosts.
    ShareHosts,
    /// Each task requests fewer CPUs or less memory.
    Less {
        /// Maximum CPUs per task, in thousandths.
        cpus_milli: u32,
        /// Maximum memory per task, in MiB.
        memory_mib: u64,
    },
    /// A run time short enough to use what is reserved for others.
    RunTime {
        /// Maximum run time in milliseconds.
        run_time_ms_max: u64,
    },
    /// The job becomes opportunistic.
    Opportunistic,
}

impl Change {
    /// Returns the job with the change applied.
    pub(super) fn of(&self, job: &Job) -> Job {
        let mut spec = JobSpec::clone(&job.spec);
        self.make(&mut spec);
        Job {
            spec: Arc::new(spec),
            ..job.clone()
        }
    }

    fn make(&self, spec: &mut JobSpec) {
        let scheduling = &mut spec.scheduling;
        match self {
            Self::FewerTasks { group, tasks } => {
                for group in named(spec, group) {
                    group.count = *tasks;
                    let enough = &mut group.layout.count_min;
                    *enough = enough.map(|enough| enough.min(*tasks));
                }
            }
            Self::Within {
                group,
                level,
                required,
            } => {
                let within = Some(Within {
                    level: level.clone(),
                    required: *required,
                });
                match group {
                    Some(group) => {
                        named(spec, group).for_each(|group| group.layout.within = within.clone());
                    }
                    None => scheduling.within = within,
                }
            }
            Self::AnyPlace => {
                scheduling.hosts.clear();
                spec.groups
                    .iter_mut()
                    .for_each(|group| group.layout.gpus.clear());
            }
            Self::Include { hosts } => {
                let excluded = &mut scheduling.hosts_excluded;
                excluded.retain(|host| !hosts.contains(host));
            }
            Self::AcceptModels { models } => {
                for group in &mut spec.groups {
                    if !group.resources.gpu_models.is_empty() {
                        group.resources.gpu_models.extend(models.iter().cloned());
                    }
                }
            }
            Self::TasksPerHost { group, tasks } => {
                named(spec, group).for_each(|group| group.tasks_per_host_max = *tasks);
            }
            Self::ShareHosts => scheduling.packing = Packing::Pack,
            Self::Less {
                cpus_milli,
                memory_mib,
            } => {
                for group in &mut spec.groups {
                    let asked = &mut group.resources;
                    asked.cpus_milli = asked.cpus_milli.min(*cpus_milli);
                    asked.memory_mib = asked.memory_mib.min(*memory_mib);
                }
            }
            Self::RunTime { run_time_ms_max } => {
                scheduling.run_time_ms_max = Some(*run_time_ms_max);
            }
            Self::Opportunistic => scheduling.opportunistic = true,
        }
    }
}

fn named<'a>(spec: &'a mut JobSpec, name: &'a str) -> impl Iterator<Item = &'a mut TaskGroup> {
    let groups = spec.groups.iter_mut();
    groups.filter(move |group| group.name == name)
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerTasks { group, tasks } => {
                write!(formatter, "ask for {tasks} tasks of group {group}")
            }
            Self::Within {
                level,
                required,
                group,
            } => {
                let verb = if *required { "require" } else { "only prefer" };
                write!(formatter, "{verb} one {level}")?;
                match group {
                    Some(group) => write!(formatter, " for group {group}"),
                    None => Ok(()),
                }
            }
            Self::AnyPlace => formatter.write_str("name no hosts or GPUs"),
            Self::Include { hosts } => {
                write!(formatter, "do not exclude {}", hosts.join(", "))
            }
            Self::AcceptModels { models } => {
                write!(formatter, "accept GPUs of model {} too", models.join(", "))
            }
            Self::TasksPerHost {
                group,
                tasks: Some(tasks),
            } => write!(formatter, "let {tasks} tasks of group {group} share a host"),
            Self::TasksPerHost { group, tasks: None } => {
                write!(formatter, "let all tasks of group {group} share a host")
            }
            Self::ShareHosts => formatter.write_str("share hosts with other jobs"),
            Self::Less {
                cpus_milli,
                memory_mib,
            } => {
                let limits: Vec<String> = [
                    (*cpus_milli < u32::MAX).then(|| format!("{} CPUs", cpus(*cpus_milli))),
                    (*memory_mib < u64::MAX).then(|| format!("{memory_mib} MiB")),
                ]
                .into_iter()
                .flatten()
                .collect();
                let listed = limits.join(" and ");
                write!(formatter, "ask for at most {listed} for each task")
            }
            Self::RunTime { run_time_ms_max } => write!(
                formatter,
                "give it a run time of at most {} s",
                run_time_ms_max / 1_000
            ),
            Self::Opportunistic => formatter.write_str("submit it as opportunistic"),
        }
    }
}
