//! What is taken back of what was done to a component, because many were struck at once.

use muster_model::health::Phase;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::component::{Change, Condition, Event, Patience};

/// How long after a block an incident may take it back: the span in which hosts go together.
const FORGIVEN_MS: u64 = MINUTE_MS;

impl Condition {
    /// Takes back what a rule did to it a moment ago: many were struck at once, so it was not its own fault. It stands where it
    /// stood before, with what was held against it then. Whether it was struck.
    pub fn forgive(&mut self, rule: &str, now: TimeMs, patience: Patience) -> bool {
        let is_its = |cause: &Change| cause.rule == rule && now.since(cause.at) <= FORGIVEN_MS;
        self.pending.take_if(|pending| is_its(pending));
        let is_struck = matches!(self.phase, Phase::Blocked | Phase::Draining);
        if !is_struck || !self.cause().is_some_and(is_its) {
            return false;
        }
        let struck_from = self.phase;
        let Some(cause) = self.history.pop_back() else {
            return false;
        };
        let before = self.phase_before();
        let was_counted = before.accepts_work() || before == Phase::Draining;
        if struck_from == Phase::Blocked && cause.is_strike && was_counted {
            // What failed in probation was struck twice.
            let count = if before == Phase::Probation { 2 } else { 1 };
            (0..count).for_each(|_| self.strikes.take_back());
        }
        if before == Phase::Probation {
            let strikes = self.strikes_at(now);
            self.ready_at = now.after(patience.probation_ms(strikes));
        }
        let accusation = self.accusation();
        self.by_hand = before == Phase::Blocked && accusation.is_some_and(|it| it.by_hand);
        self.phase = before;
        self.since = now;
        true
    }

    /// Where the change that came last has led, as far as a rule may strike there. A check that was broken off is due again.
    fn phase_before(&self) -> Phase {
        let mut newest_first = self.history.iter().rev().map(|change| change.event);
        match newest_first.next() {
            None | Some(Event::ProbationPassed | Event::Expired | Event::AdminUnblock) => {
                Phase::Healthy
            }
            // What suspected it may be over meanwhile.
            Some(Event::Suspect) if self.suspected.is_empty() => Phase::Healthy,
            Some(Event::Suspect) => Phase::Suspect,
            Some(Event::CheckPassed) => Phase::Probation,
            Some(Event::Drain) => Phase::Draining,
            // It ends a block by a check, and what did not block at once.
            Some(Event::Clear) => match newest_first.next() {
                None | Some(Event::Suspect | Event::Drain) => Phase::Healthy,
                Some(_) => Phase::Blocked,
            },
            Some(_) => Phase::Blocked,
        }
    }

    /// It was struck a moment ago, and many with it: it stays out of use until it has proved itself, but that is no strike.
    /// Whether it was one.
    pub fn excuse(&mut self, now: TimeMs, patience: Patience) -> bool {
        let is_struck = |change: &Change| change.event.is_fault() && change.is_strike;
        let newest = self.history.iter().rposition(|it| it.event.is_fault());
        let newest = newest.filter(|at| {
            let fault = &self.history[*at];
            is_struck(fault) && now.since(fault.at) <= FORGIVEN_MS
        });
        let Some(at) = newest.filter(|_| !self.phase.accepts_work()) else {
            return false;
        };
        // What failed in probation was struck twice.
        let was_proving = at > 0 && self.history[at - 1].event == Event::CheckPassed;
        self.history[at].is_strike = false;
        if self.phase != Phase::Draining {
            let count = if was_proving { 2 } else { 1 };
            (0..count).for_each(|_| self.strikes.take_back());
            let wait_ms = patience.wait_ms(self.strikes_at(now));
            self.ready_at = self.ready_at.min(self.history[at].at.after(wait_ms));
        }
        true
    }
}
