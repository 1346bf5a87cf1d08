//! From what was found to what is done: incident, rails, the component's own table, then kills and repairs.

use std::sync::Arc;

use super::work::is_repair;
use super::{Book, Effect, Place};
use crate::health::component::{Actor, Change, Event};
use crate::health::guard_rails::{Proposal, Verdict};
use crate::health::rules::DeviceAction;
use crate::health::{Component, Scope, Weight};
use crate::time::TimeMs;

/// What a rule wants.
#[derive(Clone, Debug)]
pub(super) struct Wish<'a> {
    pub(super) rule: &'a str,
    /// What was found ill; what is blocked follows from the scope.
    pub(super) component: &'a Component,
    pub(super) scope: Scope,
    pub(super) weight: Weight,
    /// Whether what runs there is ended.
    pub(super) kills: bool,
    pub(super) device: DeviceAction,
    pub(super) evidence: &'a str,
    /// Whether a job's failures speak for it, and of how many users: budgets of jobs and tenants then hold.
    pub(super) users: Option<u32>,
    /// Whether only a person gives back what is blocked.
    pub(super) by_hand: bool,
    pub(super) at: TimeMs,
}

impl Book {
    /// Does what a rule wants, as far as it may.
    pub(super) fn propose(&mut self, wish: &Wish<'_>, place: &Place<'_>) -> Vec<Effect> {
        let scope = scope_of(wish);
        let target = match scope {
            Scope::None => return Vec::new(),
            Scope::Host | Scope::HostAtTaskEnd => Component::Host(place.host),
            Scope::Gpu | Scope::GpuAtTaskEnd => wish.component.clone(),
        };
        let event = match (wish.device, scope) {
            (DeviceAction::Rma, _) => Event::Condemn,
            (_, Scope::GpuAtTaskEnd | Scope::HostAtTaskEnd) => Event::Drain,
            _ => Event::Block,
        };
        let is_host = matches!(target, Component::Host(_));
        if let Some(effects) = self.incident_of(wish, place, is_host) {
            return effects;
        }
        let is_for_later = self.is_for_later(&target, event, wish.by_hand);
        if !self.has(&target, event) && !is_for_later {
            return Vec::new();
        }
        let proposal = Proposal {
            component: &target,
            host: place.host,
            scope,
            gpus: if is_host { place.gpus } else { 1 },
            weight: wish.weight,
            pool: place.pool,
            job: place.job.filter(|_| wish.users.is_some()),
            tenant: place.user,
            users: wish.users.unwrap_or_default(),
            attempt_has_blocked: false,
            at: wish.at,
        };
        let verdict = Arc::make_mut(&mut self.rails).admit(&proposal, &place.view);
        if let Verdict::Refused(refused) = verdict {
            let mut effects = vec![Effect::Railed(target.clone(), refused)];
            effects.extend(self.suspect(wish, &target));
            return effects;
        }
        let is_worn_out = self.is_worn_out(wish, &target);
        let wish = &Wish {
            by_hand: wish.by_hand || is_worn_out,
            ..wish.clone()
        };
        let mut effects = self.change(&target, wish.change(event, true));
        if is_for_later {
            effects.extend(self.repair(wish, &target, place));
            return effects;
        }
        let is_done = effects
            .iter()
            .any(|it| matches!(it, Effect::Changed { .. }));
        if !is_done {
            return effects;
        }
        self.record(place.host).block(wish.at);
        if let Verdict::PlacementOnly(refused) = verdict {
            effects.push(Effect::Railed(target, refused));
            return effects;
        }
        if wish.kills {
            effects.push(Effect::Kill(target.clone()));
        }
        effects.extend(self.repair(wish, &target, place));
        effects
    }

    /// The component is watched from now on.
    pub(super) fn suspect(&mut self, wish: &Wish<'_>, target: &Component) -> Vec<Effect> {
        let is_for_later = self.is_for_later(target, Event::Suspect, false);
        if is_for_later || self.has(target, Event::Suspect) {
            self.change(target, wish.change(Event::Suspect, false))
        } else {
            Vec::new()
        }
    }

    /// Whether an admin holds a component, and a rule's word counts once the admin's time is over.
    fn is_for_later(&self, target: &Component, event: Event, by_hand: bool) -> bool {
        let condition = self.conditions.get(target);
        condition.is_some_and(|condition| condition.is_for_later(event, by_hand))
    }

    /// If many hosts went bad together: one incident, and nothing is held against any of them.
    fn incident_of(
        &mut self,
        wish: &Wish<'_>,
        place: &Place<'_>,
        is_host: bool,
    ) -> Option<Vec<Effect>> {
        if !is_host {
            return None;
        }
        let open_before = self.incidents.ends().count();
        let incident = Arc::make_mut(&mut self.incidents)
            .see(wish.at, place.host, place.groups)?
            .clone();
        if self.incidents.ends().count() == open_before {
            return Some(Vec::new());
        }
        let mut effects = Vec::new();
        for host in &incident.hosts {
            let component = Component::Host(*host);
            if let Some(condition) = self.conditions.get_mut(&component) {
                let from = condition.phase;
                let is_forgiven = condition.forgive(wish.rule, wish.at);
                if is_forgiven || from.is_admins() && condition.pending.is_none() {
                    self.wanted.remove(&component);
                }
                if is_forgiven {
                    let to = self.phase(&component);
                    effects.push(Effect::Changed {
                        component,
                        from,
                        to,
                    });
                }
            }
        }
        effects.push(Effect::Incident(incident));
        Some(effects)
    }

    /// Whether a repair is wanted of what was repaired so often that only a person gives it back.
    fn is_worn_out(&self, wish: &Wish<'_>, target: &Component) -> bool {
        let known = self.repairs.get(target);
        is_repair(wish.device)
            && known.is_some_and(|repairs| repairs.is_worn_out(wish.at, self.patience))
    }

    /// The repair that comes next on the ladder, if one may begin now.
    fn repair(&self, wish: &Wish<'_>, target: &Component, place: &Place<'_>) -> Vec<Effect> {
        let known = self.repairs.get(target);
        let device = known.map_or(wish.device, |repairs| {
            repairs.next(wish.at, wish.device, self.patience)
        });
        match device {
            // Services are started again by what keeps something off their host.
            DeviceAction::None
            | DeviceAction::RestartService
            | DeviceAction::Decode
            | DeviceAction::Text => Vec::new(),
            DeviceAction::Inspect | DeviceAction::Rma => {
                vec![Effect::Alert(target.clone(), wish.evidence.to_owned())]
            }
            DeviceAction::Check => vec![Effect::CheckIdle(target.clone())],
            DeviceAction::Reset | DeviceAction::ResetIdle | DeviceAction::Reboot => {
                match self.rails.admit_repair(&place.view) {
                    Ok(()) => vec![Effect::Repair(target.clone(), device)],
                    Err(refused) => vec![Effect::Railed(target.clone(), refused)],
                }
            }
        }
    }
}

/// What is taken out of placement: a reboot ends all that runs on the host, so the host goes, when nothing runs there.
const fn scope_of(wish: &Wish<'_>) -> Scope {
    match (wish.device, wish.scope) {
        (DeviceAction::Reboot, Scope::Gpu | Scope::GpuAtTaskEnd) => Scope::HostAtTaskEnd,
        (_, scope) => scope,
    }
}

impl Wish<'_> {
    pub(super) fn change(&self, event: Event, is_strike: bool) -> Change {
        Change {
            event,
            actor: Actor::Rule(self.rule.to_owned()),
            rule: self.rule.to_owned(),
            evidence: self.evidence.to_owned(),
            at: self.at,
            is_strike,
            expires_at: None,
            by_hand: self.by_hand && is_strike,
        }
    }
}
