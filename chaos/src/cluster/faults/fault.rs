//! Faults of a cluster of processes: their names, and what is known about the effects of each.

use serde::{Serialize, Serializer};

use crate::cluster::Direction;

/// A kind of fault. Its serialized form is its [`Fault::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The leader is killed and restarted.
    LeaderKilled,
    /// A follower is killed and restarted.
    FollowerKilled,
    /// The leader is frozen and later resumed (SIGSTOP and SIGCONT).
    LeaderFrozen,
    /// No message to or from the leader arrives.
    LeaderCut(Direction),
    /// The leader reaches neither replicas nor workers, while clients still reach it.
    LeaderIsolated,
    /// The leader is killed while a job is being preempted.
    LeaderKilledInPreemption,
    /// The agent of a host is killed and restarted; its tasks keep running.
    AgentKilled,
    /// The agent of a host is frozen for longer than its lease; its tasks run until their supervisors end
    /// them.
    AgentFrozen,
    /// The agent of a host stops gracefully, and another program replaces it.
    AgentUpgraded,
    /// The supervisor of a task is killed.
    SupervisorKilled,
    /// A whole host dies: agent, supervisors and tasks.
    HostKilled,
    /// Everything on a host is frozen for longer than its lease: agent, supervisors and tasks.
    HostFrozen,
    /// The leader and a whole host die at the same moment: no replica that received the host's last
    /// heartbeat is left.
    LeaderAndHostKilled,
    /// A host is cut off for longer than its lease.
    HostCut(Direction),
    /// A host is cut off for less than its lease.
    HostCutBriefly(Direction),
    /// The disk of the leader is full.
    LeaderDiskFull,
    /// The disk of a host's agent and supervisors is full.
    HostDiskFull,
    /// The disk of the checkpoints is full.
    CheckpointDiskFull,
    /// The newest checkpoint is damaged, and then a supervisor is killed.
    CheckpointDamaged,
    /// The syncs of the leader are slow.
    SyncsSlow,
    /// A sync of the leader fails.
    SyncFailed,
    /// The wall clock of the leader is set.
    ClockSet,
    /// All replicas, then all agents, are stopped gracefully and restarted one by one.
    RollingRestart,
    /// All replicas, then all agents, are replaced by another build one by one.
    RollingUpgrade,
    /// A replica is down while the others write one snapshot after another and purge their log.
    SnapshotStorm,
    /// A replica is started without its data, and a new one takes its place later.
    DataWiped,
    /// A fourth replica joins, the leader is removed, a new one replaces it, and the fourth is removed.
    MembersChanged,
    /// A GPU reports an uncorrectable memory error, and is repaired.
    GpuFaulted,
    /// A GPU falls off the bus.
    GpuLost,
    /// Many urgent gangs arrive at once and preempt running jobs.
    PreemptStorm,
    /// A preempted task ignores the request to stop.
    StopIgnored,
    /// A GPU is blocked and unblocked.
    GpuBlocked,
    /// A host is blocked and unblocked.
    HostBlocked,
    /// A host is drained and unblocked.
    HostDrained,
    /// All active jobs of a run are cancelled at once.
    JobsCancelled,
    /// Leadership is transferred to another replica.
    LeadershipTransferred,
    /// A replica is killed by its process id; its operator restarts it.
    ReplicaKilled,
    /// A replica is frozen and later resumed.
    ReplicaFrozen,
}

impl Fault {
    /// Its name everywhere: on the command line, in timelines, in reports and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaderKilled => "leader-killed",
            Self::FollowerKilled => "follower-killed",
            Self::LeaderFrozen => "leader-frozen",
            Self::LeaderCut(Direction::Both) => "leader-cut",
            Self::LeaderCut(Direction::Out) => "leader-cut-out",
            Self::LeaderCut(Direction::In) => "leader-cut-in",
            Self::LeaderIsolated => "leader-isolated",
            Self::LeaderKilledInPreemption => "leader-killed-in-preemption",
            Self::AgentKilled => "agent-killed",
            Self::AgentFrozen => "agent-frozen",
            Self::AgentUpgraded => "agent-upgraded",
            Self::SupervisorKilled => "supervisor-killed",
            Self::HostKilled => "host-killed",
            Self::HostFrozen => "host-frozen",
            Self::LeaderAndHostKilled => "leader-and-host-killed",
            Self::HostCut(Direction::Both) => "host-cut",
            Self::HostCut(Direction::Out) => "host-cut-out",
            Self::HostCut(Direction::In) => "host-cut-in",
            Self::HostCutBriefly(Direction::Both) => "host-cut-briefly",
            Self::HostCutBriefly(Direction::Out) => "host-cut-briefly-out",
            Self::HostCutBriefly(Direction::In) => "host-cut-briefly-in",
            Self::LeaderDiskFull => "leader-disk-full",
            Self::HostDiskFull => "host-disk-full",
            Self::CheckpointDiskFull => "checkpoint-disk-full",
            Self::CheckpointDamaged => "checkpoint-damaged",
            Self::SyncsSlow => "syncs-slow",
            Self::SyncFailed => "sync-failed",
            Self::ClockSet => "clock-set",
            Self::RollingRestart => "rolling-restart",
            Self::RollingUpgrade => "rolling-upgrade",
            Self::SnapshotStorm => "snapshot-storm",
            Self::DataWiped => "data-wiped",
            Self::MembersChanged => "members-changed",
            Self::GpuFaulted => "gpu-faulted",
            Self::GpuLost => "gpu-lost",
            Self::PreemptStorm => "preempt-storm",
            Self::StopIgnored => "stop-ignored",
            Self::GpuBlocked => "gpu-blocked",
            Self::HostBlocked => "host-blocked",
            Self::HostDrained => "host-drained",
            Self::JobsCancelled => "jobs-cancelled",
            Self::LeadershipTransferred => "leadership-transferred",
            Self::ReplicaKilled => "replica-killed",
            Self::ReplicaFrozen => "replica-frozen",
        }
    }

    /// Returns the one of these faults that has a name.
    #[must_use]
    pub fn named(name: &str, faults: &[Self]) -> Option<Self> {
        faults.iter().copied().find(|fault| fault.name() == name)
    }

    /// Whether it is injected by the library preloaded into the replicas.
    #[must_use]
    pub const fn needs_library(self) -> bool {
        matches!(self, Self::SyncsSlow | Self::SyncFailed | Self::ClockSet)
    }

    /// Whether it needs a mount in a private namespace.
    #[must_use]
    pub const fn needs_mount(self) -> bool {
        matches!(
            self,
            Self::LeaderDiskFull | Self::HostDiskFull | Self::CheckpointDiskFull
        )
    }

    /// Whether users must not notice it: none of their calls may fail.
    #[must_use]
    pub const fn is_orderly(self) -> bool {
        matches!(
            self,
            Self::RollingRestart | Self::RollingUpgrade | Self::MembersChanged
        )
    }

    /// Whether it hits the leader, so that another has to be elected.
    #[must_use]
    pub const fn ends_leadership(self) -> bool {
        matches!(
            self,
            Self::LeaderKilled
                | Self::LeaderKilledInPreemption
                | Self::LeaderAndHostKilled
                | Self::LeaderFrozen
                | Self::LeaderCut(_)
                | Self::LeaderIsolated
                | Self::SyncFailed
                | Self::RollingRestart
                | Self::RollingUpgrade
                | Self::DataWiped
                | Self::MembersChanged
                | Self::LeadershipTransferred
        )
    }

    /// Whether it breaks clients' streams to a replica; the isolation of a leader does not.
    #[must_use]
    pub const fn cuts_clients_off(self) -> bool {
        self.ends_leadership()
            && !matches!(self, Self::LeaderIsolated | Self::LeadershipTransferred)
    }

    /// Whether it displaces tasks, which are then placed again.
    #[must_use]
    pub const fn displaces(self) -> bool {
        self.loses_host() || matches!(self, Self::GpuFaulted | Self::GpuLost | Self::HostDrained)
    }

    /// Whether it hits only replicas, and workers for less than their lease: tasks keep running.
    #[must_use]
    pub const fn spares_tasks(self) -> bool {
        matches!(
            self,
            Self::LeaderKilled
                | Self::FollowerKilled
                | Self::LeaderFrozen
                | Self::LeaderIsolated
                | Self::SnapshotStorm
                | Self::MembersChanged
        )
    }

    /// Whether it silences a host for long enough to be lost.
    #[must_use]
    pub const fn loses_host(self) -> bool {
        matches!(
            self,
            Self::AgentFrozen
                | Self::HostKilled
                | Self::HostFrozen
                | Self::LeaderAndHostKilled
                | Self::HostCut(_)
        )
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::{EXTERNAL_FAULTS, Profile};
    use crate::trials::Trial;

    #[test]
    fn names_are_unique_and_lead_back() {
        let of_runs = Profile::ALL.into_iter().flat_map(Profile::faults);
        let of_trials = Trial::ALL.map(|trial| trial.fault);
        let others = [&EXTERNAL_FAULTS[..], &of_trials, &[Fault::GpuLost]].concat();
        let all: BTreeSet<Fault> = of_runs.chain(others).collect();
        let all: Vec<Fault> = all.into_iter().collect();
        for fault in &all {
            assert_eq!(Fault::named(fault.name(), &all), Some(*fault));
        }
        assert_eq!(Fault::named("nothing", &all), None);
    }

    #[test]
    fn a_fault_is_serialized_as_its_name() {
        let fault = Fault::HostCut(Direction::In);
        let text = serde_json::to_string(&fault).unwrap_or_default();
        assert_eq!(text, "\"host-cut-in\"");
    }
}
