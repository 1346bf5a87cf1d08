//! Rules that suspect a component, which is suspect as long as any does.

use muster_model::health::Phase;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::component::condition::HOLDS_MAX;
use crate::component::{Actor, Change, Condition, Event};

/// A rule that suspects a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspected {
    /// Name of the health rule.
    pub rule: String,
    /// Observed evidence.
    pub evidence: String,
    /// Time of its last report.
    pub at: TimeMs,
}

impl Condition {
    /// Removes a rule's suspicion. Returns whether another one still suspects it, which then becomes its
    /// accusation.
    pub fn withdraw_suspicion(&mut self, rule: &str) -> bool {
        self.suspected.retain(|it| it.rule != rule);
        let is_suspect = self.phase == Phase::Suspect;
        let Some(next) = self.suspected.first().filter(|_| is_suspect) else {
            return false;
        };
        let (rule, evidence, at) = (next.rule.clone(), next.evidence.clone(), next.at);
        if self.accusation().is_none_or(|it| it.rule != rule) {
            self.remember(Change {
                event: Event::Suspect,
                actor: Actor::Rule(rule.clone()),
                rule,
                evidence,
                at,
                is_strike: false,
                expires_at: None,
                by_hand: false,
            });
        }
        true
    }

    /// Adds a rule's suspicion, besides those of others.
    pub(super) fn suspect(&mut self, change: &Change) {
        let Change {
            rule, evidence, at, ..
        } = change;
        let known = self.suspected.iter_mut().find(|it| it.rule == *rule);
        if let Some(known) = known {
            (known.evidence, known.at) = (evidence.clone(), *at);
        } else if self.suspected.len() < HOLDS_MAX {
            self.suspected.push(Suspected {
                rule: rule.clone(),
                evidence: evidence.clone(),
                at: *at,
            });
        }
    }
}
