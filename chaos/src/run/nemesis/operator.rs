//! Operator of the cluster: unblocks components that faults took out of placement, knowing that they are
//! repaired.

use std::fmt;

use muster_health::rules::{FLAPPING, LEMON};
use muster_proto::v1;
use muster_proto::v1::block_target::Target;

use crate::cluster::timeline::LineKind;
use crate::error_chain::chain;
use crate::run::RunError;
use crate::run::nemesis::Nemesis;

/// Name of the rule on errors of a GPU's driver.
const XID: &str = "xid";
/// Reason of a refusal because the component is not blocked.
const NOT_BLOCKED: &str = "NOT_BLOCKED";

/// A host or GPU of which rules hold off all or some work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) struct BlockedByRules {
    target: Target,
    /// Name for messages.
    name: String,
    rules: Vec<String>,
}

impl fmt::Display for BlockedByRules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.name, self.rules.join(", "))
    }
}

impl Nemesis {
    /// Unblocks components, as an operator does now and then; a refusal by the cluster is recorded as an
    /// anomaly. Returns what was unblocked.
    pub(in crate::run) async fn unblock_all(&mut self) -> Vec<String> {
        match self.give_back().await {
            Ok(given_back) => given_back,
            Err(error) => {
                let text = format!("could not unblock anything: {}", chain(&error));
                self.odd.push(text);
                Vec::new()
            }
        }
    }

    /// Takes the anomalies since the last fault.
    pub(in crate::run) fn take_odd(&mut self) -> Vec<String> {
        std::mem::take(&mut self.odd)
    }

    /// Unblocks components blocked because of repaired faults; returns them. Components without such a
    /// fault stay blocked and are recorded as an anomaly: nothing was wrong with them.
    async fn give_back(&mut self) -> Result<Vec<String>, RunError> {
        let listed = self.client.list_hosts(v1::ListHostsRequest::default());
        let mut given_back = Vec::new();
        for found in out_of_use(&listed.await?.1) {
            let name = found.to_string();
            if !self.explains(&found) {
                if self.accused.insert(name.clone()) {
                    self.odd
                        .push(format!("{name} is out of placement without a fault"));
                }
                continue;
            }
            let target = v1::BlockTarget {
                target: Some(found.target),
            };
            match self.client.unblock(target, "chaos").await {
                Ok(_) => {
                    let text = format!("{name}: unblocked by the operator");
                    self.timeline.print_line(LineKind::Recovery, &text);
                    given_back.push(name);
                }
                // It was unblocked by itself in between.
                Err(error) if error.reason() == Some(NOT_BLOCKED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(given_back)
    }

    /// Whether faults of this run explain a block by rules: a host that was silenced often may get no gangs
    /// for a while, or be detected as a lemon node.
    fn explains(&self, found: &BlockedByRules) -> bool {
        let good: &[&str] = match &found.target {
            Target::Host(name) if self.silenced.contains(name) => &[FLAPPING, LEMON],
            Target::Gpu(gpu) if self.broken_gpus.contains(gpu) => &[XID],
            Target::Host(_) | Target::Gpu(_) => &[],
        };
        { found.rules.iter() }.all(|rule| good.contains(&rule.as_str()))
    }
}

/// Hosts and GPUs that rules hold out of placement; not those blocked for other reasons.
pub(in crate::run) fn out_of_use(hosts: &[v1::Host]) -> Vec<BlockedByRules> {
    let rules_of = |rule: &str, restrictions: &[v1::Restriction]| {
        let restrictions = restrictions.iter().map(|kept| kept.rule.clone());
        let blocked = (!rule.is_empty()).then(|| rule.to_owned());
        let mut rules: Vec<String> = blocked.into_iter().chain(restrictions).collect();
        rules.sort();
        rules.dedup();
        rules
    };
    let mut found = Vec::new();
    for host in hosts {
        found.push(BlockedByRules {
            target: Target::Host(host.name.clone()),
            name: host.name.clone(),
            rules: rules_of(&host.health_rule, &host.restrictions),
        });
        found.extend(host.gpus.iter().map(|gpu| BlockedByRules {
            target: Target::Gpu(gpu.uuid.clone()),
            name: format!("{} on {}", gpu.uuid, host.name),
            rules: rules_of(&gpu.health_rule, &gpu.restrictions),
        }));
    }
    found.retain(|it| !it.rules.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_out_of_use_are_listed_with_all_their_rules() {
        let kept = |rule: &str| v1::Restriction {
            rule: rule.to_owned(),
            ..v1::Restriction::default()
        };
        let well = v1::Gpu {
            uuid: "GPU-1".to_owned(),
            ..v1::Gpu::default()
        };
        let faulty = v1::Gpu {
            uuid: "GPU-2".to_owned(),
            health_rule: "xid".to_owned(),
            ..v1::Gpu::default()
        };
        let host = v1::Host {
            name: "node01".to_owned(),
            gpus: vec![well, faulty],
            restrictions: vec![kept("flapping"), kept("clock_skew"), kept("flapping")],
            ..v1::Host::default()
        };
        let found = out_of_use(&[v1::Host::default(), host]);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["node01 (clock_skew, flapping)", "GPU-2 on node01 (xid)"]
        );
    }
}
