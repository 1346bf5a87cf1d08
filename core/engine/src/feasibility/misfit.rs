//! Reasons why a host cannot take a task.

use std::fmt;

use muster_model::command::HostHealth;
use muster_model::ids::{GpuUuid, JobId};
use muster_model::limits;

/// Reason why a host cannot take a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Its heartbeats are missing.
    HostHealth(HostHealth),
    /// It is out of placement.
    HostBlocked,
    /// It, or one of its GPUs, was repaired and is on probation: until it proves itself it takes only work
    /// that can be lost.
    OnProbation,
    /// A rule keeps gangs off it because of its own state, or that of one of its GPUs or adapters.
    NoGangs,
    /// It is to be blocked before the task is sure to have ended.
    Maintenance {
        /// Milliseconds until the block.
        in_ms: u64,
        /// Reason of the block.
        reason: String,
    },
    /// It has too few free CPUs.
    Cpus {
        /// Thousandths of CPUs asked for.
        need_milli: u32,
        /// Thousandths of CPUs free.
        free_milli: u32,
    },
    /// It has too little free memory.
    Memory {
        /// MiB asked for.
        need_mib: u64,
        /// MiB free.
        free_mib: u64,
    },
    /// It has too few free GPUs of an acceptable model.
    Gpus {
        /// GPUs asked for.
        need: u32,
        /// GPUs free.
        free: u32,
    },
    /// The number of GPUs given differs from the request.
    GpuCount {
        /// GPUs asked for.
        need: u32,
        /// GPUs given.
        given: u32,
    },
    /// The GPU is not one of the host's, or is not in the host's order.
    GpuUnknown(GpuUuid),
    /// The GPU is held, claimed for another unit, blocked or unfit.
    GpuTaken(GpuUuid),
    /// The GPU's model is not acceptable to the task.
    GpuModel(GpuUuid),
    /// The group names the GPUs that it may use, and this is not one of them.
    GpuNotNamed(GpuUuid),
    /// The GPUs given do not lie in one cell of the requested level.
    NotWithin {
        /// The level (`within`).
        level: String,
    },
    /// Tasks of one group of a gang are on GPUs of two models.
    Models {
        /// The group.
        group: String,
    },
    /// The job names the hosts that it may use, and this is not one of them (`hosts`).
    HostNotNamed,
    /// The job excludes the host (`hosts_excluded`).
    HostExcluded,
    /// The task runs in a container, and the host has no container engine (it lacks the label
    /// `muster.engine`).
    NoContainerEngine,
    /// An exclusive job is on it, or has a claim there (`packing: exclusive`).
    HostExclusive(JobId),
    /// The job is exclusive, and another one is on the host, or has a claim there.
    HostShared(JobId),
    /// It has the maximum number of tasks already.
    Tasks,
    /// It has the maximum number of tasks of the group already.
    TasksPerHost {
        /// The maximum (`tasks_per_host_max`).
        limit: u32,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostHealth(health) => write!(formatter, "it is {health:?}"),
            Self::OnProbation => formatter.write_str(
                "it is on probation: it accepts only single tasks with a retry left and preemptible work",
            ),
            Self::NoGangs => {
                formatter.write_str("a health rule keeps gangs off it (`muster health list`)")
            }
            Self::Maintenance { in_ms, reason } => write!(
                formatter,
                "it is to be blocked in {} s ({reason}), and accepts only work that is sure to end before",
                in_ms / 1_000
            ),
            Self::HostBlocked => formatter.write_str("it is blocked"),
            Self::Cpus {
                need_milli,
                free_milli,
            } => write!(
                formatter,
                "{need_milli} thousandths of CPUs asked for, {free_milli} free"
            ),
            Self::Memory { need_mib, free_mib } => {
                write!(
                    formatter,
                    "{need_mib} MiB of memory asked for, {free_mib} free"
                )
            }
            Self::Gpus { need, free } => {
                write!(formatter, "{need} GPUs asked for, {free} acceptable free")
            }
            Self::GpuCount { need, given } => {
                write!(formatter, "{need} GPUs asked for, {given} given")
            }
            Self::GpuUnknown(gpu) => write!(formatter, "{gpu} does not exist on the host or is out of order"),
            Self::GpuTaken(gpu) => write!(formatter, "{gpu} is held, claimed, blocked or unfit"),
            Self::GpuModel(gpu) => write!(formatter, "{gpu} is of a model that is not acceptable"),
            Self::GpuNotNamed(gpu) => {
                write!(formatter, "{gpu} is not one of the GPUs that the group names")
            }
            Self::NotWithin { level } => {
                write!(formatter, "the GPUs do not share a cell of level `{level}`")
            }
            Self::Models { group } => {
                write!(formatter, "group `{group}` would be on GPUs of two models")
            }
            Self::HostNotNamed => formatter.write_str("it is not one of the hosts that the job names"),
            Self::HostExcluded => formatter.write_str("the job excludes it"),
            Self::NoContainerEngine => formatter.write_str("it has no container engine"),
            Self::HostExclusive(job) => write!(formatter, "job {job} uses it exclusively"),
            Self::HostShared(job) => {
                write!(
                    formatter,
                    "the job needs it exclusively, and job {job} is there"
                )
            }
            Self::Tasks => write!(
                formatter,
                "it has {} tasks already, or fewer with long commands and environments \
                 (TASKS_PER_HOST_MAX, TASK_TEXT_BYTES)",
                limits::TASKS_PER_HOST_MAX
            ),
            Self::TasksPerHost { limit } => write!(
                formatter,
                "it has {limit} tasks of the group already (tasks_per_host_max)"
            ),
        }
    }
}
