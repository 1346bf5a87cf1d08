//! Withdrawal of changes of a component that failed together with many others.

use muster_model::health::Phase;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::component::{Change, Condition, Event, RecoveryLimits};

/// Time after a block within which an incident may withdraw it: the span within which hosts fail together.
const FORGIVEN_MS: u64 = MINUTE_MS;

impl Condition {
    /// Withdraws what a rule did to it a moment ago: many failed at once, so it was not its own fault. It
    /// returns to its previous phase, with the accusations from before. Returns whether there was a strike.
    pub fn withdraw(&mut self, rule: &str, now: TimeMs, recovery_limits: RecoveryLimits) -> bool {
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
            // A failure in probation counted as two strikes.
            let count = if before == Phase::Probation { 2 } else { 1 };
            (0..count).for_each(|_| self.strikes.take_back());
        }
        if before == Phase::Probation {
            let strikes = self.strikes_at(now);
            self.ready_at = now.after(recovery_limits.probation_ms(strikes));
        }
        let accusation = self.accusation();
        self.by_hand = before == Phase::Blocked && accusation.is_some_and(|it| it.by_hand);
        self.phase = before;
        self.since = now;
        true
    }

    /// Phase to which the last change has led, as far as a rule may cause strikes there. A check that was
    /// interrupted is due again.
    fn phase_before(&self) -> Phase {
        let mut newest_first = self.history.iter().rev().map(|change| change.event);
        match newest_first.next() {
            None | Some(Event::ProbationPassed | Event::Expired | Event::AdminUnblock) => {
                Phase::Healthy
            }
            // The suspicion may be over meanwhile.
            Some(Event::Suspect) if self.suspected.is_empty() => Phase::Healthy,
            Some(Event::Suspect) => Phase::Suspect,
            Some(Event::CheckPassed) => Phase::Probation,
            Some(Event::Drain) => Phase::Draining,
            // It ends a block by a check, and a fault that did not block immediately.
            Some(Event::Clear) => match newest_first.next() {
                None | Some(Event::Suspect | Event::Drain) => Phase::Healthy,
                Some(_) => Phase::Blocked,
            },
            Some(_) => Phase::Blocked,
        }
    }

    /// It was struck a moment ago together with many others: it stays out of service until it has passed its
    /// check, but without a strike. Returns whether there was one.
    pub fn withdraw_strike(&mut self, now: TimeMs, recovery_limits: RecoveryLimits) -> bool {
        if self.phase.accepts_work() {
            return false;
        }
        let newest_fault = self.history.iter().rposition(|it| it.event.is_fault());
        let is_recent_strike = |at: &usize| {
            let fault = &self.history[*at];
            fault.is_strike && now.since(fault.at) <= FORGIVEN_MS
        };
        let Some(at) = newest_fault.filter(is_recent_strike) else {
            return false;
        };
        // A failure in probation counted as two strikes.
        let was_proving = at > 0 && self.history[at - 1].event == Event::CheckPassed;
        self.history[at].is_strike = false;
        if self.phase != Phase::Draining {
            let count = if was_proving { 2 } else { 1 };
            (0..count).for_each(|_| self.strikes.take_back());
            let wait_ms = recovery_limits.wait_ms(self.strikes_at(now));
            self.ready_at = self.ready_at.min(self.history[at].at.after(wait_ms));
        }
        true
    }
}
