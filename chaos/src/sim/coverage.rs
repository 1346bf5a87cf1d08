//! What a world went through: a check that was never put to the test proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_engine::state::State;
use muster_model::command::{HostHealth, ReplicaStanding, StopCause, StopReason};
use muster_model::desired::RestartReason;
use muster_model::event::{EventKind, HealthNote};
use muster_model::health::{Component, ComponentKind, Phase};
use muster_model::ids::AttemptEpoch;

use crate::sim::configuration::ADMIN;

/// A situation that the checks are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A replica began to lead.
    Leadership,
    /// A kill of a replica lost writes that were not synced.
    WritesLost,
    /// The last of them was torn: only a part of it was on the disk.
    WriteTorn,
    /// A replica stopped because its disk was full.
    DiskStopped,
    /// A replica stopped because its disk failed.
    DiskFailed,
    /// The disk of a replica stood still, and went on.
    DiskStalled,
    /// A replica did not start because something on its disk was damaged.
    DamageFound,
    /// A watcher went on where it had been cut off.
    WatchResumed,
    /// A watcher was told that events which it had not heard are kept no more.
    EventsGone,
    /// A replica lagged so far that it installed a snapshot.
    SnapshotInstalled,
    /// A bad link lost a message.
    MessageLost,
    /// A bad link held a message up.
    MessageHeldUp,
    /// A request arrived twice.
    ArrivedTwice,
    /// A user was told by a replica who leads.
    CallRedirected,
    /// A replica could not be reached by a user, or did not answer in time.
    TryUnanswered,
    /// A user learnt of a replica that it had not known.
    ReplicaLearnt,
    /// What a hostile user asked for was refused.
    HostileRefused,
    /// A replica told what the state was at a revision of the past.
    PastTold,
    /// A request that had been answered was sent again.
    RequestRepeated,
    /// A pipeline was acknowledged.
    PipelineSubmitted,
    /// A linearizable read followed an acknowledgement.
    ReadBack,
    /// A cancel was acknowledged.
    Cancelled,
    /// A gang was placed.
    GangPlaced,
    /// All members of a gang were prepared, and they were let go.
    GangReleased,
    /// A member of a gang was stopped, or fenced, before its gang was whole.
    PreparedInVain,
    /// A task stood still because its job was suspended.
    StoodStill,
    /// An attempt gave everything back because its job was suspended.
    GivenBack,
    /// A unit was run again because of a fault.
    RunAgain,
    /// A unit was begun again in place after a failure of its own.
    RetriedInPlace,
    /// A member of a gang was replaced while the others went on.
    MemberSwapped,
    /// A task was refused because its user has no account on the host.
    Refused,
    /// A task was given up: its lease was over, or its worker knew nothing of it.
    TaskLost,
    /// A host was declared lost.
    HostLost,
    /// An attempt was stopped because of a GPU.
    GpuStopped,
    /// An agent that came back took over a running task.
    TaskAdopted,
    /// A supervisor killed its task at the end of the lease.
    LeaseRanOut,
    /// A supervisor killed a task that did not heed the request to stop.
    GraceRanOut,
    /// A task that hung in the kernel was given up while it kept its GPUs.
    Hung,
    /// A GPU or a host was taken out of placement by a rule.
    BlockedByRule,
    /// A host was taken out of placement for what it read of itself.
    HostOut,
    /// A host was taken out of placement for an adapter of it.
    AdapterOut,
    /// A rule kept something off a host that works otherwise, for what it or an adapter of it read.
    KeptOff,
    /// A task was placed while something else was out of placement.
    PlacedBeside,
    /// A host that was out of placement by a rule takes work again.
    HostReadmitted,
    /// A host booted because it was ordered to.
    Rebooted,
    /// A new agent told what the one before it had found and nobody had heard.
    FindingRetold,
    /// A rail, or an admin's word, kept a rule from what it wanted.
    Railed,
    /// A host's maintenance began, as it was planned.
    Maintained,
    /// An admin took a host or a GPU out of use at once.
    BlockedByHand,
    /// A repair was carried out.
    Repaired,
    /// An active check was passed.
    CheckPassed,
    /// An active check was not passed.
    CheckFailed,
    /// What was repaired and checked takes work again.
    Readmitted,
    /// An old order arrived once more, and the agent did not act on it.
    OldOrderRefused,
    /// What a leader had proposed was applied when another leadership had begun, and was refused.
    StaleCommandRefused,
    /// A leader under load told a worker to beat less often.
    BeatsStretched,
    /// An attempt was stopped to make room for another.
    Preempted,
    /// A leader began while an attempt that its predecessor had preempted was still ending.
    PreemptedLeaderless,
    /// A replica began to vote in a cluster that worked.
    VoterAdded,
    /// A replica was removed from a cluster that worked.
    ReplicaRemoved,
    /// A replica found out that it had been removed.
    RemovalNoticed,
    /// A leader was killed when what it had proposed was not committed.
    KilledBetween,
    /// A new group went on from a backup.
    Restored,
    /// A second one went on from the same backup, when the first was lost as well.
    RestoredAgain,
    /// A task ran that such a group knew nothing of.
    RanUnremembered,
}

impl Situation {
    /// All of them.
    pub const ALL: [Self; 65] = [
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
        Self::ReplicaLearnt,
        Self::HostileRefused,
        Self::PastTold,
        Self::RequestRepeated,
        Self::PipelineSubmitted,
        Self::ReadBack,
        Self::Cancelled,
        Self::GangPlaced,
        Self::GangReleased,
        Self::PreparedInVain,
        Self::StoodStill,
        Self::GivenBack,
        Self::RunAgain,
        Self::RetriedInPlace,
        Self::MemberSwapped,
        Self::Refused,
        Self::TaskLost,
        Self::HostLost,
        Self::GpuStopped,
        Self::TaskAdopted,
        Self::LeaseRanOut,
        Self::GraceRanOut,
        Self::Hung,
        Self::BlockedByRule,
        Self::HostOut,
        Self::AdapterOut,
        Self::KeptOff,
        Self::PlacedBeside,
        Self::HostReadmitted,
        Self::Rebooted,
        Self::FindingRetold,
        Self::Railed,
        Self::Maintained,
        Self::BlockedByHand,
        Self::Repaired,
        Self::CheckPassed,
        Self::CheckFailed,
        Self::Readmitted,
        Self::OldOrderRefused,
        Self::StaleCommandRefused,
        Self::BeatsStretched,
        Self::Preempted,
        Self::PreemptedLeaderless,
        Self::VoterAdded,
        Self::ReplicaRemoved,
        Self::RemovalNoticed,
        Self::KilledBetween,
        Self::Restored,
        Self::RestoredAgain,
        Self::RanUnremembered,
    ];

    /// Whether a sweep must come to it. A deposed leader's proposal gets into the log only if it comes just as its replica leads
    /// again; that is judged where it happens, but nobody can be sure that it does.
    #[must_use]
    pub const fn is_asked_for(self) -> bool {
        !matches!(self, Self::StaleCommandRefused)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Leadership => "leaderships begun",
            Self::WritesLost => "kills that lost unsynced writes",
            Self::WriteTorn => "writes torn by a kill",
            Self::DiskStopped => "replicas stopped by a full disk",
            Self::DiskFailed => "replicas stopped by a disk that failed",
            Self::DiskStalled => "disks that stood still",
            Self::DamageFound => "damaged disks refused",
            Self::WatchResumed => "watches that went on",
            Self::EventsGone => "watchers told that events are gone",
            Self::SnapshotInstalled => "snapshots installed",
            Self::MessageLost => "messages lost by bad links",
            Self::MessageHeldUp => "messages held up by bad links",
            Self::ArrivedTwice => "requests that arrived twice",
            Self::CallRedirected => "calls of users sent on to the leader",
            Self::TryUnanswered => "tries of users that nobody answered",
            Self::ReplicaLearnt => "new replicas learnt of by users",
            Self::HostileRefused => "requests of hostile users refused",
            Self::PastTold => "states of the past told by a replica",
            Self::RequestRepeated => "answered requests repeated",
            Self::PipelineSubmitted => "pipelines acknowledged",
            Self::ReadBack => "linearizable reads after an answer",
            Self::Cancelled => "cancels acknowledged",
            Self::GangPlaced => "gangs placed",
            Self::GangReleased => "gangs released whole",
            Self::PreparedInVain => "members stopped before their gang was whole",
            Self::StoodStill => "tasks that stood still",
            Self::GivenBack => "attempts stopped because their jobs were suspended",
            Self::RunAgain => "units run again after a fault",
            Self::RetriedInPlace => "units begun again in place",
            Self::MemberSwapped => "members of gangs replaced",
            Self::Refused => "tasks refused for want of an account",
            Self::TaskLost => "tasks given up",
            Self::HostLost => "hosts declared lost",
            Self::GpuStopped => "attempts stopped for a GPU",
            Self::TaskAdopted => "tasks adopted by a new agent",
            Self::LeaseRanOut => "tasks killed at the end of a lease",
            Self::GraceRanOut => "tasks killed at the end of a grace",
            Self::Hung => "tasks that could not be killed",
            Self::BlockedByRule => "blocked by a rule",
            Self::HostOut => "hosts out of placement for a finding of their own",
            Self::AdapterOut => "hosts out of placement for an adapter",
            Self::KeptOff => "hosts that rules kept something off",
            Self::PlacedBeside => "tasks placed while something else was out of placement",
            Self::HostReadmitted => "hosts taken back by a check",
            Self::Rebooted => "hosts booted by order",
            Self::FindingRetold => "findings told again by a new agent",
            Self::Railed => "rules that a rail or an admin's word stopped",
            Self::Maintained => "planned blocks begun",
            Self::BlockedByHand => "blocks by an admin, at once",
            Self::Repaired => "repairs carried out",
            Self::CheckPassed => "active checks passed",
            Self::CheckFailed => "active checks not passed",
            Self::BeatsStretched => "acknowledgements that asked for fewer beats",
            Self::Readmitted => "taken back on probation",
            Self::OldOrderRefused => "old orders refused",
            Self::StaleCommandRefused => "commands of deposed leaders refused (not asked for)",
            Self::Preempted => "attempts stopped to make room",
            Self::PreemptedLeaderless => "preemptions that outlived their leader",
            Self::VoterAdded => "replicas that began to vote",
            Self::ReplicaRemoved => "replicas removed",
            Self::RemovalNoticed => "replicas that noticed their removal",
            Self::KilledBetween => "leaders killed between plan and commit",
            Self::Restored => "clusters restored from a backup",
            Self::RestoredAgain => "clusters restored from the same backup once more",
            Self::RanUnremembered => "tasks that ran and no backup knew of",
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.words())
    }
}

/// How often each situation came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Situation, u64>);

impl Coverage {
    /// A situation came.
    pub fn reached(&mut self, situation: Situation) {
        self.reached_times(situation, 1);
    }

    /// A situation came so many times.
    pub fn reached_times(&mut self, situation: Situation, times: u64) {
        *self.0.entry(situation).or_default() += times;
    }

    /// How often a situation came.
    #[must_use]
    pub fn times(&self, situation: Situation) -> u64 {
        self.0.get(&situation).copied().unwrap_or_default()
    }

    /// Situations that never came, of those that must.
    pub fn missing(&self) -> impl Iterator<Item = Situation> + '_ {
        let asked_for = Situation::ALL.into_iter().filter(|it| it.is_asked_for());
        asked_for.filter(|situation| self.times(*situation) == 0)
    }

    /// Adds another world's.
    pub fn add(&mut self, other: &Self) {
        for (situation, times) in &other.0 {
            self.reached_times(*situation, *times);
        }
    }

    /// Counts what the events of a state tell.
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

/// Preemptions under way, by what the log tells.
#[derive(Clone, Debug, Default)]
pub struct Preemptions {
    ending: BTreeSet<AttemptEpoch>,
}

impl Preemptions {
    /// Reads the next event.
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
            EventKind::LeaderBegan { .. } => {
                let outlived = std::mem::take(&mut self.ending).len() as u64;
                if outlived > 0 {
                    coverage.reached_times(Situation::PreemptedLeaderless, outlived);
                }
            }
            _ => {}
        }
    }
}

/// What befell a host for what it, or an adapter of it, read.
fn of_hosts(state: &State, kind: &EventKind) -> Option<Situation> {
    match kind {
        EventKind::HealthChanged {
            component: Component::Host(_),
            to: Phase::Blocked | Phase::Draining | Phase::Rma,
            rule,
            ..
        } => match state.health_rules.set.rule(rule)?.component {
            ComponentKind::Host => Some(Situation::HostOut),
            ComponentKind::Nic => Some(Situation::AdapterOut),
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
        } => detail.starts_with("rule ").then_some(Situation::KeptOff),
        EventKind::HealthNoted {
            note: HealthNote::Refused,
            ..
        } => Some(Situation::Railed),
        _ => None,
    }
}

fn situation_of(state: &State, kind: &EventKind) -> Option<Situation> {
    match kind {
        EventKind::LeaderBegan { .. } => Some(Situation::Leadership),
        EventKind::ReplicaChanged(changed) => match changed.standing {
            ReplicaStanding::Learner => None,
            ReplicaStanding::Voter => Some(Situation::VoterAdded),
            ReplicaStanding::Removed => Some(Situation::ReplicaRemoved),
        },
        EventKind::AttemptPlaced { job, .. } => state
            .job(*job)
            .is_some_and(|job| job.spec.gang)
            .then_some(Situation::GangPlaced),
        EventKind::GangReleased { .. } => Some(Situation::GangReleased),
        EventKind::UnitRequeued {
            reason: RestartReason::Infra,
            ..
        } => Some(Situation::RunAgain),
        EventKind::UnitRetried { .. } => Some(Situation::RetriedInPlace),
        EventKind::MemberSwapped { .. } => Some(Situation::MemberSwapped),
        EventKind::Blocked { block, .. } if block.planned.is_some() => Some(Situation::Maintained),
        EventKind::Blocked { block, .. } if block.author == ADMIN => Some(Situation::BlockedByHand),
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
        } => Some(Situation::GivenBack),
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
