//! What a script says, read.

use std::sync::Arc;

use muster_model::command::Standing;
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
    /// Names are this and a number that counts up.
    pub(crate) name: String,
    pub(crate) gpus: u32,
    pub(crate) model: String,
    pub(crate) cpus: u32,
    pub(crate) memory_gib: u64,
    /// Names of the cells around them, largest first; empty for none.
    pub(crate) place: Vec<String>,
    /// Cells inside: level and the GPUs of each.
    pub(crate) inside: Vec<(String, Vec<u32>)>,
    /// Whether their workers say so, and not the topology.
    pub(crate) learnt: bool,
}

/// A job to submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submission {
    pub(crate) spec: Arc<JobSpec>,
    /// GPUs that its groups are bound to, by group.
    pub(crate) bound: Vec<Vec<GpuName>>,
    /// Milliseconds of work, after which its tasks end well by themselves.
    pub(crate) lasts_ms: Option<u64>,
}

/// How tasks of a job end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) job: String,
    /// Only this task; all that run if none.
    pub(crate) task: Option<u32>,
    pub(crate) code: i32,
}

/// What a host or a GPU turns into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Good,
    Suspect,
    /// A host is lost, and the leases of its tasks are over; a GPU is faulted with this signal.
    Bad {
        signal: String,
    },
}

/// Something that must hold.
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

/// In which phase a job's units must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedPhase {
    pub(crate) phase: String,
    pub(crate) job: String,
    /// So many units of it; all if none.
    pub(crate) units: Option<u64>,
    /// Exactly these hosts.
    pub(crate) on: Option<Vec<String>>,
    /// Number of hosts.
    pub(crate) hosts: Option<u64>,
    /// Exactly these GPUs.
    pub(crate) gpus: Option<Vec<GpuName>>,
    /// Number of tasks that hold resources.
    pub(crate) tasks: Option<u64>,
    /// Ground of each.
    pub(crate) standing: Option<Standing>,
}

/// What `show` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Hosts,
    Queues,
    Jobs,
    Job(String),
}

/// What is taken out of placement, now or from some time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    pub(crate) target: Target,
    pub(crate) reason: String,
    /// In how long it begins, and how long before that its notice is given; now if none.
    pub(crate) planned: Option<Ahead>,
    /// How long it lasts, from its beginning on.
    pub(crate) for_ms: Option<u64>,
    /// How long what runs there may take to leave, from its beginning on; it may stay if none.
    pub(crate) drain_ms: Option<u64>,
}

/// When a block begins that is planned ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) in_ms: u64,
    pub(crate) notice_ms: u64,
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// Only names the levels; the parser has read it.
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
    End(Ending),
    Checkpoint {
        job: String,
        step: Option<u64>,
    },
    Turn {
        target: Target,
        turn: Turn,
    },
    Block(Blocking),
    Unblock {
        target: Target,
        /// Whether only what is planned is cancelled.
        planned: bool,
    },
    Advance {
        span_ms: u64,
    },
    /// Whether workers start and stop tasks by themselves.
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
    /// The workers of a job start what was placed, or stop what was told to stop.
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

/// A statement and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its first line, counted from 1.
    pub(crate) line: u32,
    /// Its last line.
    pub(crate) last_line: u32,
    /// Its first line's text.
    pub(crate) text: String,
    pub(crate) statement: Statement,
    /// The result that stands below it.
    pub(crate) recorded: Vec<String>,
}
