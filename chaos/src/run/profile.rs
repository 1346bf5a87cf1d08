//! Profiles of a run: sets of faults.

use serde::Serialize;

use crate::cluster::{Direction, Fault};

/// All faults of runs that need neither a second build nor a compacted log, and work with small disks.
const ALL_FAULTS: [Fault; 18] = [
    Fault::LeaderKilled,
    Fault::FollowerKilled,
    Fault::LeaderFrozen,
    Fault::LeaderCut(Direction::In),
    Fault::LeaderCut(Direction::Out),
    Fault::LeaderIsolated,
    Fault::AgentKilled,
    Fault::AgentFrozen,
    Fault::HostKilled,
    Fault::LeaderAndHostKilled,
    Fault::HostCut(Direction::Both),
    Fault::LeaderDiskFull,
    Fault::SyncsSlow,
    Fault::SyncFailed,
    Fault::ClockSet,
    Fault::RollingRestart,
    Fault::GpuFaulted,
    Fault::PreemptStorm,
];

/// Set of faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The most frequent faults, in a minute.
    Smoke,
    /// See [`Fault::LeaderKilled`].
    LeaderKill,
    /// See [`Fault::LeaderFrozen`].
    PauseLeader,
    /// The leader receives nothing, then its messages are lost.
    Asymmetric,
    /// See [`Fault::LeaderIsolated`].
    ClientOnStaleLeader,
    /// See [`Fault::HostCut`].
    WorkerIsolate,
    /// See [`Fault::AgentFrozen`].
    AgentFreeze,
    /// See [`Fault::HostKilled`].
    WorkerKill,
    /// A host dies, and then another one together with the leader.
    LeaderAndHost,
    /// See [`Fault::LeaderDiskFull`].
    DiskFull,
    /// See [`Fault::SyncsSlow`].
    SlowFsync,
    /// See [`Fault::SyncFailed`].
    IoError,
    /// See [`Fault::ClockSet`].
    Clock,
    /// See [`Fault::RollingRestart`].
    RollingRestart,
    /// See [`Fault::RollingUpgrade`].
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
    /// The faults of most of the other profiles.
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
            Self::Smoke => vec![Fault::LeaderKilled, Fault::LeaderFrozen, Fault::HostKilled],
            Self::LeaderKill => vec![Fault::LeaderKilled],
            Self::PauseLeader => vec![Fault::LeaderFrozen],
            Self::Asymmetric => vec![
                Fault::LeaderCut(Direction::In),
                Fault::LeaderCut(Direction::Out),
            ],
            Self::ClientOnStaleLeader => vec![Fault::LeaderIsolated],
            Self::WorkerIsolate => vec![Fault::HostCut(Direction::Both)],
            Self::AgentFreeze => vec![Fault::AgentFrozen],
            Self::WorkerKill => vec![Fault::HostKilled],
            Self::LeaderAndHost => vec![Fault::HostKilled, Fault::LeaderAndHostKilled],
            Self::DiskFull => vec![Fault::LeaderDiskFull],
            Self::SlowFsync => vec![Fault::SyncsSlow],
            Self::IoError => vec![Fault::SyncFailed],
            Self::Clock => vec![Fault::ClockSet],
            Self::RollingRestart => vec![Fault::RollingRestart],
            Self::Upgrade => vec![Fault::RollingUpgrade],
            Self::SnapshotStorm => vec![Fault::SnapshotStorm],
            Self::WipeAndRejoin => vec![Fault::DataWiped],
            Self::Membership => vec![Fault::MembersChanged],
            Self::GpuFaults => vec![Fault::GpuFaulted],
            Self::PreemptStorm => vec![Fault::PreemptStorm],
            Self::All => ALL_FAULTS.to_vec(),
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
    fn every_fault_is_in_a_profile_of_few() {
        for fault in ALL_FAULTS {
            let few = Profile::ALL.into_iter().filter(|it| *it != Profile::All);
            assert!(
                few.flat_map(Profile::faults).any(|it| it == fault)
                    || matches!(fault, Fault::FollowerKilled | Fault::AgentKilled),
                "{fault:?}"
            );
        }
    }
}
