//! How the tasks of a group are run, beside their command: what limits them, what secrets they get, where they run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::spec::Container;

/// How the tasks of a group are run, beside their command. The default says nothing: such tasks run as tasks did before
/// there was this part, which the log of older builds relies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Execution {
    /// The container that each task runs in; a process of the host if none.
    pub container: Option<Container>,
    /// The kernel's limits for each of a task's processes; those that are not named are the worker's own.
    pub ulimits: BTreeMap<UlimitKind, Ulimit>,
    /// Processes and threads that a task may have at a time; at least 1. No limit if none.
    pub pids_max: Option<u32>,
    /// Secrets of its host that a task is given; at most `SECRETS_PER_GROUP_MAX`.
    pub secrets: Vec<Secret>,
    /// On which CPUs, and with whose memory, its processes run.
    pub binding: CpuBinding,
}

/// A limit of the kernel for one process, in the kernel's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ulimit {
    /// What is in force, and what the process may raise up to `hard` by itself. No limit if none.
    pub soft: Option<u64>,
    /// What no process of the task raises. No limit if none.
    pub hard: Option<u64>,
}

/// What a limit of the kernel is of. Text is the name that `ulimit` and container engines have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UlimitKind {
    /// Bytes of addresses.
    As,
    /// Bytes of a core dump.
    Core,
    /// Seconds of processor time.
    Cpu,
    /// Bytes of data.
    Data,
    /// Bytes of a file that it writes.
    Fsize,
    /// Bytes of locked memory.
    Memlock,
    /// Bytes of POSIX message queues of its user.
    Msgqueue,
    /// Twenty less the lowest niceness.
    Nice,
    /// One more than the highest number of an open file.
    Nofile,
    /// Processes and threads of its user.
    Nproc,
    /// Highest real-time priority.
    Rtprio,
    /// Microseconds of real-time work without a pause.
    Rttime,
    /// Signals of its user that wait.
    Sigpending,
    /// Bytes of a stack.
    Stack,
}

impl UlimitKind {
    /// All of them, by their names.
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

    /// Its name.
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

/// A name that no limit of the kernel has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no limit of the kernel ({})", UlimitKind::ALL.map(UlimitKind::name).join(", "))]
pub struct UnknownUlimit {
    name: String,
}

impl FromStr for UlimitKind {
    type Err = UnknownUlimit;

    fn from_str(name: &str) -> Result<Self, UnknownUlimit> {
        let unknown = || UnknownUlimit {
            name: name.to_owned(),
        };
        { Self::ALL.into_iter() }
            .find(|kind| kind.name() == name)
            .ok_or_else(unknown)
    }
}

/// A secret of the host that a task is given. Only its name is ever in a specification, a log or a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Secret {
    /// The name of its file in the worker's folder of secrets.
    pub name: String,
    /// How the task is given it.
    pub form: SecretForm,
}

/// How a task is given a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SecretForm {
    /// As this environment variable, without a line end at its end.
    Variable(String),
    /// As a file that its user alone may read, in memory; this environment variable has the path.
    File(String),
}

impl SecretForm {
    /// The environment variable that it sets.
    #[must_use]
    pub const fn variable(&self) -> &String {
        match self {
            Self::Variable(variable) | Self::File(variable) => variable,
        }
    }
}

/// On which CPUs, and with whose memory, a task's processes run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum CpuBinding {
    /// On any.
    #[default]
    None,
    /// On as many CPUs as it was given, which no other bound task has while there are enough, near its GPUs.
    Cpus,
    /// On all CPUs of the NUMA nodes of its GPUs; without GPUs, of the node with the fewest bound tasks.
    Numa,
}
