//! Effects of attempts' ends on the records of hosts and GPUs, and lemon detection.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::health::{Charge, Class, Component, DeviceAction, Measure, Scope, Severity};
use muster_model::ids::HostId;
use muster_model::time::{DAY_MS, HOUR_MS, TimeMs};

use crate::attribution::{AttributionOutcome, Suspicion};
use crate::component::{Change, Event};
use crate::lemons::{self, Counts, Fleet, HostRecord};
use crate::rules::{HISTORY, LEMON, Mode, RuleSet};
use crate::state::ingest::SOFT;
use crate::state::propose::ProposedAction;
use crate::state::{Circumstances, Effect, FailedEnd, HealthState};

/// Number of users with live jobs that exclude a host.
pub type Excludes = BTreeMap<HostId, u32>;

impl HealthState {
    /// A task started on a host.
    pub fn started(&mut self, host: HostId, now: TimeMs) {
        self.record(host).start(now);
    }

    /// Applies an attributed end; `place` is that of the attributed component.
    pub fn ended(
        &mut self,
        rules: &RuleSet,
        found: &AttributionOutcome,
        end: &FailedEnd,
        place: &Circumstances<'_>,
    ) -> Vec<Effect> {
        self.count(found, end);
        let attribution = &found.attribution;
        let component = attribution.component.as_ref();
        let users = component.map_or(1, |it| self.users_on(it, end));
        if found.takes_back {
            self.drop_ends(end.job);
        } else if attribution.is_open() {
            self.keep_end(end);
        }
        let Some(component) = component else {
            return Vec::new();
        };
        let evidence = attribution.evidence.join("; ");
        let rule = rules.rule(HISTORY);
        let proposed = ProposedAction {
            rule: HISTORY,
            component,
            scope: match component {
                Component::Gpu(_) => rule.map_or(Scope::Gpu, |it| it.fatal.block),
                _ => Scope::Host,
            },
            weight: SOFT,
            kills: false,
            device: rule.map_or(DeviceAction::Check, |it| it.fatal.device()),
            evidence: &evidence,
            users: Some(users),
            by_hand: false,
            has_waited: false,
            at: end.at,
        };
        let blocks = attribution.measures.contains(&Measure::BlockForCheck);
        if blocks && is_enforced(rules, HISTORY) {
            return self.propose(&proposed, place);
        }
        if blocks || attribution.measures.contains(&Measure::CheckIdle) {
            return self.check_when_idle(&proposed, component);
        }
        Vec::new()
    }

    /// Marks a component as suspect, to be checked once nothing runs there, unless it was checked recently.
    pub(super) fn check_when_idle(
        &mut self,
        proposed: &ProposedAction<'_>,
        component: &Component,
    ) -> Vec<Effect> {
        if self.has_passed_lately(component, proposed.at) {
            return Vec::new();
        }
        let mut effects = self.suspect(proposed, component);
        effects.push(Effect::CheckIdle(component.clone()));
        effects
    }

    /// Whether a component has passed its check within a day: a user who debugs a job does not cause repeated
    /// checks.
    fn has_passed_lately(&self, component: &Component, now: TimeMs) -> bool {
        let passed =
            |change: &Change| change.event == Event::CheckPassed && now.since(change.at) <= DAY_MS;
        let condition = self.conditions.get(component);
        condition.is_some_and(|condition| condition.history.iter().any(passed))
    }

    /// Counts an end in the records of its hosts.
    fn count(&mut self, found: &AttributionOutcome, end: &FailedEnd) {
        let attribution = &found.attribution;
        // A segmentation fault is attributed to the program as long as nothing else is known: a host that
        // breaks programs causes them too.
        let is_others = match attribution.class {
            Class::User => !attribution.is_open(),
            Class::Scheduler | Class::Software | Class::Site => true,
            Class::Gpu | Class::Host | Class::Nic | Class::Storage | Class::Unknown => false,
        };
        // A failure of many hosts at once is not held against any of them.
        let is_alone = |host: &HostId| self.incidents.of(*host, end.at).is_none();
        if let ([host], false) = (&end.hosts[..], is_others)
            && is_alone(host)
        {
            let is_infra = attribution.charge == Charge::Infra;
            self.record(*host).fail(end.at, is_infra);
        }
        if found.takes_back {
            for host in self.failed_alone_on(end.job) {
                self.record(host).take_back(end.at);
            }
        }
        self.suspect_hosts(&found.suspicions, end.at);
    }

    /// Adds suspicions to hosts.
    pub fn suspect_hosts(&mut self, suspicions: &[Suspicion], now: TimeMs) {
        for suspicion in suspicions {
            if let Component::Host(host) = suspicion.component
                && self.incidents.of(host, now).is_none()
            {
                self.record(host).share(now, suspicion.milli);
            }
        }
    }

    /// The record of a host, created if missing.
    pub(super) fn record(&mut self, host: HostId) -> &mut HostRecord {
        Arc::make_mut(self.records.entry(host).or_default())
    }

    /// Hosts that stand out by their records, the worst first; the leader proposes to drain them. Exclusion
    /// by users contributes, but is never sufficient.
    #[must_use]
    pub fn lemons(
        &self,
        rules: &RuleSet,
        now: TimeMs,
        excludes: &Excludes,
    ) -> Vec<(HostId, lemons::Score)> {
        let counts: Vec<(HostId, Counts)> = self
            .records
            .iter()
            .map(|(host, record)| {
                let users = excludes.get(host).copied().unwrap_or_default();
                (*host, record.counts(now, users))
            })
            .collect();
        let fleet = Fleet::of(counts.iter().map(|(_, counts)| counts));
        let scored = counts
            .iter()
            .map(|(host, counts)| (*host, lemons::score(counts, fleet)));
        let least = rules.lemon_milli();
        let mut found: Vec<(HostId, lemons::Score)> =
            scored.filter(|(_, score)| score.is_lemon(least)).collect();
        found.sort_by_key(|(host, score)| (std::cmp::Reverse(score.milli), *host));
        found
    }

    /// Whether a host was found to be a lemon but may not be drained yet: the guard rails refused it less
    /// than an hour ago.
    #[must_use]
    pub fn is_refused_lemon(&self, host: HostId, now: TimeMs) -> bool {
        let condition = self.conditions.get(&Component::Host(host));
        let mut suspected = condition.into_iter().flat_map(|it| &it.suspected);
        suspected.any(|it| it.rule == LEMON && now.since(it.at) < HOUR_MS)
    }

    /// Drains a host that is still a lemon, for a check. Its record is reset: the check answers what happened
    /// before, which remains as a strike. If the guard rails refuse, it is proposed again an hour later.
    pub fn drain_lemon(
        &mut self,
        rules: &RuleSet,
        host: HostId,
        place: &Circumstances<'_>,
        excludes: &Excludes,
        now: TimeMs,
    ) -> Vec<Effect> {
        let lemons = self.lemons(rules, now, excludes);
        let Some((_, score)) = lemons.iter().find(|(of, _)| *of == host) else {
            return Vec::new();
        };
        let features: Vec<String> = score
            .features
            .iter()
            .map(|(feature, milli)| {
                let (whole, rest) = (milli / 1_000, milli % 1_000 / 100);
                format!("{feature} {whole}.{rest}")
            })
            .collect();
        let evidence = features.join(", ");
        let record = self.records.remove(&host);
        let component = Component::Host(host);
        let by = rules
            .rule(LEMON)
            .filter(|it| it.block(Severity::Fatal) != Scope::None);
        let Some(by) = by else {
            let reason = format!("it fails more often than others: {evidence}");
            return vec![Effect::Alert(component, reason)];
        };
        let proposed = ProposedAction {
            rule: LEMON,
            component: &component,
            scope: by.fatal.block,
            weight: SOFT,
            kills: false,
            device: by.fatal.device(),
            evidence: &evidence,
            users: None,
            by_hand: false,
            has_waited: false,
            at: now,
        };
        let effects = self.propose(&proposed, place);
        let is_refused = |effect: &Effect| matches!(effect, Effect::Railed(..));
        if let Some(record) = record.filter(|_| effects.iter().any(is_refused)) {
            self.records.insert(host, record);
        }
        effects
    }
}

/// Whether a rule evaluated by the state itself is enforced; a site may have removed it.
fn is_enforced(rules: &RuleSet, id: &str) -> bool {
    let rule = rules.rule(id);
    rule.is_some_and(|rule| rule.mode == Mode::Enforce)
}
