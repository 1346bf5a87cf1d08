//! Parsed statements of a script.

use std::sync::Arc;

use muster_model::command::AllocationBasis;
use muster_model::quota::QueueTree;
use muster_model::spec::JobSpec;
use muster_model::topology::Topology;

/// A host's GPU by its index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GpuName {
    pub(crate) host: String,
    pub(crate) index: u32,
}

/// A host or one of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Host(String),
    Gpu(GpuName),
}

/// Hosts of one kind that join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostsSpec {
    pub(crate) count: u32,
    /// Prefix of the names, followed by a number that counts up.
    pub(crate) name: String,
    pub(crate) gpus: u32,
    pub(crate) model: String,
    pub(crate) cpus: u32,
    pub(crate) memory_gib: u64,
    /// Names of the cells around them, largest first; empty for none.
    pub(crate) place: Vec<String>,
    /// Cells inside the host: level and the GPUs of each.
    pub(crate) inside: Vec<(String, Vec<u32>)>,
    /// Whether the location is reported by their workers instead of the topology.
    pub(crate) reported: bool,
}

/// A job to submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submission {
    pub(crate) spec: Arc<JobSpec>,
    /// GPUs that its groups are bound to, by group.
    pub(crate) bound: Vec<Vec<GpuName>>,
    /// Milliseconds of work after which its tasks succeed.
    pub(crate) lasts_ms: Option<u64>,
}

/// End of a job's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskEnd {
    pub(crate) job: String,
    /// Only this task; all running ones if `None`.
    pub(crate) task: Option<u32>,
    pub(crate) code: i32,
}

/// New state of a host or GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    Good,
    Suspect,
    /// A host is lost, and the leases of its tasks expire; a GPU gets a fault with this signal.
    Bad {
        signal: String,
    },
}

/// A condition that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    Phase(ExpectedPhase),
    Waiting {
        job: String,
        because: Option<String>,
    },
    Claim {
        job: String,
        victims: Option<Vec<String>>,
    },
    NoClaim {
        job: String,
    },
    Free {
        gpus: u64,
        on: Option<String>,
    },
    Used {
        queue: String,
        gpus: u64,
    },
    Together {
        job: String,
        level: String,
    },
    Refused {
        because: Option<String>,
    },
}

/// Expected phase of a job's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedPhase {
    pub(crate) phase: String,
    pub(crate) job: String,
    /// Number of units; all if `None`.
    pub(crate) units: Option<u64>,
    /// The exact set of hosts.
    pub(crate) on: Option<Vec<String>>,
    /// Number of hosts.
    pub(crate) hosts: Option<u64>,
    /// The exact set of GPUs.
    pub(crate) gpus: Option<Vec<GpuName>>,
    /// Number of tasks that hold resources.
    pub(crate) tasks: Option<u64>,
    /// Allocation basis of each.
    pub(crate) allocation_basis: Option<AllocationBasis>,
}

/// Object that `show` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Hosts,
    Queues,
    Jobs,
    Job(String),
}

/// A block, immediate or planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    pub(crate) target: Target,
    pub(crate) reason: String,
    /// Time until a planned block begins, and its notice; immediate if `None`.
    pub(crate) planned: Option<Ahead>,
    /// Duration of the block, from its beginning.
    pub(crate) for_ms: Option<u64>,
    /// Time that running work has to leave, from the beginning of the block; it may stay if `None`.
    pub(crate) drain_ms: Option<u64>,
}

/// Beginning of a planned block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) in_ms: u64,
    pub(crate) notice_ms: u64,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// Only names the levels; handled by the parser.
    Levels {
        above: Vec<String>,
        inside: Vec<String>,
    },
    Hosts(HostsSpec),
    Queues(Arc<QueueTree>),
    Topology(Arc<Topology>),
    Submit(Submission),
    Cancel {
        job: String,
    },
    End(TaskEnd),
    Checkpoint {
        job: String,
        step: Option<u64>,
    },
    Turn {
        target: Target,
        turn: HealthChange,
    },
    Block(Blocking),
    Unblock {
        target: Target,
        /// Whether only the planned block is cancelled.
        planned: bool,
    },
    Advance {
        span_ms: u64,
    },
    /// Whether workers start and stop tasks on their own.
    Workers {
        obey: bool,
    },
    /// Whether the planner runs after each step.
    Planner {
        auto: bool,
    },
    Plan {
        once: bool,
    },
    /// The workers of a job start its placed tasks, or end its stopped ones.
    Start {
        job: String,
    },
    Stopped {
        job: String,
    },
    Leader,
    Restart,
    EveryCut,
    Expect(Expectation),
    Show(Shown),
    Explain {
        job: String,
    },
    Repeat {
        rounds: Vec<Vec<Step>>,
        every_ms: u64,
    },
}

/// A statement and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its first line, counted from 1.
    pub(crate) line: u32,
    /// Its last line.
    pub(crate) last_line: u32,
    /// Its first line's text.
    pub(crate) text: String,
    pub(crate) statement: Statement,
    /// The recorded result below it.
    pub(crate) recorded: Vec<String>,
}
