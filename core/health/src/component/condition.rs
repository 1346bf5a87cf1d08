//! What is known of one component, and how it changes.

use std::collections::{BTreeSet, VecDeque};

use muster_model::health::{Hold, Phase};
use muster_model::time::{DAY_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::component::strikes::MANUAL_STRIKES;
use crate::component::transitions::next;
use crate::component::{Actor, Change, Event, Patience, Strikes, Suspected};

/// Changes that a component remembers, newest last.
pub(super) const HISTORY_MAX: usize = 32;
/// Rules that may keep something off one component, and as many that may suspect it; a further one does not.
pub(super) const HOLDS_MAX: usize = 16;
/// Rules that one component may have muted.
pub(super) const MUTES_MAX: usize = 16;
/// How long an admin's unblock silences the rule that blocked: 24 h.
const MUTE_MS: u64 = DAY_MS;

/// A rule that an admin overruled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    /// Which.
    pub rule: String,
    /// Until when it does nothing here.
    pub until: TimeMs,
}

/// What a rule keeps off a component, also while it accepts work otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// By which rule.
    pub rule: String,
    /// What.
    pub what: Hold,
    /// What was seen.
    pub evidence: String,
    /// Since when.
    pub since: TimeMs,
    /// How far the restart of the services is that the rule is about; none if it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

/// How far the restart of a host's services is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// As many as may are under way elsewhere.
    Waits,
    /// The host's worker is told.
    Ordered {
        /// When it was.
        at: TimeMs,
    },
    /// It was tried: what was kept off stays so until a reading says that all is well.
    Tried,
}

/// What became of a change that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The component stands elsewhere now, or anew at the same place.
    Changed,
    /// An admin holds the component: the accusation counts once that is over.
    Remembered,
    /// It changes nothing: the component is already there, or worse.
    Known,
}

/// Why a change is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No row of the table.
    #[error("a component that is {from} knows no {event}")]
    Illegal {
        /// Where it stands.
        from: Phase,
        /// What was asked for.
        event: Event,
    },
    /// A person's event by something automatic, or the other way round.
    #[error("{0} is not for this actor")]
    NotTheirs(Event),
    /// An admin gave the component back and overruled this rule.
    #[error("rule {rule} does nothing here for a day: an admin gave the component back")]
    Muted {
        /// Which rule.
        rule: String,
        /// Until when.
        until: TimeMs,
    },
    /// Its wait or its probation is not over.
    #[error("not before {0}")]
    TooEarly(TimeMs),
    /// It failed so often that only a person gives it back.
    #[error("it has {0} strikes: only an admin gives it back")]
    ByHand(u32),
}

/// What is known of one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Where it stands.
    pub phase: Phase,
    /// Since when.
    pub since: TimeMs,
    /// From when on a passed check may readmit it; while in probation, from when on that is over.
    pub ready_at: TimeMs,
    /// When an admin's block ends by itself.
    pub expires_at: Option<TimeMs>,
    /// How often it failed.
    pub strikes: Strikes,
    /// Whether only a person ends its block: its rule says so.
    pub by_hand: bool,
    /// What counts once an admin's time is over: the worst that was found meanwhile, or that stood against it before.
    pub pending: Option<Change>,
    /// Rules that an admin overruled.
    pub mutes: Vec<Mute>,
    /// How it came here, newest last.
    pub history: VecDeque<Change>,
    /// What rules keep off it, also while it accepts work otherwise.
    #[serde(default)]
    pub holds: Vec<Held>,
    /// Rules that suspect it, or did when another one struck it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspected: Vec<Suspected>,
}

impl Condition {
    /// A component that nothing is known of.
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

    /// What is kept off it, by the rule that keeps off most.
    #[must_use]
    pub fn held(&self) -> Option<&Held> {
        self.holds.iter().max_by_key(|held| held.what)
    }

    /// Keeps something off it whenever it accepts work, if no admin overruled the rule. Whether that is new.
    pub fn hold(&mut self, held: Held) -> bool {
        let is_muted =
            { self.mutes.iter() }.any(|it| it.rule == held.rule && it.until > held.since);
        if is_muted {
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

    /// A rule keeps nothing off it any more. Whether it did.
    pub fn let_go(&mut self, rule: &str) -> bool {
        let before = self.holds.len();
        self.holds.retain(|held| held.rule != rule);
        self.holds.len() < before
    }

    /// The change that it stands where it stands for.
    #[must_use]
    pub fn cause(&self) -> Option<&Change> {
        self.history.back()
    }

    /// The last fault that was found, or suspicion.
    #[must_use]
    pub fn accusation(&self) -> Option<&Change> {
        let mut newest_first = self.history.iter().rev();
        newest_first.find(|change| change.event.is_accusation())
    }

    /// Whether the last that was said against it did not take it out of placement.
    pub(super) fn is_only_suspected(&self) -> bool {
        let accusation = self.accusation();
        accusation.is_some_and(|change| change.event == Event::Suspect)
    }

    /// Changes it, or says why not. Nothing is changed by what is refused.
    ///
    /// # Errors
    /// The change is not legal, not the actor's, muted, too early, or for a person alone.
    pub fn change(&mut self, change: Change, patience: Patience) -> Result<Outcome, Refusal> {
        let Change { event, at, .. } = change;
        if event.is_admins() != change.actor.is_admin() {
            return Err(Refusal::NotTheirs(event));
        }
        if let Some(mute) = self.mute(&change) {
            return Err(Refusal::Muted {
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
            return Err(Refusal::Illegal { from, event });
        };
        self.check_patience(event, at)?;
        if event == Event::AdminUnblock {
            self.mute_cause(at);
        }
        if to.is_admins() && !self.phase.is_admins() {
            self.pending = self.standing();
        }
        self.count_strike(&change);
        self.enter((event, to), at, patience);
        self.by_hand |= change.by_hand && event.is_fault();
        // What an admin drained ends when the admin said.
        let expires_at = match event {
            Event::Drained => self.expires_at,
            _ => change.expires_at,
        };
        self.expires_at = expires_at.filter(|_| to.is_admins());
        self.remember(change);
        self.take_up_pending(event, patience);
        self.pending.take_if(|_| !self.phase.is_admins());
        Ok(Outcome::Changed)
    }

    /// The mute that silences a change.
    fn mute(&self, change: &Change) -> Option<&Mute> {
        let silences = |mute: &&Mute| mute.rule == change.rule && mute.until > change.at;
        let is_accusation = change.event.is_accusation();
        self.mutes.iter().find(silences).filter(|_| is_accusation)
    }

    /// Whether an accusation says no more than where the component already stands.
    fn is_known(&self, event: Event) -> bool {
        match event {
            Event::Suspect => self.phase != Phase::Healthy,
            Event::Drain => !self.phase.accepts_work(),
            Event::Block => matches!(self.phase, Phase::Repairing | Phase::Rma),
            Event::Condemn => self.phase == Phase::Rma,
            _ => false,
        }
    }

    /// Whether the way back is open already.
    fn check_patience(&self, event: Event, at: TimeMs) -> Result<(), Refusal> {
        match event {
            Event::RepairBegan | Event::CheckBegan | Event::Clear | Event::CheckPassed => {
                let is_out = !self.phase.accepts_work() && self.phase != Phase::Draining;
                if is_out && self.is_for_a_person(at) {
                    return Err(Refusal::ByHand(self.strikes_at(at)));
                }
                if event == Event::CheckPassed && at < self.ready_at {
                    return Err(Refusal::TooEarly(self.ready_at));
                }
                Ok(())
            }
            Event::ProbationPassed if at < self.ready_at => Err(Refusal::TooEarly(self.ready_at)),
            Event::Expired => match self.expires_at {
                Some(expires_at) if at >= expires_at => Ok(()),
                Some(expires_at) => Err(Refusal::TooEarly(expires_at)),
                None => Err(Refusal::ByHand(self.strikes_at(at))),
            },
            _ => Ok(()),
        }
    }

    /// An admin gave it back: whatever accused it does nothing for a day.
    fn mute_cause(&mut self, at: TimeMs) {
        let accuses = |change: &&Change| change.event.is_accusation() && !change.rule.is_empty();
        let newest = self.history.iter().rev().find(accuses);
        let overruled = newest.into_iter().chain(&self.pending);
        let overruled = overruled.map(|change| change.rule.clone());
        let held = self.holds.drain(..).map(|held| held.rule);
        let rules: BTreeSet<String> = overruled.chain(held).collect();
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
            // It was only suspected, and now it is known.
            Event::CheckFailed if self.is_only_suspected() => self.strikes.add(change.at, 1),
            // What an admin drained has done nothing wrong.
            Event::Drained if change.is_strike && self.phase == Phase::Draining => {
                // Nor what was drained with many others.
                let is_excused = self.accusation().is_some_and(|drain| !drain.is_strike);
                if is_excused {
                    return;
                }
                self.strikes.add(change.at, 1);
            }
            _ => {}
        }
    }

    /// How often it failed within its last 30 days in service: no time out of placement is clean.
    #[must_use]
    pub const fn strikes_at(&self, now: TimeMs) -> u32 {
        if self.phase.accepts_work() {
            self.strikes.at(now)
        } else {
            self.strikes.at(self.since)
        }
    }

    /// Checks that failed since something else happened to it.
    fn failed_checks(&self) -> u32 {
        let newest_first = self.history.iter().rev().map(|change| change.event);
        let checks = newest_first
            .take_while(|event| matches!(event, Event::CheckBegan | Event::CheckFailed));
        let failed = checks.filter(|event| *event == Event::CheckFailed);
        u32::try_from(failed.count()).unwrap_or(u32::MAX)
    }

    fn enter(&mut self, (event, to): (Event, Phase), at: TimeMs, patience: Patience) {
        let strikes = self.strikes_at(at);
        if !self.phase.accepts_work() && strikes > 0 {
            self.strikes.count_from(at);
        }
        match to {
            // The wait begins with the block; a failed repair begins it anew, and a failed check a longer one.
            Phase::Blocked if event == Event::CheckFailed => {
                let failed = self.failed_checks() + 1;
                self.ready_at = at.after(patience.recheck_ms(strikes, failed));
            }
            Phase::Blocked => self.ready_at = at.after(patience.wait_ms(strikes)),
            // What was only suspected, and passed its check, has nothing to prove.
            Phase::Probation if strikes == 0 => self.ready_at = at,
            Phase::Probation => self.ready_at = at.after(patience.probation_ms(strikes)),
            _ => {}
        }
        if to.accepts_work() || to.is_admins() {
            self.by_hand = false;
        }
        // What is struck may be forgiven, and is suspect again.
        if !matches!(to, Phase::Suspect | Phase::Draining | Phase::Blocked) {
            self.suspected.clear();
        }
        self.phase = to;
        self.since = at;
    }

    pub(super) fn remember(&mut self, change: Change) {
        if self.history.len() >= HISTORY_MAX {
            // What it stands accused of is not forgotten for checks that fail ever again.
            let newest = |is: fn(Event) -> bool| self.history.iter().rposition(|it| is(it.event));
            let kept = [newest(Event::is_accusation), newest(Event::is_fault)];
            let oldest = (0..self.history.len()).find(|at| !kept.contains(&Some(*at)));
            self.history.remove(oldest.unwrap_or_default());
        }
        self.history.push_back(change);
    }

    /// Whether its probation is over early: after the first strike, one task that ended well is enough.
    #[must_use]
    pub fn may_leave_probation(&self, now: TimeMs, has_succeeded: bool) -> bool {
        let is_early = has_succeeded && self.strikes_at(now) <= 1;
        self.phase == Phase::Probation && (is_early || now >= self.ready_at)
    }

    /// Whether nothing automatic gives it back.
    #[must_use]
    pub const fn is_for_a_person(&self, now: TimeMs) -> bool {
        self.by_hand || self.strikes_at(now) >= MANUAL_STRIKES
    }

    /// Ends its probation at once, because [`Self::may_leave_probation`] says so.
    pub fn shorten_probation(&mut self, now: TimeMs) {
        if self.phase == Phase::Probation {
            self.ready_at = self.ready_at.min(now);
        }
    }

    /// Who it stands where it stands for.
    #[must_use]
    pub fn actor(&self) -> Option<&Actor> {
        self.cause().map(|change| &change.actor)
    }
}
