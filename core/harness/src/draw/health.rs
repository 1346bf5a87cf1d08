//! Draws of findings by workers, outcomes of repairs and checks, and operator commands about rules and
//! breakers.

use std::sync::Arc;

use muster_health::rules::RuleSet;
use muster_model::command::{Command, HealthCommand};
use muster_model::health::{Component, Finding, Severity, WorkStep};
use muster_model::ids::HostId;
use muster_model::time::TimeMs;

use crate::draw::{Draw, REQUESTS, request_key};

/// XIDs that each require a different action.
const XIDS: [u32; 8] = [13, 31, 48, 63, 74, 79, 94, 119];
/// Rules about hosts: some block, some hold work off while they last, one is aggregated over racks, one is a
/// site's, one does not exist.
const HOST_RULES: [&str; 8] = [
    "power_brake",
    "disk_free",
    "fs_readonly",
    "mount_missing",
    "oom_global",
    "fabric_manager",
    "check:drawn",
    "nobody",
];
/// Rules about GPUs; many findings are XIDs, and many are fabric faults on many hosts at once.
const GPU_RULES: [&str; 8] = [
    "nvlink_down",
    "nvlink_down",
    "xid",
    "xid",
    "foreign_proc",
    "hw_slowdown",
    "power_unreadable",
    "clock_low",
];

impl Draw<'_> {
    /// A health command.
    pub(super) fn health(&mut self) -> Command {
        Command::Health(match self.below(15) {
            0..5 => self.findings(),
            5..9 => self.health_work(),
            9 => HealthCommand::SetRules {
                request: request_key(self.below(REQUESTS)),
                author: "ada".to_owned(),
                text: Arc::from(if self.once_in(2) {
                    RuleSet::SHIPPED_TEXT
                } else {
                    "format = 2"
                }),
                shipped: self.once_in(2).then_some(RuleSet::SHIPPED_VERSION),
            },

            10 => HealthCommand::ResetBreaker {
                request: request_key(self.below(REQUESTS)),
                author: "ada".to_owned(),
                pool: "H100".to_owned(),
            },
            11 => HealthCommand::DrainLemon {
                leader: self.leader(),
                host: self.host(),
            },
            12 => self.restarted(),
            13 => HealthCommand::ShipRules {
                leader: self.leader(),
                version: RuleSet::SHIPPED_VERSION,
                text: Arc::from(RuleSet::SHIPPED_TEXT),
            },
            _ => HealthCommand::Tick {
                leader: self.leader(),
            },
        })
    }

    fn findings(&mut self) -> HealthCommand {
        let host = self.host();
        let incarnation = self.state.host(host).map_or(1, |host| host.incarnation);
        let acknowledged = self.state.health.acknowledged(host, incarnation);
        let count = 1 + self.below(3);
        // Some are repeated.
        let first = acknowledged + 1 - acknowledged.min(self.below(2));
        let findings = (0..count)
            .map(|at| self.finding(host, first + at))
            .collect();
        HealthCommand::Report {
            leader: self.leader(),
            host,
            incarnation: incarnation.saturating_sub(u64::from(self.once_in(20))),
            findings,
        }
    }

    fn finding(&mut self, host: HostId, sequence: u64) -> Finding {
        let gpus = self.state.host(host).map(|host| host.gpus.clone());
        let gpus = gpus.into_iter().flatten().map(|gpu| gpu.uuid).collect();
        let gpu = self.pick(gpus).filter(|_| !self.once_in(3));
        let code = self.pick(XIDS.to_vec());
        let rules = gpu.map_or(&HOST_RULES[..], |_| &GPU_RULES[..]);
        let rule = self.pick(rules.to_vec()).unwrap_or_default();
        let severity = self.pick(Severity::ALL.to_vec());
        Finding {
            sequence,
            rule: rule.to_owned(),
            component: gpu.map_or(Component::Host(host), Component::Gpu),
            severity: severity.unwrap_or(Severity::Fatal),
            metric: rule.to_owned(),
            measured: 1,
            code: code.filter(|_| rule == "xid"),
            cluster: None,
            evidence: "drawn".to_owned(),
            at: TimeMs(0),
        }
    }

    /// Mostly of a host whose services are to be restarted.
    fn restarted(&mut self) -> HealthCommand {
        let hosts = self.state.hosts.keys();
        let orders = hosts.flat_map(|host| self.state.health.orders(*host, std::iter::empty()));
        let restarts = orders.filter(|order| !order.rule.is_empty()).collect();
        let order = self.pick(restarts);
        let host = match order.as_ref().map(|order| &order.component) {
            Some(Component::Host(host)) => *host,
            _ => self.host(),
        };
        HealthCommand::Restarted {
            leader: self.leader(),
            host,
            rule: order
                .as_ref()
                .map_or_else(|| "runtime".to_owned(), |order| order.rule.clone()),
            since: order.map(|order| order.since).unwrap_or_default(),
            worked: self.once_in(2),
            evidence: "drawn".to_owned(),
        }
    }

    /// Mostly about a component with a health record, with its current start time.
    fn health_work(&mut self) -> HealthCommand {
        let conditions = self.state.health.conditions();
        let known = conditions
            .map(|(component, condition)| (component.clone(), condition.since))
            .collect();
        let nothing = (Component::Host(HostId(1)), TimeMs(0));
        let (component, since) = self.pick(known).unwrap_or(nothing);
        let step = self.pick(WorkStep::ALL.to_vec());
        HealthCommand::Work {
            leader: self.leader(),
            component,
            step: step.unwrap_or(WorkStep::Began),
            since: TimeMs(since.0 - since.0.min(u64::from(self.once_in(10)))),
            evidence: "drawn".to_owned(),
        }
    }
}
