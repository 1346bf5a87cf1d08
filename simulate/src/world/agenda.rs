//! What is going to happen, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use muster_model::ids::AttemptEpoch;
use muster_model::time::TimeMs;

/// Something that happens at an instant. Of what happens at one instant, ends come first and failures before
/// returns, so that nothing is placed on a host that fails in the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// An attempt has done all that its job needs; void if it is not the current one any more.
    WorkDone {
        /// Position of the job in the scenario.
        job: usize,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// An attempt commits a checkpoint; void if it is not the current one any more.
    Checkpoint {
        /// Position of the job in the scenario.
        job: usize,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// A part becomes ill.
    FallsIll {
        /// Which illness of the scenario.
        illness: usize,
    },
    /// A part is repaired.
    IsWell {
        /// Of which illness of the scenario.
        illness: usize,
    },
    /// A worker sees that a part is ill.
    SignSeen {
        /// Which illness of the scenario.
        illness: usize,
    },
    /// A task dies of an illness; void if it does not run any more, or the illness is over.
    TaskDies {
        /// Position of the job in the scenario.
        job: usize,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Which illness of the scenario.
        illness: usize,
    },
    /// A worker has done a repair or a check.
    WorkEnds {
        /// Position among all that were ordered.
        work: usize,
    },
    /// Time has brought something for the leader to do.
    HealthLook,
    /// The leader looks for lemons.
    LemonLook,
    /// A person looks at what waits for one.
    PersonLook,
    /// A GPU becomes unfit.
    GpuLost {
        /// Position of the host in the cluster.
        host: usize,
        /// The GPU's index on it.
        gpu: u32,
    },
    /// A host is lost.
    HostLost {
        /// Position of the host in the cluster.
        host: usize,
    },
    /// A host is back.
    HostBack {
        /// Position of the host in the cluster.
        host: usize,
    },
    /// A GPU is fit again.
    GpuBack {
        /// Position of the host in the cluster.
        host: usize,
        /// The GPU's index on it.
        gpu: u32,
    },
    /// Nothing but a reason to plan: a back-off ends.
    Plan,
}

impl Happening {
    /// Whether nobody can be placed for it who could not be before.
    pub(super) const fn changes_no_room(self) -> bool {
        matches!(
            self,
            Self::Checkpoint { .. } | Self::FallsIll { .. } | Self::LemonLook | Self::HealthLook
        )
    }
}

/// Happenings by time; of those at one instant the smallest first, so the order of insertion does not matter.
#[derive(Debug, Default)]
pub(super) struct Agenda(BinaryHeap<Reverse<(TimeMs, Happening)>>);

impl Agenda {
    pub(super) fn add(&mut self, at: TimeMs, happening: Happening) {
        self.0.push(Reverse((at, happening)));
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<TimeMs> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// The next thing that happens at `now` or has happened before.
    pub(super) fn due(&mut self, now: TimeMs) -> Option<Happening> {
        let at = self.next_at()?;
        if at > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, happening))| happening)
    }
}
