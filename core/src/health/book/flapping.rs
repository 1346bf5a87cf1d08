//! Hosts that come and go.

use super::{Book, Effect};
use crate::health::component::Held;
use crate::health::flaps::{SILENCES, WINDOW_MS};
use crate::health::rules::{Mode, RuleSet};
use crate::health::{Component, Hold, MINUTE_MS};
use crate::ids::HostId;
use crate::time::TimeMs;

/// The rule by which no gang is placed on a host that comes and goes.
const FLAPPING: &str = "flapping";

impl Book {
    /// A host has fallen silent. That is never a strike.
    pub fn fell_silent(&mut self, rules: &RuleSet, host: HostId, now: TimeMs) -> Vec<Effect> {
        let until = self.flaps.entry(host).or_default().fell_silent(now);
        let rule = rules.rule(FLAPPING);
        let is_enforced = rule.is_some_and(|rule| rule.mode == Mode::Enforce);
        let Some(until) = until.filter(|_| is_enforced) else {
            return Vec::new();
        };
        let minutes = until.since(now) / MINUTE_MS;
        let held = Held {
            rule: FLAPPING.to_owned(),
            what: Hold::Gangs,
            evidence: format!(
                "it fell silent {SILENCES} times within {} min; it has to stay for {minutes} min",
                WINDOW_MS / MINUTE_MS
            ),
            since: now,
            restart: None,
        };
        self.keep_off(&Component::Host(host), held)
            .into_iter()
            .collect()
    }

    /// Hosts that have stayed for long enough.
    pub(super) fn stayed(&mut self, now: TimeMs) -> Vec<Effect> {
        let is_due = |until: TimeMs| until <= now;
        let known = self.flaps.iter();
        let due = known.filter(|(_, flaps)| flaps.until().is_some_and(is_due));
        let due: Vec<HostId> = due.map(|(host, _)| *host).collect();
        let mut effects = Vec::new();
        for host in due {
            let flaps = self.flaps.get_mut(&host);
            if !flaps.is_some_and(|flaps| flaps.has_stayed(now)) {
                continue;
            }
            let component = Component::Host(host);
            let condition = self.conditions.get_mut(&component);
            if condition.is_some_and(|condition| condition.let_go(FLAPPING)) {
                effects.push(Effect::Held(component));
            }
        }
        effects
    }
}
