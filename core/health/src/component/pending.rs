//! What is kept for later while an admin holds a component: the accusation that counts once the admin's time is over.

use muster_model::health::Phase;

use crate::component::{Change, Condition, Event, Outcome, Patience};

impl Condition {
    /// Whether an admin holds it, and an accusation reaches farther than what is kept for later.
    #[must_use]
    pub fn is_for_later(&self, event: Event, by_hand: bool) -> bool {
        let known = self.pending.as_ref();
        let known = known.map(|pending| (pending.event.reach(), pending.by_hand));
        self.phase.is_admins() && known < Some((event.reach(), by_hand))
    }

    /// Keeps an accusation until the admin's time is over; of several, the one that reaches farthest.
    pub(super) fn keep_for_later(&mut self, mut change: Change) -> Outcome {
        if !self.is_for_later(change.event, change.by_hand) {
            return Outcome::Known;
        }
        // What took it out of use before the admin did has had its strike.
        let was_in_use =
            { self.pending.as_ref() }.is_none_or(|it| it.is_strike || !it.event.blocks());
        change.is_strike &= was_in_use;
        if change.event == Event::ProbationFailed {
            change.event = Event::Block;
        }
        self.pending = Some(change);
        Outcome::Remembered
    }

    /// What it is out of use for, or is suspected of; the strike for what blocks it was counted when it was blocked.
    pub(super) fn standing(&self) -> Option<Change> {
        // Of what has failed its checks for long, only those are remembered.
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

    /// What is kept for later counts once the admin's time is over.
    pub(super) fn take_up_pending(&mut self, event: Event, patience: Patience) {
        if event != Event::Expired {
            return;
        }
        if let Some(mut pending) = self.pending.take() {
            pending.at = self.since;
            // An accusation is legal where the end of a block leads to.
            let _ = self.change(pending, patience);
        }
    }
}

impl Event {
    /// Whether it takes out of use at once, and not when what runs has ended.
    const fn blocks(self) -> bool {
        self.reach() > Self::Drain.reach()
    }
}
