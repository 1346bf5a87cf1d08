//! Faults and repairs of a simulated world.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sim::faults::host_fault::HostFault;

/// A node in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRef {
    /// A replica, by its id.
    Replica(u32),
    /// The agent of a host, by the host's number.
    Agent(u32),
    /// A user.
    User(u32),
}

impl fmt::Display for NodeRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(id) => write!(formatter, "replica-{id}"),
            Self::Agent(host) => write!(formatter, "node{host:02}"),
            Self::User(number) => write!(formatter, "user-{number}"),
        }
    }
}

/// A fault or repair. Replicas count from 1; hosts, their GPUs and users from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A replica is killed.
    KillReplica(u32),
    /// A node is cut off from all others, both ways.
    Isolate(NodeRef),
    /// A link is cut, one way.
    Cut {
        /// The sender.
        from: NodeRef,
        /// The receiver.
        to: NodeRef,
    },
    /// A link loses and delays some messages, and delivers some requests twice.
    DegradeLink {
        /// The sender.
        from: NodeRef,
        /// The receiver.
        to: NodeRef,
    },
    /// A host's agent is killed.
    KillAgent(u32),
    /// A host dies with all its processes.
    KillHost(u32),
    /// A GPU reports an XID error.
    BreakGpu {
        /// The host.
        host: u32,
        /// Index of the GPU.
        gpu: u32,
        /// XID of the error.
        xid: u32,
    },
    /// A host, or a port of one of its adapters, becomes faulty.
    HostFaulted {
        /// The host.
        host: u32,
        /// The port, for an adapter's fault.
        port: u32,
        /// The fault.
        fault: HostFault,
        /// Whether it persists until repaired; otherwise it is read once.
        persists: bool,
    },
    /// The wall clocks of all hosts are set: a time server is wrong.
    StepHostClocks {
        /// Step in milliseconds.
        by_ms: i64,
    },
    /// The wall clock of a replica is set.
    StepReplicaClock {
        /// The replica.
        replica: u32,
        /// Step in milliseconds.
        by_ms: i64,
    },
    /// The disk of a replica is full.
    FillDisk(u32),
    /// The disk of a replica fails.
    FailDisk(u32),
    /// The disk of a replica stalls.
    StallDisk(u32),
    /// A bit on the disk of a replica flips.
    CorruptDisk {
        /// The replica.
        replica: u32,
        /// Selects the entry and the bit.
        at: u32,
    },
    /// One of the past orders of a host's agent arrives again.
    RepeatOrder(u32),
    /// The submitting users lose their accounts on a host.
    ForgetAccounts(u32),
    /// A new replica is started and added, and votes once it has caught up.
    AddReplica,
    /// A replica is removed from the group.
    RemoveReplica(u32),
    /// A new replica becomes a voter in place of another one.
    ReplaceReplica(u32),
    /// A replica is paused.
    FreezeReplica(u32),
    /// A host's agent is paused; its supervisors and tasks continue.
    FreezeAgent(u32),
    /// A whole host is paused: agent, supervisors and tasks.
    FreezeHost(u32),
    /// A backup is taken.
    BackUp,
    /// All replicas are lost with their disks, and a new group is restored from the backup.
    LoseReplicas,
    /// All links are repaired.
    HealLinks,
    /// All stopped replicas are started; full disks get space, and others are repaired.
    StartReplicas,
    /// Everything paused is resumed.
    Thaw,
    /// All stopped agents are started.
    StartAgents,
    /// All hosts that are down are switched on.
    StartHosts,
    /// All GPUs are repaired.
    HealGpus,
    /// All hosts, adapters and accounts are repaired.
    HealHosts,
}

/// A fault or repair with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledFault {
    /// Number, from 1.
    pub number: u32,
    /// Milliseconds since the users began.
    pub at_ms: u64,
    /// The fault or repair.
    pub fault: Fault,
}

impl fmt::Display for ScheduledFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at_ms / 1_000, self.at_ms % 1_000);
        let Self { number, fault, .. } = self;
        write!(
            formatter,
            "{seconds:>4}.{millis:03} s  fault {number:>3}  {fault:?}"
        )
    }
}
