//! Coverage of a simulated world: a check whose situation never occurred proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_engine::state::State;
use muster_model::command::{HostHealth, ReplicaMembership, StopCause, StopReason};
use muster_model::desired::RestartReason;
use muster_model::event::{EventKind, HealthNote};
use muster_model::health::{Component, ComponentKind, Phase};
use muster_model::ids::AttemptEpoch;

use crate::sim::configuration::ADMIN;

/// A situation that the checkers test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A replica became leader.
    Leadership,
    /// A kill of a replica lost unsynced writes.
    WritesLost,
    /// The last of them was torn: only a part of it was on the disk.
    WriteTorn,
    /// A replica stopped because its disk was full.
    DiskStopped,
    /// A replica stopped because its disk failed.
    DiskFailed,
    /// The disk of a replica stalled and resumed.
    DiskStalled,
    /// A replica refused to start because of damage on its disk.
    DamageFound,
    /// A watcher resumed after its stream was interrupted.
    WatchResumed,
    /// A watcher was notified that events it had not received are gone.
    EventsGone,
    /// A replica lagged so far that it installed a snapshot.
    SnapshotInstalled,
    /// A bad link lost a message.
    MessageLost,
    /// A bad link delayed a message.
    MessageHeldUp,
    /// A request arrived twice.
    ArrivedTwice,
    /// A follower redirected a user to the leader.
    CallRedirected,
    /// A user could not reach a replica, or got no answer in time.
    TryUnanswered,
    /// A user discovered an unknown replica.
    ReplicaDiscovered,
    /// A hostile user's request was refused.
    HostileRefused,
    /// A replica answered a read of a past revision.
    PastRead,
    /// An answered request was sent again.
    RequestRepeated,
    /// A pipeline was acknowledged.
    PipelineSubmitted,
    /// A linearizable read followed an acknowledgement.
    ReadBack,
    /// A cancel was acknowledged.
    Cancelled,
    /// A gang was placed.
    GangPlaced,
    /// All members of a gang were prepared, and the gang was released.
    GangReleased,
    /// A prepared member of a gang was stopped, or fenced, before its gang was complete.
    StoppedWhilePrepared,
    /// A task was paused because its job was suspended.
    TaskPaused,
    /// An attempt released its resources because its job was suspended.
    ResourcesReleased,
    /// A unit was restarted because of a fault.
    UnitRestarted,
    /// A unit was retried in place after its own failure.
    RetriedInPlace,
    /// A member of a gang was replaced while the others continued.
    MemberSwapped,
    /// A task was refused because its user has no account on the host.
    Refused,
    /// A task was given up: its lease had expired, or its worker did not know it.
    TaskLost,
    /// A host was declared lost.
    HostLost,
    /// An attempt was stopped because of a GPU.
    GpuStopped,
    /// A restarted agent adopted a running task.
    TaskAdopted,
    /// A supervisor killed its task at the end of the lease.
    LeaseExpired,
    /// A supervisor killed a task that ignored the stop request.
    GraceExpired,
    /// A task that hung in the kernel was given up while it kept its GPUs.
    Hung,
    /// A GPU or a host was taken out of placement by a rule.
    BlockedByRule,
    /// A rule took a host out of placement because of its own readings.
    HostBlocked,
    /// A rule took a host out of placement because of an adapter.
    AdapterBlocked,
    /// A rule held some work off a host because of readings of the host or an adapter.
    WorkHeldOff,
    /// A task was placed while another component was out of placement.
    PlacedDuringBlock,
    /// A host that a rule had taken out of placement accepts work again.
    HostReadmitted,
    /// A host rebooted because it was ordered to.
    Rebooted,
    /// A new agent reported an unacknowledged finding of its predecessor.
    FindingReportedAgain,
    /// An agent checked a finding again that the cluster counted differently.
    FindingDoubted,
    /// A repair limit, or an admin's decision, prevented an action of a rule.
    LimitedByRail,
    /// A host's planned maintenance began.
    Maintained,
    /// An admin blocked a host or a GPU immediately.
    BlockedByAdmin,
    /// A repair was carried out.
    Repaired,
    /// An active check was passed.
    CheckPassed,
    /// An active check was not passed.
    CheckFailed,
    /// A repaired and checked component accepts work again.
    Readmitted,
    /// A duplicate of an old order arrived, and the agent did not act on it.
    OldOrderRefused,
    /// A proposal of a deposed leader was applied under a later leadership, and was refused.
    StaleCommandRefused,
    /// A leader under load asked a worker for fewer heartbeats.
    HeartbeatsStretched,
    /// An attempt was stopped to make room for another.
    Preempted,
    /// A leader was elected while an attempt preempted by its predecessor was still ending.
    PreemptedLeaderless,
    /// A replica became a voter in a running cluster.
    VoterAdded,
    /// A replica was removed from a running cluster.
    ReplicaRemoved,
    /// A replica noticed its removal.
    RemovalNoticed,
    /// A leader was killed while its proposal was not committed.
    KilledBetween,
    /// A new group was restored from a backup.
    Restored,
    /// A second group was restored from the same backup, after the first was lost as well.
    RestoredAgain,
    /// A task was running that such a group did not know.
    RanUnknownToBackup,
}

impl Situation {
    /// All situations.
    pub const ALL: [Self; 66] = [
        Self::Leadership,
        Self::WritesLost,
        Self::WriteTorn,
        Self::DiskStopped,
        Self::DiskFailed,
        Self::DiskStalled,
        Self::DamageFound,
        Self::WatchResumed,
        Self::EventsGone,
        Self::SnapshotInstalled,
        Self::MessageLost,
        Self::MessageHeldUp,
        Self::ArrivedTwice,
        Self::CallRedirected,
        Self::TryUnanswered,
        Self::ReplicaDiscovered,
        Self::HostileRefused,
        Self::PastRead,
        Self::RequestRepeated,
        Self::PipelineSubmitted,
        Self::ReadBack,
        Self::Cancelled,
        Self::GangPlaced,
        Self::GangReleased,
        Self::StoppedWhilePrepared,
        Self::TaskPaused,
        Self::ResourcesReleased,
        Self::UnitRestarted,
        Self::RetriedInPlace,
        Self::MemberSwapped,
        Self::Refused,
        Self::TaskLost,
        Self::HostLost,
        Self::GpuStopped,
        Self::TaskAdopted,
        Self::LeaseExpired,
        Self::GraceExpired,
        Self::Hung,
        Self::BlockedByRule,
        Self::HostBlocked,
        Self::AdapterBlocked,
        Self::WorkHeldOff,
        Self::PlacedDuringBlock,
        Self::HostReadmitted,
        Self::Rebooted,
        Self::FindingReportedAgain,
        Self::FindingDoubted,
        Self::LimitedByRail,
        Self::Maintained,
        Self::BlockedByAdmin,
        Self::Repaired,
        Self::CheckPassed,
        Self::CheckFailed,
        Self::Readmitted,
        Self::OldOrderRefused,
        Self::StaleCommandRefused,
        Self::HeartbeatsStretched,
        Self::Preempted,
        Self::PreemptedLeaderless,
        Self::VoterAdded,
        Self::ReplicaRemoved,
        Self::RemovalNoticed,
        Self::KilledBetween,
        Self::Restored,
        Self::RestoredAgain,
        Self::RanUnknownToBackup,
    ];

    /// Whether a sweep must reach it. A deposed leader's proposal gets into the log only if it arrives just
    /// as its replica leads again; this is checked where it happens, but not guaranteed to happen.
    #[must_use]
    pub const fn is_asked_for(self) -> bool {
        !matches!(self, Self::StaleCommandRefused)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Leadership => "leaderships started",
            Self::WritesLost => "kills that lost unsynced writes",
            Self::WriteTorn => "writes torn by a kill",
            Self::DiskStopped => "replicas stopped by a full disk",
            Self::DiskFailed => "replicas stopped by a failed disk",
            Self::DiskStalled => "disks stalled",
            Self::DamageFound => "damaged disks refused",
            Self::WatchResumed => "watches resumed",
            Self::EventsGone => "watchers notified of gone events",
            Self::SnapshotInstalled => "snapshots installed",
            Self::MessageLost => "messages lost by bad links",
            Self::MessageHeldUp => "messages delayed by bad links",
            Self::ArrivedTwice => "duplicate requests",
            Self::CallRedirected => "calls of users redirected to the leader",
            Self::TryUnanswered => "unanswered tries of users",
            Self::ReplicaDiscovered => "new replicas discovered by users",
            Self::HostileRefused => "requests of hostile users refused",
            Self::PastRead => "reads of past states",
            Self::RequestRepeated => "answered requests repeated",
            Self::PipelineSubmitted => "pipelines acknowledged",
            Self::ReadBack => "linearizable reads after an answer",
            Self::Cancelled => "cancels acknowledged",
            Self::GangPlaced => "gangs placed",
            Self::GangReleased => "complete gangs released",
            Self::StoppedWhilePrepared => "members stopped before their gang was complete",
            Self::TaskPaused => "tasks paused",
            Self::ResourcesReleased => "attempts stopped because their jobs were suspended",
            Self::UnitRestarted => "units restarted after a fault",
            Self::RetriedInPlace => "units retried in place",
            Self::MemberSwapped => "members of gangs replaced",
            Self::Refused => "tasks refused for lack of an account",
            Self::TaskLost => "tasks given up",
            Self::HostLost => "hosts declared lost",
            Self::GpuStopped => "attempts stopped because of a GPU",
            Self::TaskAdopted => "tasks adopted by a new agent",
            Self::LeaseExpired => "tasks killed at the end of a lease",
            Self::GraceExpired => "tasks killed at the end of a grace period",
            Self::Hung => "tasks that could not be killed",
            Self::BlockedByRule => "blocked by a rule",
            Self::HostBlocked => "hosts out of placement by their own readings",
            Self::AdapterBlocked => "hosts out of placement because of an adapter",
            Self::WorkHeldOff => "hosts with work held off by rules",
            Self::PlacedDuringBlock => "tasks placed while another component was out of placement",
            Self::HostReadmitted => "hosts readmitted after a check",
            Self::Rebooted => "ordered reboots",
            Self::FindingReportedAgain => "findings reported again by a new agent",
            Self::FindingDoubted => "findings checked again after a comparison with the cluster",
            Self::LimitedByRail => "rules stopped by a limit or an admin",
            Self::Maintained => "planned blocks begun",
            Self::BlockedByAdmin => "immediate blocks by an admin",
            Self::Repaired => "repairs carried out",
            Self::CheckPassed => "active checks passed",
            Self::CheckFailed => "active checks failed",
            Self::HeartbeatsStretched => "acknowledgements that asked for fewer heartbeats",
            Self::Readmitted => "components readmitted on probation",
            Self::OldOrderRefused => "old orders refused",
            Self::StaleCommandRefused => "commands of deposed leaders refused (not required)",
            Self::Preempted => "attempts stopped to make room",
            Self::PreemptedLeaderless => "preemptions that outlived their leader",
            Self::VoterAdded => "replicas promoted to voter",
            Self::ReplicaRemoved => "replicas removed",
            Self::RemovalNoticed => "replicas that noticed their removal",
            Self::KilledBetween => "leaders killed between plan and commit",
            Self::Restored => "clusters restored from a backup",
            Self::RestoredAgain => "clusters restored from the same backup again",
            Self::RanUnknownToBackup => "running tasks unknown to the backup",
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.words())
    }
}

/// Number of occurrences of each situation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Situation, u64>);

impl Coverage {
    /// Counts a situation once.
    pub fn reached(&mut self, situation: Situation) {
        self.reached_times(situation, 1);
    }

    /// Counts a situation `times` times.
    pub fn reached_times(&mut self, situation: Situation, times: u64) {
        *self.0.entry(situation).or_default() += times;
    }

    /// Number of occurrences of a situation.
    #[must_use]
    pub fn times(&self, situation: Situation) -> u64 {
        self.0.get(&situation).copied().unwrap_or_default()
    }

    /// Required situations that never occurred.
    pub fn missing(&self) -> impl Iterator<Item = Situation> + '_ {
        let asked_for = Situation::ALL.into_iter().filter(|it| it.is_asked_for());
        asked_for.filter(|situation| self.times(*situation) == 0)
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Self) {
        for (situation, times) in &other.0 {
            self.reached_times(*situation, *times);
        }
    }

    /// Counts the situations shown by the events of a state.
    pub fn read_events(&mut self, state: &State) {
        for (_, events) in state.events.iter() {
            for event in events.iter() {
                for situation in [
                    situation_of(state, &event.kind),
                    of_hosts(state, &event.kind),
                ] {
                    situation.into_iter().for_each(|it| self.reached(it));
                }
            }
        }
    }
}

/// Preemptions in progress, according to the log.
#[derive(Clone, Debug, Default)]
pub struct Preemptions {
    ending: BTreeSet<AttemptEpoch>,
}

impl Preemptions {
    /// Processes the next event.
    pub fn read(&mut self, kind: &EventKind, coverage: &mut Coverage) {
        match kind {
            EventKind::AttemptStopping {
                epoch,
                cause:
                    StopCause {
                        reason: StopReason::Preempted,
                        ..
                    },
                ..
            } => {
                coverage.reached(Situation::Preempted);
                self.ending.insert(*epoch);
            }
            EventKind::AttemptEnded { epoch, .. } => {
                self.ending.remove(epoch);
            }
            EventKind::LeadershipStarted { .. } => {
                let outlived = std::mem::take(&mut self.ending).len() as u64;
                if outlived > 0 {
                    coverage.reached_times(Situation::PreemptedLeaderless, outlived);
                }
            }
            _ => {}
        }
    }
}

/// The situation of a host shown by a health event, for readings of the host or an adapter.
fn of_hosts(state: &State, kind: &EventKind) -> Option<Situation> {
    match kind {
        EventKind::HealthChanged {
            component: Component::Host(_),
            to: Phase::Blocked | Phase::Draining | Phase::Rma,
            rule,
            ..
        } => match state.health_rules.set.rule(rule)?.component {
            ComponentKind::Host => Some(Situation::HostBlocked),
            ComponentKind::Nic => Some(Situation::AdapterBlocked),
            _ => None,
        },
        EventKind::HealthChanged {
            component: Component::Host(_),
            from: Phase::Checking,
            to: Phase::Probation,
            ..
        } => Some(Situation::HostReadmitted),
        EventKind::HealthNoted {
            note: HealthNote::Hold,
            detail,
            ..
        } => detail
            .starts_with("rule ")
            .then_some(Situation::WorkHeldOff),
        EventKind::HealthNoted {
            note: HealthNote::Refused,
            ..
        } => Some(Situation::LimitedByRail),
        _ => None,
    }
}

fn situation_of(state: &State, kind: &EventKind) -> Option<Situation> {
    match kind {
        EventKind::LeadershipStarted { .. } => Some(Situation::Leadership),
        EventKind::ReplicaChanged(changed) => match changed.membership {
            ReplicaMembership::Learner => None,
            ReplicaMembership::Voter => Some(Situation::VoterAdded),
            ReplicaMembership::Removed => Some(Situation::ReplicaRemoved),
        },
        EventKind::AttemptPlaced { job, .. } => state
            .job(*job)
            .is_some_and(|job| job.spec.gang)
            .then_some(Situation::GangPlaced),
        EventKind::GangReleased { .. } => Some(Situation::GangReleased),
        EventKind::UnitRequeued {
            reason: RestartReason::Infra,
            ..
        } => Some(Situation::UnitRestarted),
        EventKind::UnitRetried { .. } => Some(Situation::RetriedInPlace),
        EventKind::MemberSwapped { .. } => Some(Situation::MemberSwapped),
        EventKind::Blocked { block, .. } if block.planned.is_some() => Some(Situation::Maintained),
        EventKind::Blocked { block, .. } if block.author == ADMIN => {
            Some(Situation::BlockedByAdmin)
        }
        EventKind::HealthChanged {
            to: Phase::Blocked, ..
        } => Some(Situation::BlockedByRule),
        EventKind::HealthChanged {
            to: Phase::Probation,
            ..
        } => Some(Situation::Readmitted),
        EventKind::TaskLost { .. } => Some(Situation::TaskLost),
        EventKind::HostHealthChanged {
            health: HostHealth::Lost,
            ..
        } => Some(Situation::HostLost),
        EventKind::AttemptStopping {
            cause:
                StopCause {
                    reason: StopReason::Suspended,
                    ..
                },
            ..
        } => Some(Situation::ResourcesReleased),
        EventKind::AttemptStopping {
            cause:
                StopCause {
                    reason: StopReason::GpuFault { .. },
                    ..
                },
            ..
        } => Some(Situation::GpuStopped),
        _ => None,
    }
}
