//! Execution settings of a group's tasks, besides their command: limits, secrets and CPU binding.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::spec::Container;

/// Execution settings of a group's tasks, besides their command. The default sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Execution {
    /// Container of each task; processes run directly on the host if `None`.
    pub container: Option<Container>,
    /// Kernel resource limits of each process of a task; missing ones are inherited from the worker.
    pub ulimits: BTreeMap<UlimitKind, Ulimit>,
    /// Maximum number of processes and threads per task; at least 1. No limit if `None`.
    pub pids_max: Option<u32>,
    /// Secrets of the host passed to a task; at most `SECRETS_PER_GROUP_MAX`.
    pub secrets: Vec<Secret>,
    /// CPUs and memory nodes of its processes.
    pub binding: CpuBinding,
}

/// A kernel resource limit for one process, in the kernel's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ulimit {
    /// The limit in force, which the process may raise up to `hard`. No limit if `None`.
    pub soft: Option<u64>,
    /// Ceiling of the soft limit. No limit if `None`.
    pub hard: Option<u64>,
}

/// Kind of a kernel resource limit. The text form is the name used by `ulimit` and container engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UlimitKind {
    /// Address space in bytes.
    As,
    /// Core dump size in bytes.
    Core,
    /// CPU time in seconds.
    Cpu,
    /// Data segment in bytes.
    Data,
    /// Size of written files in bytes.
    Fsize,
    /// Locked memory in bytes.
    Memlock,
    /// POSIX message queues of its user in bytes.
    Msgqueue,
    /// Twenty minus the lowest nice value.
    Nice,
    /// One more than the highest file descriptor.
    Nofile,
    /// Processes and threads of its user.
    Nproc,
    /// Highest real-time priority.
    Rtprio,
    /// Microseconds of real-time CPU use without a blocking call.
    Rttime,
    /// Pending signals of its user.
    Sigpending,
    /// Stack in bytes.
    Stack,
}

impl UlimitKind {
    /// All kinds, sorted by name.
    pub const ALL: [Self; 14] = [
        Self::As,
        Self::Core,
        Self::Cpu,
        Self::Data,
        Self::Fsize,
        Self::Memlock,
        Self::Msgqueue,
        Self::Nice,
        Self::Nofile,
        Self::Nproc,
        Self::Rtprio,
        Self::Rttime,
        Self::Sigpending,
        Self::Stack,
    ];

    /// Name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::As => "as",
            Self::Core => "core",
            Self::Cpu => "cpu",
            Self::Data => "data",
            Self::Fsize => "fsize",
            Self::Memlock => "memlock",
            Self::Msgqueue => "msgqueue",
            Self::Nice => "nice",
            Self::Nofile => "nofile",
            Self::Nproc => "nproc",
            Self::Rtprio => "rtprio",
            Self::Rttime => "rttime",
            Self::Sigpending => "sigpending",
            Self::Stack => "stack",
        }
    }
}

impl fmt::Display for UlimitKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that is not a kernel resource limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a kernel resource limit ({})", UlimitKind::ALL.map(UlimitKind::name).join(", "))]
pub struct UnknownUlimit {
    name: String,
}

impl FromStr for UlimitKind {
    type Err = UnknownUlimit;

    fn from_str(name: &str) -> Result<Self, UnknownUlimit> {
        let unknown = || UnknownUlimit {
            name: name.to_owned(),
        };
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(unknown)
    }
}

/// A secret of the host passed to a task. Specification, log and state contain only its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Secret {
    /// Name of its file in the worker's directory of secrets.
    pub name: String,
    /// How the task receives it.
    pub form: SecretForm,
}

/// How a task receives a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SecretForm {
    /// In this environment variable, without a trailing newline.
    Variable(String),
    /// As an in-memory file readable by the task's user only; this environment variable has the path.
    File(String),
}

impl SecretForm {
    /// The environment variable that is set.
    #[must_use]
    pub const fn variable(&self) -> &String {
        match self {
            Self::Variable(variable) | Self::File(variable) => variable,
        }
    }
}

/// CPUs and memory nodes of a task's processes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum CpuBinding {
    /// Any CPU.
    #[default]
    None,
    /// As many CPUs as were allocated to the task, exclusive among bound tasks while there are enough, near
    /// its GPUs.
    Cpus,
    /// All CPUs of its GPUs' NUMA nodes; without GPUs, of the node with the fewest bound tasks.
    Numa,
}
