//! Condition of one component, and its changes.

use std::collections::{BTreeSet, VecDeque};

use muster_model::health::{Hold, Phase};
use muster_model::time::{DAY_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::component::strikes::MANUAL_STRIKES;
use crate::component::transitions::next;
use crate::component::{Actor, Change, Event, RecoveryLimits, Strikes, Suspected};

/// Changes remembered per component, newest last.
pub(super) const HISTORY_MAX: usize = 32;
/// Maximum number of rules that restrict one component, and also of those that suspect it; further ones are
/// ignored.
pub(super) const HOLDS_MAX: usize = 16;
/// Maximum number of muted rules per component.
pub(super) const MUTES_MAX: usize = 16;
/// Time for which an admin's unblock mutes the rule that blocked: 24 h.
const MUTE_MS: u64 = DAY_MS;

/// A rule muted by an admin's unblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    /// Name of the health rule.
    pub rule: String,
    /// End of the mute.
    pub until: TimeMs,
}

/// Placement restriction of a component by a rule, also while it otherwise accepts work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restriction {
    /// Name of the health rule.
    pub rule: String,
    /// The restriction.
    pub what: Hold,
    /// Observed evidence.
    pub evidence: String,
    /// Start time of the restriction.
    pub since: TimeMs,
    /// Progress of the restart of the rule's services; `None` if it requires none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

/// Progress of a restart of a host's services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// The maximum number of restarts is in progress elsewhere.
    Waits,
    /// Ordered from the host's worker.
    Ordered {
        /// Time of the order.
        at: TimeMs,
    },
    /// Tried: the restriction stays until a reading reports that the services are healthy.
    Tried,
}

/// Outcome of a permitted change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The phase of the component changed, or was entered again.
    Changed,
    /// An admin holds the component: the accusation counts once that is over.
    Remembered,
    /// No change: the component is already in this phase, or a worse one.
    Known,
}

/// Reason why a change is not permitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRejected {
    /// Not in the transition table.
    #[error("event {event} is not legal in phase {from}")]
    Illegal {
        /// Previous phase.
        from: Phase,
        /// Requested event.
        event: Event,
    },
    /// An admin's event by an automatic actor, or the other way round.
    #[error("{0} is not for this actor")]
    NotTheirs(Event),
    /// An admin unblocked the component and muted this rule.
    #[error("rule {rule} is muted here for a day: an admin unblocked the component")]
    Muted {
        /// Name of the health rule.
        rule: String,
        /// End of the mute.
        until: TimeMs,
    },
    /// Its wait or its probation is not over.
    #[error("not before {0}")]
    TooEarly(TimeMs),
    /// It failed so often that only an operator can unblock it.
    #[error("it has {0} strikes: only an admin can unblock it")]
    ByHand(u32),
}

/// Condition of one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Current phase.
    pub phase: Phase,
    /// Time of the last change of phase.
    pub since: TimeMs,
    /// Time from which a passed check may readmit it; in probation, its end.
    pub ready_at: TimeMs,
    /// Expiry of an admin's block.
    pub expires_at: Option<TimeMs>,
    /// Number of strikes.
    pub strikes: Strikes,
    /// Whether only an operator can end its block, as its rule requires.
    pub by_hand: bool,
    /// Accusation that counts once an admin's block is over: the worst found meanwhile, or the one before.
    pub pending: Option<Change>,
    /// Rules muted by an admin.
    pub mutes: Vec<Mute>,
    /// Its changes, newest last.
    pub history: VecDeque<Change>,
    /// Placement restrictions by rules, also while it otherwise accepts work.
    #[serde(default)]
    pub holds: Vec<Restriction>,
    /// Rules that suspect it, or did when another one caused a strike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspected: Vec<Suspected>,
}

impl Condition {
    /// A component without any record.
    #[must_use]
    pub const fn new(since: TimeMs) -> Self {
        Self {
            phase: Phase::Healthy,
            since,
            ready_at: since,
            expires_at: None,
            strikes: Strikes::none(),
            by_hand: false,
            pending: None,
            mutes: Vec::new(),
            history: VecDeque::new(),
            holds: Vec::new(),
            suspected: Vec::new(),
        }
    }

    /// Its strictest placement restriction.
    #[must_use]
    pub fn held(&self) -> Option<&Restriction> {
        self.holds.iter().max_by_key(|held| held.what)
    }

    /// Adds a placement restriction, unless an admin muted the rule. Returns whether it is new.
    pub fn hold(&mut self, held: Restriction) -> bool {
        let mutes = |it: &Mute| it.rule == held.rule && it.until > held.since;
        if self.mutes.iter().any(mutes) {
            return false;
        }
        if let Some(known) = self.holds.iter_mut().find(|it| it.rule == held.rule) {
            known.restart = known.restart.or(held.restart);
            known.evidence = held.evidence;
            return std::mem::replace(&mut known.what, held.what) != held.what;
        }
        let has_room = self.holds.len() < HOLDS_MAX;
        if has_room {
            self.holds.push(held);
        }
        has_room
    }

    /// Removes a rule's placement restriction. Returns whether there was one.
    pub fn lift_restriction(&mut self, rule: &str) -> bool {
        let before = self.holds.len();
        self.holds.retain(|held| held.rule != rule);
        self.holds.len() < before
    }

    /// The change that caused its current phase.
    #[must_use]
    pub fn cause(&self) -> Option<&Change> {
        self.history.back()
    }

    /// The last fault found, or suspicion.
    #[must_use]
    pub fn accusation(&self) -> Option<&Change> {
        let mut newest_first = self.history.iter().rev();
        newest_first.find(|change| change.event.is_accusation())
    }

    /// Whether its last accusation did not take it out of placement.
    pub(super) fn is_only_suspected(&self) -> bool {
        let accusation = self.accusation();
        accusation.is_some_and(|change| change.event == Event::Suspect)
    }

    /// Applies a change, or returns why not. A refused change has no effect.
    ///
    /// # Errors
    /// The change is illegal, not permitted to the actor, muted, too early, or reserved for operators.
    pub fn change(
        &mut self,
        change: Change,
        recovery_limits: RecoveryLimits,
    ) -> Result<Outcome, ChangeRejected> {
        let Change { event, at, .. } = change;
        if event.is_admins() != change.actor.is_admin() {
            return Err(ChangeRejected::NotTheirs(event));
        }
        if let Some(mute) = self.mute(&change) {
            return Err(ChangeRejected::Muted {
                rule: mute.rule.clone(),
                until: mute.until,
            });
        }
        if self.phase.is_admins() && event.is_accusation() {
            return Ok(self.keep_for_later(change));
        }
        if event == Event::Suspect && matches!(self.phase, Phase::Healthy | Phase::Suspect) {
            self.suspect(&change);
        }
        if self.is_known(event) {
            return Ok(Outcome::Known);
        }
        let Some(to) = next(self.phase, event) else {
            let from = self.phase;
            return Err(ChangeRejected::Illegal { from, event });
        };
        self.check_recovery_limits(event, at)?;
        if event == Event::AdminUnblock {
            self.mute_cause(at);
        }
        if to.is_admins() && !self.phase.is_admins() {
            self.pending = self.standing();
        }
        self.count_strike(&change);
        self.enter(event, to, at, recovery_limits);
        self.by_hand |= change.by_hand && event.is_fault();
        // An admin's drain expires at the time set by the admin.
        let expires_at = match event {
            Event::Drained => self.expires_at,
            _ => change.expires_at,
        };
        self.expires_at = expires_at.filter(|_| to.is_admins());
        self.remember(change);
        self.take_up_pending(event, recovery_limits);
        self.pending.take_if(|_| !self.phase.is_admins());
        Ok(Outcome::Changed)
    }

    /// The mute that applies to a change.
    fn mute(&self, change: &Change) -> Option<&Mute> {
        let silences = |mute: &&Mute| mute.rule == change.rule && mute.until > change.at;
        let is_accusation = change.event.is_accusation();
        self.mutes.iter().find(silences).filter(|_| is_accusation)
    }

    /// Whether an accusation adds nothing to the component's current phase.
    fn is_known(&self, event: Event) -> bool {
        match event {
            Event::Suspect => self.phase != Phase::Healthy,
            Event::Drain => !self.phase.accepts_work(),
            Event::Block => matches!(self.phase, Phase::Repairing | Phase::Rma),
            Event::Condemn => self.phase == Phase::Rma,
            _ => false,
        }
    }

    /// Whether the way back is already open.
    fn check_recovery_limits(&self, event: Event, at: TimeMs) -> Result<(), ChangeRejected> {
        match event {
            Event::RepairBegan | Event::CheckBegan | Event::Clear | Event::CheckPassed => {
                let is_out = !self.phase.accepts_work() && self.phase != Phase::Draining;
                if is_out && self.needs_operator(at) {
                    return Err(ChangeRejected::ByHand(self.strikes_at(at)));
                }
                if event == Event::CheckPassed && at < self.ready_at {
                    return Err(ChangeRejected::TooEarly(self.ready_at));
                }
                Ok(())
            }
            Event::ProbationPassed if at < self.ready_at => {
                Err(ChangeRejected::TooEarly(self.ready_at))
            }
            Event::Expired => match self.expires_at {
                Some(expires_at) if at >= expires_at => Ok(()),
                Some(expires_at) => Err(ChangeRejected::TooEarly(expires_at)),
                None => Err(ChangeRejected::ByHand(self.strikes_at(at))),
            },
            _ => Ok(()),
        }
    }

    /// An admin unblocked it: the rule that accused it is muted for a day.
    fn mute_cause(&mut self, at: TimeMs) {
        let accuses = |change: &&Change| change.event.is_accusation() && !change.rule.is_empty();
        let newest = self.history.iter().rev().find(accuses);
        let accusations = newest.into_iter().chain(&self.pending);
        let accusing = accusations.map(|change| change.rule.clone());
        let holding = self.holds.drain(..).map(|held| held.rule);
        let rules: BTreeSet<String> = accusing.chain(holding).collect();
        self.mutes
            .retain(|mute| mute.until > at && !rules.contains(&mute.rule));
        for rule in rules {
            if self.mutes.iter().any(|mute| mute.rule == rule) {
                continue;
            }
            if self.mutes.len() >= MUTES_MAX {
                self.mutes.remove(0);
            }
            self.mutes.push(Mute {
                rule,
                until: at.after(MUTE_MS),
            });
        }
        self.pending = None;
        self.by_hand = false;
    }

    fn count_strike(&mut self, change: &Change) {
        let in_probation = self.phase == Phase::Probation;
        let leaves_work = self.phase.accepts_work() || self.phase == Phase::Draining;
        match change.event {
            Event::ProbationFailed | Event::Block | Event::Condemn
                if change.is_strike && leaves_work =>
            {
                self.strikes
                    .add(change.at, if in_probation { 2 } else { 1 });
            }
            // It was only suspected before, and now it is certain.
            Event::CheckFailed if self.is_only_suspected() => self.strikes.add(change.at, 1),
            // A component drained by an admin is not at fault.
            Event::Drained if change.is_strike && self.phase == Phase::Draining => {
                // Nor is one drained together with many others.
                let is_excused = self.accusation().is_some_and(|drain| !drain.is_strike);
                if is_excused {
                    return;
                }
                self.strikes.add(change.at, 1);
            }
            _ => {}
        }
    }

    /// Number of strikes within its last 30 days in service: days out of placement do not count as clean.
    #[must_use]
    pub const fn strikes_at(&self, now: TimeMs) -> u32 {
        if self.phase.accepts_work() {
            self.strikes.at(now)
        } else {
            self.strikes.at(self.since)
        }
    }

    /// Number of checks that failed since its last other change.
    fn failed_checks(&self) -> u32 {
        let newest_first = self.history.iter().rev().map(|change| change.event);
        let checks = newest_first
            .take_while(|event| matches!(event, Event::CheckBegan | Event::CheckFailed));
        let failed = checks.filter(|event| *event == Event::CheckFailed);
        u32::try_from(failed.count()).unwrap_or(u32::MAX)
    }

    fn enter(&mut self, event: Event, to: Phase, at: TimeMs, recovery_limits: RecoveryLimits) {
        let strikes = self.strikes_at(at);
        if !self.phase.accepts_work() && strikes > 0 {
            self.strikes.count_from(at);
        }
        match to {
            // The wait starts with the block; a failed repair restarts it, and a failed check starts a longer
            // one.
            Phase::Blocked if event == Event::CheckFailed => {
                let failed = self.failed_checks() + 1;
                self.ready_at = at.after(recovery_limits.recheck_ms(strikes, failed));
            }
            Phase::Blocked => self.ready_at = at.after(recovery_limits.wait_ms(strikes)),
            // A component that was only suspected and passed its check needs no probation.
            Phase::Probation if strikes == 0 => self.ready_at = at,
            Phase::Probation => self.ready_at = at.after(recovery_limits.probation_ms(strikes)),
            _ => {}
        }
        if to.accepts_work() || to.is_admins() {
            self.by_hand = false;
        }
        // A strike may be withdrawn, and the component is suspect again.
        if !matches!(to, Phase::Suspect | Phase::Draining | Phase::Blocked) {
            self.suspected.clear();
        }
        self.phase = to;
        self.since = at;
    }

    pub(super) fn remember(&mut self, change: Change) {
        if self.history.len() >= HISTORY_MAX {
            // Its accusation must not drop out of the history because of repeated failed checks.
            let newest = |is: fn(Event) -> bool| self.history.iter().rposition(|it| is(it.event));
            let kept = [newest(Event::is_accusation), newest(Event::is_fault)];
            let oldest = (0..self.history.len()).find(|at| !kept.contains(&Some(*at)));
            self.history.remove(oldest.unwrap_or_default());
        }
        self.history.push_back(change);
    }

    /// Whether its probation ends early: after the first strike, one successful task is enough.
    #[must_use]
    pub fn may_leave_probation(&self, now: TimeMs, has_succeeded: bool) -> bool {
        let is_early = has_succeeded && self.strikes_at(now) <= 1;
        self.phase == Phase::Probation && (is_early || now >= self.ready_at)
    }

    /// Whether nothing automatic unblocks it.
    #[must_use]
    pub const fn needs_operator(&self, now: TimeMs) -> bool {
        self.by_hand || self.strikes_at(now) >= MANUAL_STRIKES
    }

    /// Ends its probation immediately, because [`Self::may_leave_probation`] holds.
    pub fn shorten_probation(&mut self, now: TimeMs) {
        if self.phase == Phase::Probation {
            self.ready_at = self.ready_at.min(now);
        }
    }

    /// Actor of the change that caused its current phase.
    #[must_use]
    pub fn actor(&self) -> Option<&Actor> {
        self.cause().map(|change| &change.actor)
    }
}
