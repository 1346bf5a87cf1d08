//! Actions of admins, results of repairs and checks, and timed transitions.

use std::sync::Arc;

use muster_model::command::Block;
use muster_model::health::{Component, DeviceAction, Phase};
use muster_model::time::TimeMs;

use crate::component::{Actor, Change, Condition, Event, RecoveryLimits};
use crate::state::{Effect, HealthState};

impl HealthState {
    /// Applies an admin's action, which always takes precedence; that it spares the last host of a pool is
    /// checked by the caller.
    pub fn admin(&mut self, component: &Component, change: Change) -> Vec<Effect> {
        self.change(component, change)
    }

    /// Adopts a block from before health was recorded: an admin's.
    pub fn adopt_block(&mut self, component: &Component, block: &Block) {
        if !self.conditions.contains_key(component)
            && let Some(condition) = Self::of_block(block)
        {
            self.conditions.insert(component.clone(), condition);
        }
    }

    /// Condition of a component about which only an existing block is known.
    #[must_use]
    pub fn of_block(block: &Block) -> Option<Condition> {
        let mut condition = Condition::new(block.since);
        let change = Change {
            event: Event::AdminBlock,
            actor: Actor::Admin(block.author.clone()),
            rule: String::new(),
            evidence: block.reason.clone(),
            at: block.since,
            is_strike: false,
            expires_at: block.expires_at,
            by_hand: false,
        };
        condition.change(change, RecoveryLimits::default()).ok()?;
        Some(condition)
    }

    /// Expiry of an admin's block.
    pub fn expired(&mut self, component: &Component, now: TimeMs) -> Vec<Effect> {
        if !self.phase(component).is_admins() {
            return Vec::new();
        }
        let change = automatic(Event::Expired, Actor::Time, "time expired", now);
        let mut effects = self.change(component, change);
        if let Some(repair) = self
            .wanted(component)
            .filter(|_| self.wants_repair(component))
        {
            effects.push(Effect::Repair(component.clone(), repair));
        }
        effects
    }

    /// Applies the start, success or failure of a repair or a check.
    pub fn work(
        &mut self,
        component: &Component,
        event: Event,
        by: &str,
        now: TimeMs,
    ) -> Vec<Effect> {
        self.change(
            component,
            automatic(event, Actor::Check(by.to_owned()), by, now),
        )
    }

    /// Applies a completed repair: it counts on the ladder, and the component waits for its check.
    pub fn repaired(
        &mut self,
        component: &Component,
        action: DeviceAction,
        now: TimeMs,
    ) -> Vec<Effect> {
        self.repairs
            .entry(component.clone())
            .or_default()
            .complete(now, action);
        // Earlier readings of it are void: a remaining fault is found again.
        if let Some(condition) = self.conditions.get_mut(component) {
            condition.holds.clear();
        }
        self.work(component, Event::RepairDone, action.name(), now)
    }

    /// A task succeeded on a component: after a first strike this ends its probation.
    pub fn succeeded(&mut self, component: &Component, now: TimeMs) -> Vec<Effect> {
        let Some(condition) = self.conditions.get_mut(component) else {
            return Vec::new();
        };
        if !condition.may_leave_probation(now, true) {
            return Vec::new();
        }
        condition.shorten_probation(now);
        self.change(
            component,
            automatic(
                Event::ProbationPassed,
                Actor::Time,
                "a task ended well",
                now,
            ),
        )
    }

    /// Applies timed transitions: the end of probations, breakers, incidents and hold-downs of flapping
    /// hosts, and the restart of waiting services.
    pub fn tick(&mut self, now: TimeMs) -> Vec<Effect> {
        let mut effects: Vec<Effect> = Arc::make_mut(&mut self.incidents)
            .over(now)
            .into_iter()
            .map(Effect::IncidentOver)
            .collect();
        let closed = Arc::make_mut(&mut self.rails).tick(now);
        effects.extend(closed.into_iter().map(Effect::BreakerClosed));
        effects.extend(self.end_hold_downs(now));
        effects.extend(self.order_restarts(now));
        let due: Vec<(Component, Event)> = self
            .conditions
            .iter()
            .filter_map(|(component, condition)| {
                let event = match condition.phase {
                    Phase::Probation if now >= condition.ready_at => Event::ProbationPassed,
                    _ => return None,
                };
                Some((component.clone(), event))
            })
            .collect();
        for (component, event) in due {
            effects.extend(self.change(
                &component,
                automatic(event, Actor::Time, "time expired", now),
            ));
        }
        effects
    }
}

fn automatic(event: Event, actor: Actor, evidence: &str, at: TimeMs) -> Change {
    Change {
        event,
        actor,
        rule: String::new(),
        evidence: evidence.to_owned(),
        at,
        is_strike: true,
        expires_at: None,
        by_hand: false,
    }
}
