//! Health types in commands, events and heartbeats. `muster_health` makes the decisions about them.

mod attribution;
mod order;
mod phase;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, HostId};
use crate::named_enum;
use crate::time::TimeMs;

pub use self::attribution::{
    Attribution, CERTAIN_PERMILLE, Class, EVIDENCE_LINES_MAX, Measure, Step,
};
pub use self::order::{DeviceAction, Order, WorkStep};
pub use self::phase::{Phase, PlacementRequest};

/// Maximum number of findings per heartbeat, in the order of their numbers; the rest waits for the next one.
pub const FINDINGS_PER_REPORT_MAX: usize = 64;

/// Maximum length in bytes of a finding's raw line: the size of a kernel log record.
pub const EVIDENCE_BYTES_MAX: usize = 1_024;

named_enum! {
    /// Kind of component that a rule judges.
    ComponentKind {
        /// A GPU.
        Gpu = "gpu",
        /// A network adapter's port.
        Nic = "nic",
        /// A host as a whole.
        Host = "host",
        /// All hosts of a rack.
        Rack = "rack",
        /// A task: the finding is about its program.
        Task = "task",
    }
}

named_enum! {
    /// Severity of a finding. Ordered: the last one is the worst.
    Severity {
        /// Normal: the finding is over.
        Healthy = "healthy",
        /// Logged only.
        Info = "info",
        /// Counted: matters if it recurs.
        Warn = "warn",
        /// Works, but poorly or not for long.
        Degraded = "degraded",
        /// Does not work.
        Fatal = "fatal",
    }
}

named_enum! {
    /// Scope of a block.
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

named_enum! {
    /// Placement restriction on a component that works, but not properly. Ordered: the last one is the
    /// strictest.
    Hold {
        /// No gangs.
        Gangs = "gangs",
        /// No new work.
        Everything = "everything",
    }
}

named_enum! {
    /// Budget charged for an attempt that ends for this reason.
    Charge {
        /// Retries of the job.
        User = "user",
        /// No retries: the infrastructure failed.
        Infra = "infra",
        /// No retries: the scheduler ended it, or nothing ended.
        None = "none",
    }
}

named_enum! {
    /// Evidential weight of a rule.
    Weight {
        /// The device or the kernel itself reports the failure.
        Hard = "hard",
        /// Inferred from history, performance or suspicion.
        Soft = "soft",
    }
}

named_enum! {
    /// Action, in the order of the escalation ladder: the first that helps is enough.
    Action {
        /// Count it.
        Count = "count",
        /// Alert operators.
        Alert = "alert",
        /// Place nothing new there while it lasts.
        NoNewTask = "no_new_task",
        /// Place no gang there while it lasts.
        NoGang = "no_gang",
        /// Place no gang with GPU-to-GPU traffic there.
        NoPeerGang = "no_peer_gang",
        /// Run an active check as soon as nothing runs there.
        Check = "check",
        /// Restart the rule's services, while the rule's placement restriction stays.
        RestartService = "restart_service",
        /// Reset the GPU as soon as nothing runs on it.
        ResetIdle = "reset_idle",
        /// Stop what runs there and restart it elsewhere.
        Kill = "kill",
        /// Reset the GPU.
        Reset = "reset",
        /// Reboot the host.
        Reboot = "reboot",
        /// Inspection by an operator.
        Inspect = "inspect",
        /// Return it to the vendor.
        Rma = "rma",
        /// Notify the owners of work on it within the last day that results may be wrong.
        DoubtResults = "doubt_results",
    }
}

/// A component with health.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// A GPU.
    Gpu(GpuUuid),
    /// A port of a network adapter, under its name on the host (`mlx5_0/1`).
    Nic {
        /// The host.
        host: HostId,
        /// Name of the port.
        name: String,
    },
    /// A host.
    Host(HostId),
    /// A rack, by name.
    Rack(String),
}

impl Component {
    /// Kind of the component.
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

/// A worker's report that a component reached or left a severity of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Number within one incarnation of the agent, counted from 1 and never reused: a repeated finding counts
    /// once.
    pub sequence: u64,
    /// Name of the health rule.
    pub rule: String,
    /// What it is about.
    pub component: Component,
    /// Current severity.
    pub severity: Severity,
    /// The metric that decided.
    pub metric: String,
    /// Value of the metric, in the unit at the end of its name.
    pub measured: i64,
    /// The XID or SXid, if any.
    pub code: Option<u32>,
    /// The graphics and texture cluster that an XID 13 names.
    pub cluster: Option<(u16, u16)>,
    /// The raw line or reading, at most `EVIDENCE_BYTES_MAX`.
    pub evidence: String,
    /// Time of the observation.
    pub at: TimeMs,
}

/// A word, with a detail after a colon if there is one.
#[must_use]
pub fn with_detail(word: &str, detail: &str) -> String {
    if detail.is_empty() {
        word.to_owned()
    } else {
        format!("{word}: {detail}")
    }
}

/// Truncates a raw line to the size limit of a finding and removes control characters.
#[must_use]
pub fn raw_evidence(line: &str) -> String {
    let mut text: String = line.chars().filter(|letter| !letter.is_control()).collect();
    text.truncate(text.floor_char_boundary(EVIDENCE_BYTES_MAX));
    text
}
