//! Facts of events about replicas, hosts, GPUs, blocks, queues, users and join tokens.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::{HostHealth, SilenceCause};
use crate::instant::Instant;
use crate::name::{block_target, component_name};
use crate::wire::FromWire as _;

string_enum! {
    /// Membership of a replica in the group.
    pub enum Membership from v1::ReplicaMembership {
        Learner "learner",
        Voter "voter",
        Removed "removed",
    }
}

documents! {
    /// A replica became the leader.
    pub struct LeadershipStarted from v1::LeadershipStarted {
        replica: u64 = replica_id,
        leadership_epoch: u64,
    }

    /// A replica was added, promoted, demoted or removed.
    pub struct ReplicaChanged from v1::ReplicaChanged {
        replica: u64 = replica_id,
        address: String,
        membership: Membership,
    }

    /// A host joined, or its agent reconnected.
    pub struct HostRegistered from v1::HostRegistered {
        host_id: u32,
        name: String,
        gpus: u32,
    }

    /// A health notice for operators.
    pub struct HealthNoted from v1::HealthNoted {
        note: String,
        subject: String,
        detail: String,
        job: Option<u64> = job_id,
    }

    /// A host or GPU was unblocked.
    pub struct Unblocked from v1::Unblocked {
        target: String,
        author: String,
    }

    /// The job defaults were changed.
    pub struct JobDefaultsSet from v1::JobDefaultsSet {
        attempts_without_progress_max: u32,
        bad_checkpoints_max: u32,
        restore_window_ms: u64,
    }

    /// A queue was created or changed.
    pub struct QueueSet from v1::QueueSet {
        name: String,
    }

    /// The queue tree was replaced.
    pub struct QueuesConfigured from v1::QueuesConfigured {
        author: String,
        queues: Vec<String>,
    }

    /// The topology was replaced.
    pub struct TopologySet from v1::TopologySet {
        author: String,
    }

    /// The levels of cells changed.
    pub struct LevelsChanged from v1::LevelsChanged {
        above: Vec<String>,
        inside: Vec<String>,
    }

    /// A part of the topology reported by a worker is not accepted.
    pub struct HostCellsDoubted from v1::HostCellsDoubted {
        host_id: u32,
        name: String,
        flaws: Vec<String>,
    }
}

/// The leader determined a different host health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostHealthChanged {
    pub host_id: u32,
    pub name: String,
    pub health: HostHealth,
    pub cause: Option<SilenceCause>,
}

impl From<v1::HostHealthChanged> for HostHealthChanged {
    fn from(event: v1::HostHealthChanged) -> Self {
        Self {
            cause: SilenceCause::new(event.health(), event.one_way),
            health: HostHealth::from_wire(event.health),
            host_id: event.host_id,
            name: event.name,
        }
    }
}

/// A worker reported a different GPU health; `signal` and `detail` are null if it is healthy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuHealthChanged {
    pub gpu: String,
    pub host: String,
    pub signal: Option<String>,
    pub detail: Option<String>,
}

impl From<v1::GpuHealthChanged> for GpuHealthChanged {
    fn from(event: v1::GpuHealthChanged) -> Self {
        let fault = event.health.and_then(|health| health.fault);
        let (signal, detail) = fault.map(|fault| (fault.signal, fault.detail)).unzip();
        Self {
            gpu: event.gpu,
            host: event.host,
            signal,
            detail,
        }
    }
}

/// The health phase of a GPU, an adapter or a host changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HealthChanged {
    pub component: String,
    pub host: String,
    pub from: String,
    pub to: String,
    /// May be empty.
    pub rule: String,
    pub evidence: String,
}

impl From<v1::HealthChanged> for HealthChanged {
    fn from(event: v1::HealthChanged) -> Self {
        Self {
            component: component_name(event.component.as_ref(), &event.host),
            host: event.host,
            from: event.from,
            to: event.to,
            rule: event.rule,
            evidence: event.evidence,
        }
    }
}

/// A host or GPU was taken out of placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Blocked {
    pub target: String,
    pub author: String,
    pub reason: String,
    pub evidence: String,
    pub expires_at: Option<Instant>,
    pub drain_deadline: Option<Instant>,
}

impl From<v1::Blocked> for Blocked {
    fn from(event: v1::Blocked) -> Self {
        let block = event.block.unwrap_or_default();
        let instant = |ms| Instant { ms };
        Self {
            target: block_target(event.target.as_ref()),
            author: block.author,
            reason: block.reason,
            evidence: block.evidence,
            expires_at: block.expires_at_ms.map(instant),
            drain_deadline: block.drain_deadline_ms.map(instant),
        }
    }
}

/// A block was planned. If `planned_at` is null, the plan was cancelled, and there are no further fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockPlanned {
    pub target: String,
    pub author: String,
    pub planned_at: Option<Instant>,
    #[serde(flatten)]
    pub plan: Option<BlockPlan>,
}

/// A planned block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockPlan {
    pub reason: String,
    pub evidence: String,
    pub expires_at: Option<Instant>,
    pub drain_deadline: Option<Instant>,
    pub notice_ms: u64,
}

impl From<v1::BlockPlanned> for BlockPlanned {
    fn from(event: v1::BlockPlanned) -> Self {
        let instant = |ms| Instant { ms };
        let planned = event.block.as_ref().and_then(|block| block.planned);
        Self {
            target: block_target(event.target.as_ref()),
            author: event.author,
            planned_at: planned.map(|planned| instant(planned.at_ms)),
            plan: event.block.map(|block| BlockPlan {
                reason: block.reason,
                evidence: block.evidence,
                expires_at: block.expires_at_ms.map(instant),
                drain_deadline: block.drain_deadline_ms.map(instant),
                notice_ms: planned.unwrap_or_default().notice_ms,
            }),
        }
    }
}

/// A user's rights changed, or a worker joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum AccessChanged {
    UserAdded {
        name: String,
        role: String,
        queues: Vec<String>,
        author: String,
    },
    UserRemoved {
        name: String,
        author: String,
    },
    UserTokenRotated {
        name: String,
        author: String,
    },
    JoinTokenAdded {
        id: String,
        uses_max: u32,
        host_pattern: Option<String>,
        expires_at: Instant,
        author: String,
    },
    JoinTokenRevoked {
        id: String,
        author: String,
    },
    WorkerJoined {
        host: String,
        join_token: String,
        uses_left: u32,
    },
    #[serde(other)]
    Unknown,
}

impl From<v1::AccessChanged> for AccessChanged {
    fn from(event: v1::AccessChanged) -> Self {
        use v1::access_changed::Kind;
        match event.kind {
            Some(Kind::UserAdded(it)) => Self::UserAdded {
                name: it.name,
                role: it.role,
                queues: it.queues,
                author: it.author,
            },
            Some(Kind::UserRemoved(it)) => Self::UserRemoved {
                name: it.name,
                author: it.author,
            },
            Some(Kind::UserTokenRotated(it)) => Self::UserTokenRotated {
                name: it.name,
                author: it.author,
            },
            Some(Kind::JoinTokenAdded(it)) => Self::JoinTokenAdded {
                id: it.id,
                uses_max: it.uses_max,
                host_pattern: it.host_pattern,
                expires_at: Instant {
                    ms: it.expires_at_ms,
                },
                author: it.author,
            },
            Some(Kind::JoinTokenRevoked(it)) => Self::JoinTokenRevoked {
                id: it.id,
                author: it.author,
            },
            Some(Kind::WorkerJoined(it)) => Self::WorkerJoined {
                host: it.host,
                join_token: it.join_token_id,
                uses_left: it.uses_left,
            },
            None => Self::Unknown,
        }
    }
}
