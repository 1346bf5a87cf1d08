//! Pending accusation of a component held by an admin, which counts once the admin's block is over.

use muster_model::health::Phase;

use crate::component::{Change, Condition, Event, Outcome, RecoveryLimits};

impl Condition {
    /// Whether an admin holds it, and an accusation reaches farther than the pending one.
    #[must_use]
    pub fn is_for_later(&self, event: Event, by_hand: bool) -> bool {
        let pending = self.pending.as_ref();
        let known_reach = pending.map(|it| (it.event.reach(), it.by_hand));
        self.phase.is_admins() && known_reach < Some((event.reach(), by_hand))
    }

    /// Stores an accusation until the admin's block is over; of several, the one that reaches farthest.
    pub(super) fn keep_for_later(&mut self, mut change: Change) -> Outcome {
        if !self.is_for_later(change.event, change.by_hand) {
            return Outcome::Known;
        }
        // The fault that took it out of service before the admin did has already counted as a strike.
        let pending = self.pending.as_ref();
        let was_in_use = pending.is_none_or(|it| it.is_strike || !it.event.blocks());
        change.is_strike &= was_in_use;
        if change.event == Event::ProbationFailed {
            change.event = Event::Block;
        }
        self.pending = Some(change);
        Outcome::Remembered
    }

    /// The accusation for which it is out of service or suspect; the strike was counted at the block.
    pub(super) fn standing(&self) -> Option<Change> {
        // For a component with many failed checks, only those are remembered.
        let accusation = self.accusation().or_else(|| self.cause());
        let (event, accusation) = match self.phase {
            Phase::Suspect => (Event::Suspect, accusation?),
            Phase::Checking if self.is_only_suspected() => (Event::Suspect, accusation?),
            Phase::Draining => (Event::Drain, accusation?),
            Phase::Blocked | Phase::Repairing | Phase::Checking => (Event::Block, accusation?),
            Phase::Rma => self.cause().map(|cause| (cause.event, cause))?,
            Phase::Healthy | Phase::Probation | Phase::DrainingAdmin | Phase::BlockedAdmin => {
                return None;
            }
        };
        Some(Change {
            event,
            is_strike: accusation.is_strike && !event.blocks(),
            by_hand: self.by_hand,
            ..accusation.clone()
        })
    }

    /// Applies the pending accusation once the admin's block is over.
    pub(super) fn take_up_pending(&mut self, event: Event, recovery_limits: RecoveryLimits) {
        if event != Event::Expired {
            return;
        }
        if let Some(mut pending) = self.pending.take() {
            pending.at = self.since;
            // An accusation is legal in the phase after the end of a block.
            let _ = self.change(pending, recovery_limits);
        }
    }
}

impl Event {
    /// Whether it takes out of service immediately, not only once nothing runs there.
    const fn blocks(self) -> bool {
        self.reach() > Self::Drain.reach()
    }
}
