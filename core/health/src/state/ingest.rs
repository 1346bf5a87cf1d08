//! Application of health findings reported by workers.

use std::sync::Arc;

use muster_model::health::{
    Action, Component, ComponentKind, DeviceAction, Finding, Hold, Phase, Scope, Severity, Weight,
    with_detail,
};
use muster_model::ids::GpuUuid;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::component::{Actor, Change, Condition, Event, Restart, Restriction, Suspected};
use crate::evaluate::{Escalation, XidReport, repeated_words};
use crate::guard_rails::Incident;
use crate::rules::{Blame, Clears, Mode, Rule, RuleSet, Side, TaskAction, XidPolicy, XidSeverity};
use crate::state::clock_skew::CLOCK_SKEW;
use crate::state::propose::ProposedAction;
use crate::state::{
    Circumstances, Effect, FINDINGS_IN_INCIDENTS_MAX, FINDINGS_KEPT_MAX, HealthState,
};

impl HealthState {
    /// Applies a finding; a finding that was already applied has no effect.
    pub fn ingest(
        &mut self,
        rules: &RuleSet,
        incarnation: u64,
        finding: &Finding,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let applied = self.applied.entry(place.host).or_default();
        if !applied.is_new(incarnation, finding.sequence) {
            return Vec::new();
        }
        self.keep_finding(finding);
        let Some(rule) = rules.rule(&finding.rule) else {
            let reason = format!("unknown rule {}", finding.rule);
            return vec![Effect::Alert(finding.component.clone(), reason)];
        };
        if finding.severity == Severity::Healthy {
            return self.over(rule, finding, place);
        }
        let policy = finding.code.and_then(|code| rules.codes.xid(code));
        match (&finding.component, policy) {
            (Component::Gpu(_), Some(policy)) if rule.id == "xid" => {
                self.ingest_xid(rules, rule, policy, finding, place)
            }
            _ => self.ingest_reading(rule, false, finding, place),
        }
    }

    /// Stores a finding in place of the oldest one, but never of one that must be judged again at the end of
    /// an incident.
    fn keep_finding(&mut self, finding: &Finding) {
        let opened = self.incidents.open().map(began).min();
        while self.findings.len() >= FINDINGS_KEPT_MAX {
            let is_waiting = |oldest: &Finding| opened.is_some_and(|at| oldest.at >= at);
            let has_room = self.findings.len() < FINDINGS_IN_INCIDENTS_MAX;
            if has_room && self.findings.oldest().is_some_and(is_waiting) {
                break;
            }
            self.findings.drop_oldest();
        }
        self.findings.push(finding.clone());
    }

    /// Findings about hosts of an ended incident that would take them out of placement if they still hold:
    /// for each rule and component the newest, oldest first.
    #[must_use]
    pub fn deferred_findings(&self, rules: &RuleSet, incident: &Incident) -> Vec<Finding> {
        let began = began(incident);
        let is_its = |finding: &&Finding| match &finding.component {
            Component::Host(host) | Component::Nic { host, .. } => {
                finding.at >= began && incident.hosts.contains(host)
            }
            Component::Gpu(_) | Component::Rack(_) => false,
        };
        let mut newest: Vec<&Finding> = Vec::new();
        for finding in self.findings().filter(is_its) {
            newest.retain(|it| (&it.rule, &it.component) != (&finding.rule, &finding.component));
            newest.push(finding);
        }
        // Where its rule only restricts placement while it lasts, nothing more is needed: storage recovers
        // for many hosts at once.
        let is_restricted = |finding: &Finding| {
            let condition = self.condition(&finding.component);
            let mut holds = condition.iter().flat_map(|condition| &condition.holds);
            holds.any(|held| held.rule == finding.rule && held.what == Hold::Everything)
        };
        let blocks = |finding: &&Finding| {
            let rule = rules.rule(&finding.rule);
            let may = rule.is_some_and(|rule| rule.block(finding.severity) != Scope::None);
            may && !is_restricted(finding)
        };
        newest.into_iter().filter(blocks).cloned().collect()
    }

    /// Applies the findings that waited for the end of an incident.
    pub fn ingest_deferred(
        &mut self,
        rules: &RuleSet,
        finding: &Finding,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let Some(rule) = rules.rule(&finding.rule) else {
            return Vec::new();
        };
        self.ingest_reading(rule, true, finding, place)
    }

    /// Applies the placement restriction that a rule sets while it holds.
    fn hold(
        &mut self,
        side: Option<&Side>,
        finding: &Finding,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let Some(what) = side.and_then(Side::restriction) else {
            // A finding does not keep the restriction of a worse one.
            let known = self.conditions.get_mut(&finding.component);
            let was_held = known.is_some_and(|condition| condition.lift_restriction(&finding.rule));
            let held = was_held.then(|| Effect::Held(finding.component.clone()));
            return held.into_iter().collect();
        };
        if finding.rule == CLOCK_SKEW && self.doubts_the_leaders_clock(place) {
            return self.lift_clock_restrictions(&finding.component);
        }
        let restarts = side.is_some_and(|it| it.actions.contains(&Action::RestartService));
        let held = Restriction {
            rule: finding.rule.clone(),
            what,
            evidence: finding.evidence.clone(),
            since: finding.at,
            restart: restarts.then_some(Restart::Waits),
        };
        let mut effects = Vec::new();
        effects.extend(self.restrict(&finding.component, held));
        if restarts {
            effects.extend(self.order_restarts(finding.at));
        }
        effects
    }

    /// The rules were replaced: removed rules, and those that only observe from now on, lift their
    /// restrictions and suspicions.
    pub fn apply_new_rules(&mut self, rules: &RuleSet, now: TimeMs) -> Vec<Effect> {
        let is_in_force = |rule: &str| {
            let rule = rules.rule(rule);
            rule.is_some_and(|rule| rule.mode == Mode::Enforce)
        };
        let is_idle = |rule: &String| !is_in_force(rule);
        let all = self.of_racks.iter();
        self.of_racks = all.filter(|(rule, _)| is_in_force(rule)).cloned().collect();
        let mut effects = Vec::new();
        let known: Vec<Component> = self.conditions.keys().cloned().collect();
        for component in known {
            let Some(condition) = self.conditions.get(&component) else {
                continue;
            };
            let lets_go = condition.holds.iter().any(|held| is_idle(&held.rule));
            let suspecting = condition.suspected.iter().map(|it| it.rule.clone());
            let idle: Vec<String> = suspecting.filter(is_idle).collect();
            if lets_go && let Some(condition) = self.conditions.get_mut(&component) {
                condition.holds.retain(|held| is_in_force(&held.rule));
            }
            self.drop_pending(&component, |it| {
                it.event == Event::Suspect && is_idle(&it.rule)
            });
            for rule in idle {
                let why = "the rule is no longer in force";
                effects.extend(self.end_suspicion(&component, rule, why, now));
            }
            effects.extend(lets_go.then_some(Effect::Held(component)));
        }
        effects
    }

    /// Withdraws a rule's suspicion; returns whether another rule still suspects the component.
    fn withdraw_suspicion(&mut self, component: &Component, rule: &str) -> bool {
        let condition = self.conditions.get_mut(component);
        condition.is_some_and(|condition| condition.withdraw_suspicion(rule))
    }

    /// Withdraws a rule's suspicion: the component is healthy again, unless another rule suspects it.
    fn end_suspicion(
        &mut self,
        component: &Component,
        rule: String,
        why: &str,
        now: TimeMs,
    ) -> Vec<Effect> {
        let was_suspect = self.phase(component) == Phase::Suspect;
        let is_still_suspected = self.withdraw_suspicion(component, &rule);
        if !was_suspect || is_still_suspected {
            return Vec::new();
        }
        let change = Change {
            event: Event::Clear,
            actor: Actor::Rule(rule.clone()),
            rule,
            evidence: why.to_owned(),
            at: now,
            is_strike: false,
            expires_at: None,
            by_hand: false,
        };
        self.change(component, change)
    }

    /// The finding of a rule is over: its restriction and suspicion end, and a block whose rule asks for no
    /// more proceeds to its check.
    fn over(&mut self, rule: &Rule, finding: &Finding, place: &Circumstances<'_>) -> Vec<Effect> {
        let held = self.conditions.get_mut(&finding.component);
        let was_held = held.is_some_and(|condition| condition.lift_restriction(&finding.rule));
        let mut effects = self.end_accusations(rule, finding, place);
        if was_held {
            effects.push(Effect::Held(finding.component.clone()));
            effects.extend(self.order_restarts(finding.at));
        }
        effects
    }

    /// Drops a pending accusation of a component that is over, and the action wanted for it.
    fn drop_pending(&mut self, component: &Component, is_over: impl FnOnce(&Change) -> bool) {
        let condition = self.conditions.get_mut(component);
        let dropped = condition.and_then(|it| it.pending.take_if(|pending| is_over(pending)));
        if dropped.is_some() {
            self.wanted.remove(component);
        }
    }

    /// Ends what a rule holds against a component, or its host: first the pending accusations that are kept
    /// until an admin's block is over, then the rule's suspicion, then the accusation that put the component
    /// into its phase, if it is the rule's and no other rule suspects the component.
    fn end_accusations(
        &mut self,
        rule: &Rule,
        finding: &Finding,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        // A rule about a GPU may have blocked its host.
        let components = [finding.component.clone(), Component::Host(place.host)];
        for component in &components {
            let ends_drains = rule.clears == Clears::Reading;
            self.drop_pending(component, |it| match it.event {
                Event::Suspect => it.rule == finding.rule,
                Event::Drain => it.rule == finding.rule && ends_drains,
                // A block for it ends only by proof.
                _ => false,
            });
        }
        let is_accused = |component: &&Component| {
            let condition = self.conditions.get(*component);
            let accusation = condition.and_then(Condition::accusation);
            accusation.is_some_and(|accusation| accusation.rule == finding.rule)
        };
        let Some(component) = components.iter().find(is_accused) else {
            // Another rule's accusation stands; only the suspicion beside it ends.
            for component in &components {
                self.withdraw_suspicion(component, &finding.rule);
            }
            return Vec::new();
        };
        if self.withdraw_suspicion(component, &finding.rule) {
            return Vec::new();
        }
        self.clear(rule, finding, component, place)
    }

    /// Clears a component of its accusation, as far as the rule and its phase permit without proof.
    fn clear(
        &mut self,
        rule: &Rule,
        finding: &Finding,
        component: &Component,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let phase = self.phase(component);
        let may_clear = rule.clears == Clears::Reading || phase.accepts_work();
        if !may_clear || !self.has(component, Event::Clear) {
            return Vec::new();
        }
        let is_idle = match component {
            Component::Host(_) => place.is_host_idle,
            _ => place.is_idle,
        };
        if phase == Phase::Blocked && !is_idle {
            // Its check waits for its time, and until nothing runs there; a fault that is over needs no
            // repair.
            if self.wants_repair(component) {
                self.wanted.remove(component);
            }
            return Vec::new();
        }
        let proposed = proposed_action(rule, finding, Scope::None);
        self.change(component, proposed.change(Event::Clear, false))
    }

    /// Applies a reading; `has_waited` is true if it waited for the end of an incident.
    fn ingest_reading(
        &mut self,
        rule: &Rule,
        has_waited: bool,
        finding: &Finding,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let side = rule.side(finding.severity);
        let actions = side.map_or(&[][..], |side| &side.actions);
        let scope = rule.block(finding.severity);
        let proposed = ProposedAction {
            kills: actions.contains(&Action::Kill),
            device: side.map_or(DeviceAction::None, Side::device),
            has_waited,
            ..proposed_action(rule, finding, scope)
        };
        let mut effects = self.propose(&proposed, place);
        if scope == Scope::None && rule.mode == Mode::Enforce {
            if finding.severity >= Severity::Degraded {
                effects.extend(self.suspect(&proposed, &finding.component));
            }
            // A restriction of a rack applies to all its hosts, once enough of them report it.
            if rule.component != ComponentKind::Rack {
                effects.extend(self.hold(side, finding, place));
            }
            if actions.contains(&Action::Check) {
                effects.push(Effect::CheckIdle(finding.component.clone()));
            }
        }
        if rule.mode == Mode::Enforce && actions.contains(&Action::DoubtResults) {
            let evidence = finding.evidence.clone();
            effects.push(Effect::Doubted(finding.component.clone(), evidence));
        }
        if actions.contains(&Action::Alert) {
            let reason = with_detail(&rule.id, &finding.evidence);
            effects.push(Effect::Alert(finding.component.clone(), reason));
        }
        effects
    }

    fn ingest_xid(
        &mut self,
        rules: &RuleSet,
        rule: &Rule,
        policy: &XidPolicy,
        finding: &Finding,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        let Component::Gpu(gpu) = finding.component else {
            return Vec::new();
        };
        let seen = XidReport {
            gpu,
            code: policy.code,
            cluster: finding.cluster,
            job: place.job,
            user: place.user.map(str::to_owned),
            at: finding.at,
            is_ours: place.is_ours,
        };
        let outcome = Arc::make_mut(&mut self.xids).record(rules, &seen);
        if outcome.is_folded {
            return Vec::new();
        }
        if outcome.is_jobs_own {
            return self.take_back_xid(policy.code, &outcome.taken_back, finding.at);
        }
        if !matches!(policy.blame, Blame::User | Blame::Nothing) {
            self.record(place.host).code(finding.at, policy.code);
        }
        let mut worst = by_policy(rule, policy, finding);
        let mut effects = Vec::new();
        for escalation in &outcome.escalations {
            let by = rules.rule(escalation.rule).unwrap_or(rule);
            if by.mode == Mode::Observe {
                continue;
            }
            if !escalation.blocks {
                let asks = ProposedAction {
                    rule: &by.id,
                    evidence: &escalation.evidence,
                    ..proposed_action(by, finding, Scope::None)
                };
                effects.extend(self.check_when_idle(&asks, &finding.component));
                continue;
            }
            let repeated = escalate(&worst, by, escalation);
            if escalation.then == DeviceAction::Rma {
                // The GPU is returned; the action that its last fault requires of the host is done as well.
                effects.extend(self.propose(&repeated, place));
            } else {
                worst = repeated;
            }
        }
        effects.extend(self.propose(&worst, place));
        effects
    }

    /// An XID was caused by its job: GPUs suspected for it are cleared.
    fn take_back_xid(&mut self, code: u32, gpus: &[GpuUuid], now: TimeMs) -> Vec<Effect> {
        let words = repeated_words(code);
        let mut effects = Vec::new();
        for gpu in gpus.iter().copied().map(Component::Gpu) {
            let condition = self.conditions.get(&gpu);
            let suspected = condition.into_iter().flat_map(|it| &it.suspected);
            let is_its = |it: &&Suspected| it.evidence.starts_with(&words);
            let of_code = suspected.filter(is_its);
            let rules: Vec<String> = of_code.map(|it| it.rule.clone()).collect();
            for rule in rules {
                let why = "its job has it on other GPUs too";
                effects.extend(self.end_suspicion(&gpu, rule, why, now));
            }
        }
        effects
    }
}

/// Time from which findings about its hosts are part of an incident.
const fn began(incident: &Incident) -> TimeMs {
    TimeMs(incident.since.0.saturating_sub(MINUTE_MS))
}

/// Action required by repetition beyond that of the single XID.
fn escalate<'a>(
    single: &ProposedAction<'a>,
    by: &'a Rule,
    escalation: &'a Escalation,
) -> ProposedAction<'a> {
    let is_gpus = escalation.rule != "xid";
    let scope = match escalation.then {
        DeviceAction::Rma => {
            return ProposedAction {
                rule: &by.id,
                scope: Scope::Gpu,
                device: DeviceAction::Rma,
                evidence: &escalation.evidence,
                by_hand: true,
                ..single.clone()
            };
        }
        _ if is_gpus => by.block(Severity::Fatal),
        DeviceAction::Inspect => Scope::Host,
        DeviceAction::Reboot => Scope::HostAtTaskEnd,
        _ => Scope::Gpu,
    };
    ProposedAction {
        rule: &by.id,
        scope: single.scope.max(scope),
        // An action based only on history needs room in every budget.
        weight: if single.scope == Scope::None {
            SOFT
        } else {
            single.weight
        },
        device: escalation.then.max(single.device),
        evidence: &escalation.evidence,
        by_hand: single.by_hand || by.clears == Clears::Manual,
        ..single.clone()
    }
}

/// The action required by a finding's rule, without stops and repairs.
fn proposed_action<'a>(rule: &'a Rule, finding: &'a Finding, scope: Scope) -> ProposedAction<'a> {
    ProposedAction {
        rule: &finding.rule,
        component: &finding.component,
        scope,
        weight: rule.weight,
        kills: false,
        device: DeviceAction::None,
        evidence: &finding.evidence,
        users: None,
        by_hand: rule.clears == Clears::Manual,
        has_waited: false,
        at: finding.at,
    }
}

/// The action required by a single XID. If its registers decide, the worker has decoded them into the
/// severity; an XID decided by its text is judged by the rules for NVML's recovery action, except from older
/// workers.
fn by_policy<'a>(rule: &'a Rule, policy: &XidPolicy, finding: &'a Finding) -> ProposedAction<'a> {
    let by_rule = rule.block(finding.severity);
    let severity_decides = matches!(policy.severity, XidSeverity::Decode | XidSeverity::Text);
    let scope = match by_rule {
        Scope::None => Scope::None,
        _ if severity_decides => by_rule,
        _ => policy.block,
    };
    let is_fatal = finding.severity == Severity::Fatal;
    ProposedAction {
        kills: scope != Scope::None
            && (policy.task == TaskAction::Kill || severity_decides && is_fatal),
        device: match (severity_decides, is_fatal) {
            (true, true) => DeviceAction::Reset,
            (true, false) => DeviceAction::ResetIdle,
            (false, _) => policy.device,
        },
        by_hand: policy.by_hand,
        ..proposed_action(rule, finding, scope)
    }
}

/// Weight of evidence from history alone.
pub(super) const SOFT: Weight = Weight::Soft;
