//! Ends of attempts: what they hold against hosts and GPUs, and which hosts are lemons for it.

use super::hear::SOFT;
use super::propose::Wish;
use super::{Book, Effect, Place};
use crate::health::attribution::{Attribution, Class, Measure};
use crate::health::lemons::{self, Counts, Fleet};
use crate::health::rules::DeviceAction;
use crate::health::{Charge, Component, Scope};
use crate::ids::HostId;
use crate::time::TimeMs;

/// Where an attempt ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedOn<'a> {
    /// Its hosts, each once.
    pub hosts: &'a [HostId],
    /// Users whose failures speak for what is blamed.
    pub users: u32,
    /// When.
    pub at: TimeMs,
}

impl Book {
    /// A task began on a host.
    pub fn started(&mut self, host: HostId, now: TimeMs) {
        self.records.entry(host).or_default().start(now);
    }

    /// Takes an attributed end in; the place is that of the component that is blamed.
    pub fn ended(
        &mut self,
        found: &Attribution,
        on: &EndedOn<'_>,
        place: &Place<'_>,
    ) -> Vec<Effect> {
        self.count(found, on);
        let Some(component) = &found.component else {
            return Vec::new();
        };
        let evidence = found.evidence.join("; ");
        let wish = Wish {
            rule: "history",
            component,
            scope: match component {
                Component::Gpu(_) => Scope::Gpu,
                _ => Scope::Host,
            },
            weight: SOFT,
            kills: false,
            device: DeviceAction::Check,
            evidence: &evidence,
            users: Some(on.users),
            by_hand: false,
            at: on.at,
        };
        if found.measures.contains(&Measure::BlockForCheck) {
            return self.propose(&wish, place);
        }
        if found.measures.contains(&Measure::CheckIdle) {
            let mut effects = self.suspect(&wish, component);
            effects.push(Effect::CheckIdle(component.clone()));
            return effects;
        }
        Vec::new()
    }

    /// Counts an end on the records of its hosts.
    fn count(&mut self, found: &Attribution, on: &EndedOn<'_>) {
        let is_users = matches!(
            found.class,
            Class::User | Class::Scheduler | Class::Software
        );
        if let ([host], false) = (on.hosts, is_users) {
            let is_infra = found.charge == Charge::Infra;
            self.records.entry(*host).or_default().fail(on.at, is_infra);
        }
        if found.takes_back {
            for host in on.hosts {
                self.records.entry(*host).or_default().take_back(on.at);
            }
        }
        for suspicion in &found.suspicions {
            if let Component::Host(host) = suspicion.component {
                self.records
                    .entry(host)
                    .or_default()
                    .share(on.at, suspicion.milli);
            }
        }
    }

    /// Hosts that stand out by their records, the worst first; the leader proposes to drain them.
    #[must_use]
    pub fn lemons(&self, now: TimeMs) -> Vec<(HostId, lemons::Score)> {
        let counts: Vec<(HostId, Counts)> = self
            .records
            .iter()
            .map(|(host, record)| (*host, record.counts(now, 0)))
            .collect();
        let fleet = Fleet::of(counts.iter().map(|(_, counts)| counts));
        let scored = counts
            .iter()
            .map(|(host, counts)| (*host, lemons::score(counts, fleet)));
        let mut found: Vec<(HostId, lemons::Score)> =
            scored.filter(|(_, score)| score.is_lemon()).collect();
        found.sort_by_key(|(host, score)| (std::cmp::Reverse(score.milli), *host));
        found
    }

    /// Drains a host that is still a lemon, for a check.
    pub fn drain_lemon(&mut self, host: HostId, place: &Place<'_>, now: TimeMs) -> Vec<Effect> {
        let lemons = self.lemons(now);
        let Some((_, score)) = lemons.iter().find(|(of, _)| *of == host) else {
            return Vec::new();
        };
        let features: Vec<String> = score
            .features
            .iter()
            .map(|(feature, milli)| format!("{feature} {milli}"))
            .collect();
        let evidence = features.join(", ");
        let wish = Wish {
            rule: "lemon",
            component: &Component::Host(host),
            scope: Scope::HostAtTaskEnd,
            weight: SOFT,
            kills: false,
            device: DeviceAction::Check,
            evidence: &evidence,
            users: None,
            by_hand: false,
            at: now,
        };
        self.propose(&wish, place)
    }
}
