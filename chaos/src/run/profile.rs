//! Faults, and the profiles composed of them.

use serde::Serialize;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The leader is killed and restarted.
    LeaderKilled,
    /// A follower is killed and restarted.
    FollowerKilled,
    /// The leader is paused and later resumed (SIGSTOP and SIGCONT).
    LeaderPaused,
    /// No message sent to the leader arrives.
    LeaderDeaf,
    /// No message sent by the leader arrives.
    LeaderMute,
    /// The leader reaches neither replicas nor workers, while clients still reach it.
    LeaderParted,
    /// The agent of a host is killed and restarted; its tasks keep running.
    AgentKilled,
    /// The agent of a host is paused for longer than its lease; its tasks run until their supervisors end
    /// them.
    AgentFrozen,
    /// A whole host dies: agent, supervisors and tasks.
    HostKilled,
    /// The leader and a whole host die at the same moment: no replica that received the host's last
    /// heartbeat is left.
    LeaderAndHostKilled,
    /// A host is cut off for longer than its lease.
    HostCut,
    /// The disk of the leader is full.
    DiskFull,
    /// The syncs of the leader are slow.
    SyncsSlow,
    /// A sync of the leader fails.
    SyncFailed,
    /// The wall clock of the leader is set.
    ClockSet,
    /// All replicas, then all agents, are stopped gracefully and restarted one by one.
    RolledOver,
    /// All replicas, then all agents, are replaced by another build one by one.
    Upgraded,
    /// A replica is down while the others write one snapshot after another and purge their log.
    SnapshotStorm,
    /// A replica is started without its data, and a new one takes its place later.
    DataWiped,
    /// A fourth replica joins, the leader is removed, a new one replaces it, and the fourth is removed.
    MembersChanged,
    /// A GPU reports an uncorrectable error, and is repaired.
    GpuFaulted,
    /// Many urgent gangs arrive at once and preempt running jobs.
    PreemptStorm,
    /// A GPU is blocked and unblocked. This fault and the following are for external clusters: see
    /// [`super::target`].
    GpuBlocked,
    /// A host is blocked and unblocked.
    HostBlocked,
    /// A host is drained and unblocked.
    HostDrained,
    /// All active jobs of the run are cancelled at once.
    JobsCancelled,
    /// Leadership is transferred to another replica.
    LeadershipTransferred,
    /// A replica is killed by its process id; its operator restarts it.
    ReplicaKilled,
    /// A replica is paused and later resumed.
    ReplicaFrozen,
}

impl Fault {
    /// All faults that need neither a second build nor a compacted log, and work with small disks.
    pub const ALL: [Self; 18] = [
        Self::LeaderKilled,
        Self::FollowerKilled,
        Self::LeaderPaused,
        Self::LeaderDeaf,
        Self::LeaderMute,
        Self::LeaderParted,
        Self::AgentKilled,
        Self::AgentFrozen,
        Self::HostKilled,
        Self::LeaderAndHostKilled,
        Self::HostCut,
        Self::DiskFull,
        Self::SyncsSlow,
        Self::SyncFailed,
        Self::ClockSet,
        Self::RolledOver,
        Self::GpuFaulted,
        Self::PreemptStorm,
    ];

    /// Faults for an external cluster, if its owner allows them: through the API, or on processes named by
    /// pid.
    pub const OUTSIDE: [Self; 9] = [
        Self::GpuBlocked,
        Self::HostBlocked,
        Self::HostDrained,
        Self::JobsCancelled,
        Self::LeadershipTransferred,
        Self::AgentFrozen,
        Self::AgentKilled,
        Self::ReplicaFrozen,
        Self::ReplicaKilled,
    ];

    /// Name for `--allow`; `None` if the fault is only for clusters started by the run.
    #[must_use]
    pub const fn permission(self) -> Option<&'static str> {
        Some(match self {
            Self::GpuBlocked => "block-gpu",
            Self::HostBlocked => "block-host",
            Self::HostDrained => "drain-host",
            Self::JobsCancelled => "cancel-jobs",
            Self::LeadershipTransferred => "transfer-leader",
            Self::AgentFrozen => "freeze-agent",
            Self::AgentKilled => "kill-agent",
            Self::ReplicaFrozen => "freeze-replica",
            Self::ReplicaKilled => "kill-replica",
            _ => return None,
        })
    }

    /// Parses a name from `--allow`.
    #[must_use]
    pub fn permitted(name: &str) -> Option<Self> {
        let mut outside = Self::OUTSIDE.into_iter();
        outside.find(|fault| fault.permission() == Some(name))
    }

    /// Description for reports.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::LeaderKilled => "leader killed",
            Self::FollowerKilled => "follower killed",
            Self::LeaderPaused => "leader paused",
            Self::LeaderDeaf => "leader receives nothing",
            Self::LeaderMute => "leader's messages lost",
            Self::LeaderParted => "leader isolated, clients connected",
            Self::AgentKilled => "agent killed",
            Self::AgentFrozen => "agent frozen",
            Self::HostKilled => "host killed",
            Self::LeaderAndHostKilled => "leader and a host killed",
            Self::HostCut => "host cut off",
            Self::DiskFull => "leader's disk full",
            Self::SyncsSlow => "leader's syncs slow",
            Self::SyncFailed => "leader's sync fails",
            Self::ClockSet => "leader's clock set by an hour",
            Self::RolledOver => "rolling restart",
            Self::Upgraded => "rolling upgrade",
            Self::SnapshotStorm => "snapshots while a replica is away",
            Self::DataWiped => "data of a replica lost",
            Self::MembersChanged => "replicas added and removed",
            Self::GpuFaulted => "GPU faulted",
            Self::PreemptStorm => "storm of urgent gangs",
            Self::GpuBlocked => "GPU blocked",
            Self::HostBlocked => "host blocked",
            Self::HostDrained => "host drained",
            Self::JobsCancelled => "all jobs of the run cancelled",
            Self::LeadershipTransferred => "leadership transferred",
            Self::ReplicaKilled => "replica killed",
            Self::ReplicaFrozen => "replica frozen",
        }
    }

    /// Whether it is injected by the library preloaded into the replicas.
    #[must_use]
    pub const fn is_by_orders(self) -> bool {
        matches!(self, Self::SyncsSlow | Self::SyncFailed | Self::ClockSet)
    }

    /// Whether it needs a mount in a private namespace.
    #[must_use]
    pub const fn needs_mount(self) -> bool {
        matches!(self, Self::DiskFull)
    }

    /// Whether users must not notice it: none of their calls may fail.
    #[must_use]
    pub const fn is_orderly(self) -> bool {
        matches!(
            self,
            Self::RolledOver | Self::Upgraded | Self::MembersChanged
        )
    }

    /// Whether it hits the leader, so that another has to be elected.
    #[must_use]
    pub const fn ends_leadership(self) -> bool {
        matches!(
            self,
            Self::LeaderKilled
                | Self::LeaderAndHostKilled
                | Self::LeaderPaused
                | Self::LeaderDeaf
                | Self::LeaderMute
                | Self::LeaderParted
                | Self::SyncFailed
                | Self::RolledOver
                | Self::Upgraded
                | Self::DataWiped
                | Self::MembersChanged
                | Self::LeadershipTransferred
        )
    }

    /// Whether it breaks clients' streams to a replica; the isolation of a leader does not.
    #[must_use]
    pub const fn cuts_clients_off(self) -> bool {
        self.ends_leadership() && !matches!(self, Self::LeaderParted | Self::LeadershipTransferred)
    }

    /// Whether it displaces tasks, which are then placed again.
    #[must_use]
    pub const fn displaces(self) -> bool {
        matches!(
            self,
            Self::AgentFrozen
                | Self::HostKilled
                | Self::LeaderAndHostKilled
                | Self::HostCut
                | Self::GpuFaulted
                | Self::HostDrained
        )
    }

    /// Whether it hits only replicas, and workers for less than their lease: tasks keep running.
    #[must_use]
    pub const fn spares_tasks(self) -> bool {
        matches!(
            self,
            Self::LeaderKilled
                | Self::FollowerKilled
                | Self::LeaderPaused
                | Self::LeaderParted
                | Self::SnapshotStorm
                | Self::MembersChanged
        )
    }

    /// Whether it silences a host for long enough to be lost.
    #[must_use]
    pub const fn loses_host(self) -> bool {
        matches!(
            self,
            Self::AgentFrozen | Self::HostKilled | Self::LeaderAndHostKilled | Self::HostCut
        )
    }
}

/// Set of faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The most frequent faults, in a minute.
    Smoke,
    /// See [`Fault::LeaderKilled`].
    LeaderKill,
    /// See [`Fault::LeaderPaused`].
    PauseLeader,
    /// The leader receives nothing, then its messages are lost.
    Asymmetric,
    /// See [`Fault::LeaderParted`].
    ClientOnStaleLeader,
    /// See [`Fault::HostCut`].
    WorkerIsolate,
    /// See [`Fault::AgentFrozen`].
    AgentFreeze,
    /// See [`Fault::HostKilled`].
    WorkerKill,
    /// A host dies, and then another one together with the leader.
    LeaderAndHost,
    /// See [`Fault::DiskFull`].
    DiskFull,
    /// See [`Fault::SyncsSlow`].
    SlowFsync,
    /// See [`Fault::SyncFailed`].
    IoError,
    /// See [`Fault::ClockSet`].
    Clock,
    /// See [`Fault::RolledOver`].
    RollingRestart,
    /// See [`Fault::Upgraded`].
    Upgrade,
    /// See [`Fault::SnapshotStorm`].
    SnapshotStorm,
    /// See [`Fault::DataWiped`].
    WipeAndRejoin,
    /// See [`Fault::MembersChanged`].
    Membership,
    /// See [`Fault::GpuFaulted`].
    GpuFaults,
    /// See [`Fault::PreemptStorm`].
    PreemptStorm,
    /// Every fault of [`Fault::ALL`].
    All,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 21] = [
        Self::Smoke,
        Self::LeaderKill,
        Self::PauseLeader,
        Self::Asymmetric,
        Self::ClientOnStaleLeader,
        Self::WorkerIsolate,
        Self::AgentFreeze,
        Self::WorkerKill,
        Self::LeaderAndHost,
        Self::DiskFull,
        Self::SlowFsync,
        Self::IoError,
        Self::Clock,
        Self::RollingRestart,
        Self::Upgrade,
        Self::SnapshotStorm,
        Self::WipeAndRejoin,
        Self::Membership,
        Self::GpuFaults,
        Self::PreemptStorm,
        Self::All,
    ];

    /// Name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::LeaderKill => "leader-kill",
            Self::PauseLeader => "pause-leader",
            Self::Asymmetric => "asymmetric",
            Self::ClientOnStaleLeader => "client-on-stale-leader",
            Self::WorkerIsolate => "worker-isolate",
            Self::AgentFreeze => "agent-freeze",
            Self::WorkerKill => "worker-kill",
            Self::LeaderAndHost => "leader-and-host",
            Self::DiskFull => "disk-full",
            Self::SlowFsync => "slow-fsync",
            Self::IoError => "io-error",
            Self::Clock => "clock",
            Self::RollingRestart => "rolling-restart",
            Self::Upgrade => "upgrade",
            Self::SnapshotStorm => "snapshot-storm",
            Self::WipeAndRejoin => "wipe-and-rejoin",
            Self::Membership => "membership",
            Self::GpuFaults => "gpu-faults",
            Self::PreemptStorm => "preempt-storm",
            Self::All => "all",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Faults in the order of injection.
    #[must_use]
    pub fn faults(self) -> Vec<Fault> {
        match self {
            Self::Smoke => vec![Fault::LeaderKilled, Fault::LeaderPaused, Fault::HostKilled],
            Self::LeaderKill => vec![Fault::LeaderKilled],
            Self::PauseLeader => vec![Fault::LeaderPaused],
            Self::Asymmetric => vec![Fault::LeaderDeaf, Fault::LeaderMute],
            Self::ClientOnStaleLeader => vec![Fault::LeaderParted],
            Self::WorkerIsolate => vec![Fault::HostCut],
            Self::AgentFreeze => vec![Fault::AgentFrozen],
            Self::WorkerKill => vec![Fault::HostKilled],
            Self::LeaderAndHost => vec![Fault::HostKilled, Fault::LeaderAndHostKilled],
            Self::DiskFull => vec![Fault::DiskFull],
            Self::SlowFsync => vec![Fault::SyncsSlow],
            Self::IoError => vec![Fault::SyncFailed],
            Self::Clock => vec![Fault::ClockSet],
            Self::RollingRestart => vec![Fault::RolledOver],
            Self::Upgrade => vec![Fault::Upgraded],
            Self::SnapshotStorm => vec![Fault::SnapshotStorm],
            Self::WipeAndRejoin => vec![Fault::DataWiped],
            Self::Membership => vec![Fault::MembersChanged],
            Self::GpuFaults => vec![Fault::GpuFaulted],
            Self::PreemptStorm => vec![Fault::PreemptStorm],
            Self::All => Fault::ALL.to_vec(),
        }
    }

    /// Whether it needs private namespaces, whatever the network between replicas and hosts.
    #[must_use]
    pub fn needs_namespaces(self) -> bool {
        self.faults().into_iter().any(Fault::needs_mount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for profile in Profile::ALL {
            assert_eq!(Profile::named(profile.name()), Some(profile));
        }
        assert_eq!(Profile::named("nothing"), None);
    }

    #[test]
    fn only_profiles_that_fill_disks_need_namespaces() {
        let needy = { Profile::ALL.into_iter() }.filter(|profile| profile.needs_namespaces());
        assert_eq!(needy.collect::<Vec<_>>(), [Profile::DiskFull, Profile::All]);
    }

    #[test]
    fn what_can_be_allowed_has_a_name_that_leads_back() {
        for fault in Fault::OUTSIDE {
            let name = fault.permission().unwrap_or_default();
            assert_eq!(Fault::permitted(name), Some(fault));
        }
        assert_eq!(Fault::permitted("disk-full"), None);
        assert_eq!(Fault::DiskFull.permission(), None);
    }

    #[test]
    fn every_fault_is_in_a_profile_of_few() {
        for fault in Fault::ALL {
            let few = Profile::ALL.into_iter().filter(|it| *it != Profile::All);
            assert!(
                few.flat_map(Profile::faults).any(|it| it == fault)
                    || matches!(fault, Fault::FollowerKilled | Fault::AgentKilled),
                "{fault:?}"
            );
        }
    }
}
