//! From a finding to actions: incident, guard rails, the component's transition table, then kills and
//! repairs.

use std::sync::Arc;

use muster_model::health::{Component, DeviceAction, Phase, Scope, Weight};
use muster_model::ids::HostId;
use muster_model::time::TimeMs;

use crate::component::{Actor, Change, Event};
use crate::guard_rails::{Group, GroupKind, Incident, Proposal, Rail, Refused, Verdict};
use crate::rules::{HISTORY, LEMON};
use crate::state::work::is_repair;
use crate::state::{Circumstances, Effect, HealthState};

/// Rules about shared file systems.
const STORAGE_RULES: [&str; 2] = ["mount_missing", "nfs_hang"];

/// Action required by a rule.
#[derive(Clone, Debug)]
pub(super) struct ProposedAction<'a> {
    pub(super) rule: &'a str,
    /// The faulty component; the scope decides what is blocked.
    pub(super) component: &'a Component,
    pub(super) scope: Scope,
    pub(super) weight: Weight,
    /// Whether running tasks are stopped.
    pub(super) kills: bool,
    pub(super) device: DeviceAction,
    pub(super) evidence: &'a str,
    /// Set if job failures are the evidence: the number of their users. The budgets of jobs and tenants then
    /// apply.
    pub(super) users: Option<u32>,
    /// Whether only an operator can unblock it.
    pub(super) by_hand: bool,
    /// Whether it waited for the end of an incident: then it is no strike.
    pub(super) has_waited: bool,
    pub(super) at: TimeMs,
}

/// Relation of a fault to incidents.
pub(super) enum IncidentRelation {
    /// Part of a known incident.
    Known,
    /// Starts a new incident.
    New(Incident),
}

/// A block that passed the guard rails.
struct Admitted<'a> {
    target: &'a Component,
    event: Event,
    /// An admin holds the component.
    is_for_later: bool,
    /// The component failed together with many others: no strike.
    is_excused: bool,
    verdict: Verdict,
}

impl HealthState {
    /// Carries out the action required by a rule, as far as permitted. The order of the steps matters:
    ///
    /// 1. The fault joins an incident if many fail at once: a host counts there even if its block would
    ///    change nothing.
    /// 2. A fault that waits for the end of its incident, or changes nothing, goes no further. The guard
    ///    rails do not see it, because they count what they admit.
    /// 3. The guard rails admit or refuse the block.
    /// 4. The block is placed, with the stops and repairs that follow.
    pub(super) fn propose(
        &mut self,
        proposed: &ProposedAction<'_>,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let scope = scope_of(proposed);
        let target = match scope {
            Scope::None => return Vec::new(),
            Scope::Host | Scope::HostAtTaskEnd => Component::Host(place.host),
            Scope::Gpu | Scope::GpuAtTaskEnd => proposed.component.clone(),
        };
        let event = match (proposed.device, scope) {
            (DeviceAction::Rma, _) => Event::Condemn,
            (_, Scope::GpuAtTaskEnd | Scope::HostAtTaskEnd) => Event::Drain,
            _ => Event::Block,
        };
        let is_for_later = self.is_for_later(&target, event, proposed.by_hand);
        let is_news = is_for_later || self.has(&target, event);
        let incident = self.join_incident(proposed, place, &target, is_news);
        let is_among_many = incident.is_some();
        let mut effects = incident.unwrap_or_default();
        if is_among_many && waits_for_the_end(proposed) || !is_news {
            return effects;
        }
        let is_excused = proposed.has_waited
            || is_among_many
            || self.incidents.of(place.host, proposed.at).is_some();
        let verdict = self.admit(proposed, place, &target, scope);
        if let Verdict::Refused(refused) = verdict {
            effects.extend(self.fall_back(proposed, &target, refused));
            return effects;
        }
        let admitted = Admitted {
            target: &target,
            event,
            is_for_later,
            is_excused,
            verdict,
        };
        effects.extend(self.apply_admitted(proposed, &admitted, place));
        effects
    }

    /// Asks the guard rails for a block, and counts it there if they admit it.
    fn admit(
        &mut self,
        proposed: &ProposedAction<'_>,
        place: &Circumstances<'_>,
        target: &Component,
        scope: Scope,
    ) -> Verdict {
        let proposal = Proposal {
            component: target,
            host: place.host,
            scope,
            gpus: match target {
                Component::Host(_) => place.gpus,
                _ => 1,
            },
            weight: proposed.weight,
            pool: place.pool,
            job: place.job.filter(|_| proposed.users.is_some()),
            tenant: place.user,
            users: proposed.users.unwrap_or_default(),
            at: proposed.at,
        };
        Arc::make_mut(&mut self.rails).admit(&proposal, &place.view)
    }

    /// What is done in place of a block that the guard rails refused: a check if only evidence is missing,
    /// otherwise a suspicion. If too much is blocked, a check would take out even more.
    fn fall_back(
        &mut self,
        proposed: &ProposedAction<'_>,
        target: &Component,
        refused: Refused,
    ) -> Vec<Effect> {
        let mut effects = vec![Effect::Railed(target.clone(), refused)];
        let lacks_evidence = matches!(refused.rail, Rail::Users | Rail::Job | Rail::Tenant);
        effects.extend(
            match lacks_evidence && proposed.device == DeviceAction::Check {
                true => self.check_when_idle(proposed, target),
                false => self.suspect(proposed, target),
            },
        );
        effects
    }

    /// Places a block, and returns the effects.
    fn apply_admitted(
        &mut self,
        proposed: &ProposedAction<'_>,
        admitted: &Admitted<'_>,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let target = admitted.target;
        let proposed = &ProposedAction {
            by_hand: proposed.by_hand || self.exceeds_repair_limit(proposed, target),
            ..proposed.clone()
        };
        let change = proposed.change(admitted.event, !admitted.is_excused);
        let mut effects = self.change(target, change);
        if admitted.is_for_later {
            effects.extend(self.repair(proposed, target, place));
            return effects;
        }
        let is_done = effects
            .iter()
            .any(|it| matches!(it, Effect::Changed { .. }));
        if !is_done {
            return effects;
        }
        if !admitted.is_excused {
            self.record(place.host).block(proposed.at);
        }
        if let Verdict::PlacementOnly(refused) = admitted.verdict {
            effects.push(Effect::Railed(target.clone(), refused));
            return effects;
        }
        if proposed.kills {
            effects.push(Effect::Kill(target.clone()));
        }
        effects.extend(self.repair(proposed, target, place));
        effects
    }

    /// Marks the component as suspect.
    pub(super) fn suspect(
        &mut self,
        proposed: &ProposedAction<'_>,
        target: &Component,
    ) -> Vec<Effect> {
        let is_for_later = self.is_for_later(target, Event::Suspect, false);
        let is_suspect = self.phase(target) == Phase::Suspect;
        if is_for_later || is_suspect || self.has(target, Event::Suspect) {
            self.change(target, proposed.change(Event::Suspect, false))
        } else {
            Vec::new()
        }
    }

    /// Whether an admin holds a component, so that the accusation counts once the admin's block is over.
    fn is_for_later(&self, target: &Component, event: Event, by_hand: bool) -> bool {
        let condition = self.conditions.get(target);
        condition.is_some_and(|condition| condition.is_for_later(event, by_hand))
    }

    /// Reports a fault of a host to the incidents; `None` if it is not part of one. If many hosts failed
    /// together, that is one incident, and it is held against none of them. A GPU's fault counts only if
    /// taking it out of placement is news and its evidence is hard.
    fn join_incident(
        &mut self,
        proposed: &ProposedAction<'_>,
        place: &Circumstances<'_>,
        target: &Component,
        is_news: bool,
    ) -> Option<Vec<Effect>> {
        // Evidence from history alone does not count as a fault of its host.
        let is_observed = !proposed.has_waited && ![HISTORY, LEMON].contains(&proposed.rule);
        let counts =
            matches!(target, Component::Host(_)) || is_news && proposed.weight == Weight::Hard;
        if !is_observed || !counts {
            return None;
        }
        let mut groups = place.groups.to_vec();
        groups.extend(storage(proposed.rule, place.groups));
        let IncidentRelation::New(incident) =
            self.record_failure(proposed.at, place.host, &groups)?
        else {
            return Some(Vec::new());
        };
        let mut effects = Vec::new();
        if waits_for_the_end(proposed) {
            for host in &incident.hosts {
                effects.extend(self.withdraw(*host, proposed));
            }
        }
        effects.push(Effect::Incident(incident));
        Some(effects)
    }

    /// A host failed: its relation to incidents.
    pub(super) fn record_failure(
        &mut self,
        at: TimeMs,
        host: HostId,
        groups: &[(Group, u32)],
    ) -> Option<IncidentRelation> {
        let open_before = self.incidents.open().count();
        Arc::make_mut(&mut self.incidents).record_failure(at, host, groups)?;
        // A new one is the newest.
        let new = self.incidents.open().nth(open_before);
        Some(
            new.cloned()
                .map_or(IncidentRelation::Known, IncidentRelation::New),
        )
    }

    /// Withdraws what a rule did to a host a moment ago: many failed at once.
    fn withdraw(&mut self, host: HostId, proposed: &ProposedAction<'_>) -> Option<Effect> {
        let component = Component::Host(host);
        let recovery_limits = self.recovery_limits;
        let condition = self.conditions.get_mut(&component)?;
        let from = condition.phase;
        let is_forgiven = condition.withdraw(proposed.rule, proposed.at, recovery_limits);
        let to = condition.phase;
        // Another reason for being out of service may still need the repair.
        let wants_nothing = is_forgiven && to.accepts_work();
        if wants_nothing || from.is_admins() && condition.pending.is_none() {
            self.wanted.remove(&component);
        }
        if !is_forgiven {
            return None;
        }
        self.record(host).excuse_block(proposed.at);
        (from != to).then_some(Effect::Changed {
            component,
            from,
            to,
        })
    }

    /// Many failed together with a component's host: what took it out of placement a moment ago is no strike.
    pub fn withdraw_strike(&mut self, host: HostId, component: &Component, now: TimeMs) {
        let recovery_limits = self.recovery_limits;
        let condition = self.conditions.get_mut(component);
        if condition.is_some_and(|condition| condition.withdraw_strike(now, recovery_limits)) {
            self.record(host).excuse_block(now);
        }
    }

    /// Whether a repair is wanted of a component that was repaired so often that only an operator can unblock
    /// it.
    fn exceeds_repair_limit(&self, proposed: &ProposedAction<'_>, target: &Component) -> bool {
        let known = self.repairs.get(target);
        is_repair(proposed.device)
            && known.is_some_and(|repairs| {
                repairs.exceeds_repair_limit(proposed.at, self.recovery_limits)
            })
    }

    /// The next repair on the ladder, if one may start now.
    fn repair(
        &self,
        proposed: &ProposedAction<'_>,
        target: &Component,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let known = self.repairs.get(target);
        let device = known.map_or(proposed.device, |repairs| {
            repairs.next(proposed.at, proposed.device, self.recovery_limits)
        });
        match device {
            // Services are restarted by the rule that restricts their host.
            DeviceAction::None
            | DeviceAction::RestartService
            | DeviceAction::Decode
            | DeviceAction::Text => Vec::new(),
            DeviceAction::Inspect | DeviceAction::Rma => {
                vec![Effect::Alert(target.clone(), proposed.evidence.to_owned())]
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

/// Whether a finding about many hosts waits for the end of the incident. A GPU that reports itself as broken
/// cannot work meanwhile either: it is taken out of placement, but without a strike.
const fn waits_for_the_end(proposed: &ProposedAction<'_>) -> bool {
    !matches!(proposed.component, Component::Gpu(_))
}

/// The common group of hosts whose file systems do not respond: the number of hosts that mount the same ones
/// is unknown, so all hosts of the cluster count.
fn storage(rule: &str, groups: &[(Group, u32)]) -> Option<(Group, u32)> {
    let mut all = groups.iter();
    let (_, hosts) = all.find(|(group, _)| group.kind == GroupKind::Cluster)?;
    let group = Group {
        kind: GroupKind::Storage,
        name: String::new(),
    };
    STORAGE_RULES.contains(&rule).then_some((group, *hosts))
}

/// Scope taken out of placement: a reboot ends everything that runs on the host, so the host is drained
/// first.
const fn scope_of(proposed: &ProposedAction<'_>) -> Scope {
    match (proposed.device, proposed.scope) {
        (DeviceAction::Reboot, Scope::Gpu | Scope::GpuAtTaskEnd) => Scope::HostAtTaskEnd,
        (_, scope) => scope,
    }
}

impl ProposedAction<'_> {
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
