//! Health commands: findings, repairs, checks and rules.
//!
//! The decisions are made by the health state (`health::state`); this module supplies the facts about the
//! place and applies the effects.

mod doubtful_results;
mod effects;
mod evacuate;
mod place;

pub use effects::limits_of;
pub(in crate::apply) use place::Place;
use place::groups_of;
pub use place::is_idle_component;

use std::sync::Arc;

use muster_health::rules::RuleSet;
use muster_health::state::{Effect, Rack};
use muster_model::command::HealthCommand;
use muster_model::event::HealthNote;
use muster_model::health::{
    Component, ComponentKind, DeviceAction, EVIDENCE_BYTES_MAX, FINDINGS_PER_REPORT_MAX, Finding,
    WorkStep,
};
use muster_model::host::Host;
use muster_model::ids::{HostId, RequestKey};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

use crate::apply::{Step, invalid, require_length};
use crate::state::{Answer, Attempt, HealthRules, Pools};

impl Step<'_> {
    pub(in crate::apply) fn health(
        &mut self,
        command: &HealthCommand,
    ) -> Result<Answer, Rejection> {
        match command {
            HealthCommand::Report {
                host,
                incarnation,
                findings,
                ..
            } => self.apply_findings(*host, *incarnation, findings),
            HealthCommand::Work {
                component,
                step,
                since,
                evidence,
                ..
            } => self.health_work(component, *step, *since, evidence),
            HealthCommand::Tick { .. } => {
                let effects = self.state.health.tick(self.state.time);
                self.apply_effects(effects);
                Ok(Answer::Done)
            }
            HealthCommand::DrainLemon { host, .. } => self.drain_lemon(*host),
            HealthCommand::Restarted {
                host,
                rule,
                since,
                worked,
                evidence,
                ..
            } => self.restarted(*host, rule, *since, *worked, evidence),
            HealthCommand::SetRules {
                request,
                author,
                text,
                shipped,
            } => self.set_health_rules(*request, author, text, *shipped),
            HealthCommand::ShipRules { version, text, .. } => self.ship_rules(*version, text),
            HealthCommand::ResetBreaker {
                request,
                author,
                pool,
            } => self.reset_breaker(*request, author, pool),
        }
    }

    fn apply_findings(
        &mut self,
        id: HostId,
        incarnation: u64,
        findings: &[Finding],
    ) -> Result<Answer, Rejection> {
        let host = self
            .state
            .host(id)
            .ok_or_else(|| Rejection::UnknownHost(id.to_string()))?;
        if incarnation != host.incarnation {
            return Err(Rejection::StaleIncarnation {
                name: host.name.to_string(),
                given: incarnation,
                current: host.incarnation,
            });
        }
        check_findings(findings)?;
        let rules = Arc::clone(&self.state.health_rules.set);
        let (of_others, own): (Vec<&Finding>, Vec<&Finding>) =
            findings.iter().partition(|it| !is_its_own(host, it));
        self.refuse(id, incarnation, &of_others);
        for finding in own {
            let finding = Finding {
                at: self.state.time,
                evidence: evidence_of(finding),
                ..finding.clone()
            };
            let place = self.place_of(id, &finding.component);
            let acknowledged_up_to = self.state.health.acknowledged(id, incarnation);
            self.report_to_health(&place, |health, place| {
                health.ingest(&rules, incarnation, &finding, place)
            });
            if finding.sequence > acknowledged_up_to {
                self.aggregate_over_rack(&rules, id, &finding);
            }
        }
        let newest = findings.iter().map(|it| it.sequence).max();
        self.state
            .health
            .mark_applied(id, incarnation, newest.unwrap_or_default());
        // Received findings are acknowledged with the desired state.
        self.touch_desired(id);
        Ok(Answer::Done)
    }

    /// Aggregates a host's finding over its rack: no worker knows the other hosts there.
    fn aggregate_over_rack(&mut self, rules: &RuleSet, id: HostId, finding: &Finding) {
        let is_hosts = matches!(finding.component, Component::Host(_));
        let rule = rules.rule(&finding.rule);
        let rule = rule.filter(|rule| is_hosts && rule.component == ComponentKind::Rack);
        let host = self.state.host(id);
        let rack = host.and_then(|host| Some((host, self.state.rack_of(host)?.clone())));
        let (Some(rule), Some((host, name))) = (rule, rack) else {
            return;
        };
        let hosts: Vec<HostId> = self.state.hosts_in_rack_of(host).collect();
        let rack = Rack {
            name: &name,
            hosts: &hosts,
        };
        let effects = self.state.health.aggregate_rack(rule, id, finding, rack);
        self.apply_effects(effects);
    }

    /// Refuses findings about components of other hosts, such as a GPU that was moved away. They are
    /// acknowledged, so that later findings are accepted.
    fn refuse(&mut self, host: HostId, incarnation: u64, findings: &[&Finding]) {
        let acknowledged_up_to = self.state.health.acknowledged(host, incarnation);
        for finding in findings
            .iter()
            .filter(|it| it.sequence > acknowledged_up_to)
        {
            let component = &finding.component;
            let detail = format!(
                "rule {} found {component}, which is not a component of it",
                finding.rule
            );
            self.emit_component_note(HealthNote::Refused, &Component::Host(host), detail);
        }
    }

    fn health_work(
        &mut self,
        component: &Component,
        step: WorkStep,
        since: TimeMs,
        evidence: &str,
    ) -> Result<Answer, Rejection> {
        require_length(
            "evidence",
            evidence,
            "EVIDENCE_BYTES_MAX",
            EVIDENCE_BYTES_MAX,
        )?;
        let host = self
            .host_of(component)
            .ok_or_else(|| Rejection::UnknownComponent(component.to_string()))?;
        let is_meant = self
            .state
            .health
            .condition(component)
            .is_some_and(|it| it.since == since);
        if !is_meant {
            return Err(Rejection::HealthWork {
                component: component.to_string(),
                why: "it concerns a condition that was already over".to_owned(),
            });
        }
        let begins = step == WorkStep::Began;
        if begins && !self.is_idle_component(host, component) {
            return Err(Rejection::HealthWork {
                component: component.to_string(),
                why: "something runs there".to_owned(),
            });
        }
        let place = self.place_of(host, component);
        if begins && self.state.health.wants_repair(component) {
            let admitted = self.state.health.rails().admit_repair(&place.view);
            admitted.map_err(|refused| Rejection::HealthWork {
                component: component.to_string(),
                why: refused.to_string(),
            })?;
        }
        let now = self.state.time;
        let effects = self.state.health.step(component, step, evidence, now);
        let effects = effects.map_err(|refused| Rejection::HealthWork {
            component: component.to_string(),
            why: refused.to_string(),
        })?;
        let refusal = effects.iter().find_map(|effect| match effect {
            Effect::Refused(_, refusal) => Some(refusal),
            _ => None,
        });
        if let Some(refusal) = refusal {
            return Err(Rejection::HealthWork {
                component: component.to_string(),
                why: refusal.to_string(),
            });
        }
        self.apply_effects(effects);
        self.touch_desired(host);
        Ok(Answer::Done)
    }

    /// Records that a worker restarted services, or failed to. A hold remains until the worker reports
    /// recovery.
    fn restarted(
        &mut self,
        host: HostId,
        rule: &str,
        since: TimeMs,
        worked: bool,
        evidence: &str,
    ) -> Result<Answer, Rejection> {
        let limit = EVIDENCE_BYTES_MAX;
        require_length("evidence", evidence, "EVIDENCE_BYTES_MAX", limit)?;
        let now = self.state.time;
        let effects = self.state.health.restarted(host, rule, since, now);
        let component = Component::Host(host);
        let effects = effects.ok_or_else(|| Rejection::HealthWork {
            component: component.to_string(),
            why: format!("no restart of services was ordered by rule {rule}"),
        })?;
        let (note, end) = if worked {
            (HealthNote::Repair, "were restarted")
        } else {
            (HealthNote::Alert, "could not be restarted")
        };
        let detail = format!("the services of rule {rule} {end}: {evidence}");
        self.emit_component_note(note, &component, detail);
        self.apply_effects(effects);
        self.touch_desired(host);
        Ok(Answer::Done)
    }

    fn drain_lemon(&mut self, host: HostId) -> Result<Answer, Rejection> {
        if self.state.host(host).is_none() {
            return Err(Rejection::UnknownHost(host.to_string()));
        }
        let place = self.place_of(host, &Component::Host(host));
        let (rules, now) = (Arc::clone(&self.state.health_rules.set), self.state.time);
        let excludes = self.state.excludes();
        self.report_to_health(&place, |health, place| {
            health.drain_lemon(&rules, host, place, &excludes, now)
        });
        Ok(Answer::Done)
    }

    fn set_health_rules(
        &mut self,
        request: RequestKey,
        author: &str,
        text: &Arc<str>,
        shipped: Option<u32>,
    ) -> Result<Answer, Rejection> {
        check_author(author)?;
        self.once(request, |step| step.replace_rules(author, text, shipped))
    }

    /// Installs the rules shipped with the leader's build, unless an operator wrote other rules or newer ones
    /// are installed.
    fn ship_rules(&mut self, version: u32, text: &Arc<str>) -> Result<Answer, Rejection> {
        if self.state.health_rules.is_replaced_by(version) {
            return self.replace_rules("muster", text, Some(version));
        }
        Ok(Answer::Done)
    }

    fn replace_rules(
        &mut self,
        author: &str,
        text: &Arc<str>,
        shipped: Option<u32>,
    ) -> Result<Answer, Rejection> {
        let limit = limits::CONFIGURATION_BYTES_MAX;
        require_length("rules", text, "CONFIGURATION_BYTES_MAX", limit)?;
        let read = HealthRules::read(self.state.revision, text, shipped);
        let rules = read.map_err(|error| invalid("rules", error.to_string()))?;
        let count = rules.set.rules.len();
        self.state.health.adopt_rules(&rules.set);
        let freed = self
            .state
            .health
            .apply_new_rules(&rules.set, self.state.time);
        self.state.health_rules = rules;
        // The rules may have changed in confidence.
        self.state.index.pools = Pools::of(self.state);
        let hosts: Vec<HostId> = self.state.hosts.keys().copied().collect();
        for host in hosts {
            self.touch_desired(host);
        }
        let detail = match shipped {
            Some(version) => {
                format!("{author} set {count} rules, version {version} of those that ship")
            }
            None => format!("{author} set {count} rules"),
        };
        self.emit_health_note(HealthNote::Rules, "health rules".to_owned(), detail);
        self.apply_effects(freed);
        Ok(Answer::Done)
    }

    fn reset_breaker(
        &mut self,
        request: RequestKey,
        author: &str,
        pool: &str,
    ) -> Result<Answer, Rejection> {
        check_author(author)?;
        self.once(request, |step| {
            if !step.state.health.reset_breaker(pool) {
                return Err(Rejection::BreakerWhole(pool.to_owned()));
            }
            let detail = format!("{author} reset the breaker");
            step.emit_health_note(HealthNote::Breaker, format!("pool {pool}"), detail);
            Ok(Answer::Done)
        })
    }

    /// Records a successful attempt: after a first strike, it proves its components healthy.
    pub(in crate::apply) fn note_success(&mut self, attempt: &Attempt) {
        if !self.state.health.has_conditions() {
            return;
        }
        let now = self.state.time;
        for run in &attempt.tasks {
            let gpus = run.gpus.iter().map(|gpu| Component::Gpu(*gpu));
            for component in gpus.chain([Component::Host(run.host)]) {
                let effects = self.state.health.succeeded(&component, now);
                self.apply_effects(effects);
            }
        }
    }

    /// Records that a host became unreachable: together with many others it is an incident; a flapping host
    /// gets no gangs for a while.
    pub(in crate::apply) fn note_silence(&mut self, id: HostId) {
        if !self.state.has_defaults() {
            return;
        }
        let Some(host) = self.state.host(id) else {
            return;
        };
        let groups = groups_of(self.state, host);
        let (rules, now) = (Arc::clone(&self.state.health_rules.set), self.state.time);
        let health = &mut self.state.health;
        let effects = health.fell_silent(&rules, id, &groups, now);
        self.apply_effects(effects);
    }

    /// Records that a host has booted, which completes pending reboots.
    pub(in crate::apply) fn note_reboot(&mut self, id: HostId) {
        let gpus = self.state.host(id).map(|host| host.gpus.clone());
        let gpus = gpus.into_iter().flatten().map(|gpu| gpu.uuid);
        let now = self.state.time;
        let effects = self.state.health.rebooted(id, gpus, now);
        self.apply_effects(effects);
    }

    /// Records that resources of a host were released: repairs that waited for that may start.
    pub(in crate::apply) fn note_release(&mut self, id: HostId) {
        if !self.state.health.has_conditions() {
            return;
        }
        let gpus = self.state.host(id).map(|host| host.gpus.clone());
        let gpus = gpus.into_iter().flatten();
        let places = gpus.map(|gpu| Component::Gpu(gpu.uuid));
        for component in places.chain([Component::Host(id)]) {
            if self.is_idle_component(id, &component) {
                let now = self.state.time;
                let effects = self.state.health.drained(&component, now);
                self.apply_effects(effects);
            }
        }
    }
}

fn check_author(author: &str) -> Result<(), Rejection> {
    if author.is_empty() {
        return Err(invalid("author", "must not be empty".to_owned()));
    }
    require_length("author", author, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)
}

/// Whether a finding is about the reporting host or a part of it.
fn is_its_own(host: &Host, finding: &Finding) -> bool {
    match &finding.component {
        Component::Gpu(uuid) => host.gpus.iter().any(|gpu| gpu.uuid == *uuid),
        Component::Nic { host: of, name } => *of == host.id && !name.is_empty(),
        Component::Host(of) => *of == host.id,
        Component::Rack(_) => false,
    }
}

/// Returns the evidence of a finding: its log line, or else the measured value.
fn evidence_of(finding: &Finding) -> String {
    if finding.evidence.is_empty() {
        format!("{} is {}", finding.metric, finding.measured)
    } else {
        finding.evidence.clone()
    }
}

/// Checks a worker's findings against the limits.
fn check_findings(findings: &[Finding]) -> Result<(), Rejection> {
    if findings.len() > FINDINGS_PER_REPORT_MAX {
        let given = findings.len();
        let limit = FINDINGS_PER_REPORT_MAX;
        return Err(invalid(
            "findings",
            format!("{given} entries are over the limit of {limit} (FINDINGS_PER_REPORT_MAX)"),
        ));
    }
    for finding in findings {
        for (field, text) in [("rule", &finding.rule), ("metric", &finding.metric)] {
            require_length(field, text, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)?;
        }
        let (text, limit) = (&finding.evidence, EVIDENCE_BYTES_MAX);
        require_length("evidence", text, "EVIDENCE_BYTES_MAX", limit)?;
    }
    Ok(())
}

/// Returns the display name of an action.
const fn action_text(action: DeviceAction) -> &'static str {
    match action {
        DeviceAction::Reset | DeviceAction::ResetIdle => "a reset",
        DeviceAction::Reboot => "a reboot",
        DeviceAction::RestartService => "a restart of its services",
        DeviceAction::Check => "an active check",
        DeviceAction::Inspect => "a manual inspection",
        DeviceAction::Rma => "a replacement",
        DeviceAction::None | DeviceAction::Decode | DeviceAction::Text => "nothing",
    }
}
