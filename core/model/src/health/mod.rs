//! Health types that commands, events and heartbeats carry. The decisions about them are in `muster_health`.

mod blame;
mod order;
mod phase;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, HostId};
use crate::time::TimeMs;
use crate::word_enum;

pub use self::blame::{Blame, CERTAIN_PERMILLE, Class, EVIDENCE_LINES_MAX, Measure, Step};
pub use self::order::{DeviceAction, Order, WorkStep};
pub use self::phase::{Phase, Work};

/// Findings that a worker reports with one beat, in the order of their numbers; the rest waits for the next one.
pub const FINDINGS_PER_REPORT_MAX: usize = 64;

/// Bytes of the raw line that a finding carries: what a kernel's record holds.
pub const EVIDENCE_BYTES_MAX: usize = 1_024;

word_enum! {
    /// What kind of thing a rule judges.
    ComponentKind {
        /// A GPU.
        Gpu = "gpu",
        /// A network adapter's port.
        Nic = "nic",
        /// A host as a whole.
        Host = "host",
        /// All hosts of a rack.
        Rack = "rack",
        /// A task: what is found is about its program.
        Task = "task",
    }
}

word_enum! {
    /// How bad something is. Ordered: the last one is the worst.
    Severity {
        /// As it should be: what was found is over.
        Healthy = "healthy",
        /// Worth a line.
        Info = "info",
        /// Counted: it matters if it comes again.
        Warn = "warn",
        /// It works, but not well, or not for long.
        Degraded = "degraded",
        /// It does not work.
        Fatal = "fatal",
    }
}

word_enum! {
    /// What is taken out of placement.
    Scope {
        /// Nothing.
        None = "none",
        /// The GPU, once the task on it has ended.
        GpuAtTaskEnd = "gpu_at_task_end",
        /// The GPU, now.
        Gpu = "gpu",
        /// The host, once the tasks on it have ended.
        HostAtTaskEnd = "host_at_task_end",
        /// The host, now.
        Host = "host",
    }
}

word_enum! {
    /// What is kept off something that works, but not as it should. Ordered: the last one is the most.
    Hold {
        /// Gangs.
        Gangs = "gangs",
        /// Everything new.
        Everything = "everything",
    }
}

word_enum! {
    /// Who pays for an attempt that ends for this: whose retries are used up.
    Charge {
        /// The job.
        User = "user",
        /// Nobody's retries: the infrastructure failed.
        Infra = "infra",
        /// Nobody: it was the scheduler's own doing, or nothing ended.
        None = "none",
    }
}

word_enum! {
    /// How sure a rule can be.
    Weight {
        /// The device or the kernel says itself that it is broken.
        Hard = "hard",
        /// It follows from history, speed or suspicion.
        Soft = "soft",
    }
}

word_enum! {
    /// What is done, in the order of the ladder: the first that helps is enough.
    Action {
        /// Count it.
        Count = "count",
        /// Tell people.
        Alert = "alert",
        /// Place nothing new there while it lasts.
        NoNewTask = "no_new_task",
        /// Place no gang there while it lasts.
        NoGang = "no_gang",
        /// Place no gang there that talks from GPU to GPU.
        NoPeerGang = "no_peer_gang",
        /// Run an active check as soon as nothing runs there.
        Check = "check",
        /// Start the services again that the rule is about, while what the rule keeps off stays off.
        RestartService = "restart_service",
        /// Reset the GPU as soon as nothing runs on it.
        ResetIdle = "reset_idle",
        /// End what runs there and begin it again elsewhere.
        Kill = "kill",
        /// Reset the GPU.
        Reset = "reset",
        /// Reboot the host.
        Reboot = "reboot",
        /// A person looks at it.
        Inspect = "inspect",
        /// Send it back to its vendor.
        Rma = "rma",
        /// Tell those whose work was on it within a day that its results may be wrong.
        DoubtResults = "doubt_results",
    }
}

/// Something that can be ill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// A GPU.
    Gpu(GpuUuid),
    /// A port of a network adapter, named as its host names it (`mlx5_0/1`).
    Nic {
        /// Where it is.
        host: HostId,
        /// Its name.
        name: String,
    },
    /// A host.
    Host(HostId),
    /// A rack, by name.
    Rack(String),
}

impl Component {
    /// What kind of thing it is.
    #[must_use]
    pub const fn kind(&self) -> ComponentKind {
        match self {
            Self::Gpu(_) => ComponentKind::Gpu,
            Self::Nic { .. } => ComponentKind::Nic,
            Self::Host(_) => ComponentKind::Host,
            Self::Rack(_) => ComponentKind::Rack,
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(uuid) => uuid.fmt(formatter),
            Self::Nic { host, name } => write!(formatter, "nic {name} of host {host}"),
            Self::Host(host) => write!(formatter, "host {host}"),
            Self::Rack(name) => write!(formatter, "rack {name}"),
        }
    }
}

/// What a worker says when a component reaches a severity of a rule, or leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Counted by the worker from 1 within one incarnation of its agent and never back: a repeated finding counts once.
    pub sequence: u64,
    /// Which rule.
    pub rule: String,
    /// What it is about.
    pub component: Component,
    /// How bad it is now.
    pub severity: Severity,
    /// The metric that decided.
    pub metric: String,
    /// Its value, in the unit that ends the metric's name.
    pub measured: i64,
    /// The XID or SXid, if it is one.
    pub code: Option<u32>,
    /// The graphics and texture cluster that an XID 13 names.
    pub cluster: Option<(u16, u16)>,
    /// The raw line or reading, at most `EVIDENCE_BYTES_MAX`.
    pub evidence: String,
    /// When it was found.
    pub at: TimeMs,
}

/// A word, and what there is to say of it behind a colon, if there is anything.
#[must_use]
pub fn with_detail(word: &str, detail: &str) -> String {
    if detail.is_empty() {
        word.to_owned()
    } else {
        format!("{word}: {detail}")
    }
}

/// Cuts a raw line to what a finding carries, without control characters.
#[must_use]
pub fn raw_evidence(line: &str) -> String {
    let mut text: String = line.chars().filter(|letter| !letter.is_control()).collect();
    text.truncate(text.floor_char_boundary(EVIDENCE_BYTES_MAX));
    text
}
