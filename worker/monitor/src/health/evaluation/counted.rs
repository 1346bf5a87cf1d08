//! Comparison of the agent's findings with those that the cluster counts against the host.
//!
//! They differ after the cluster was recovered from a backup and after the agent's notes were lost: the
//! cluster may count a fault that is over, or not know one that lasts. What differs is reported again.

use muster_health::checks::RULE_PREFIX;
use muster_model::desired::FindingKey;
use muster_model::health::{Component, ComponentKind};
use muster_model::ids::{GpuUuid, HostId};

use crate::health::THIS_HOST;
use crate::health::evaluation::lines::{SXID, XID};
use crate::health::evaluation::signals;
use crate::health::evaluation::{REBOOT_UNEXPECTED, RuleEvaluator};

/// Rules of events that are reported once: no reading shows that they are over.
const REPORTED_ONCE: [&str; 3] = [XID, SXID, REBOOT_UNEXPECTED];

impl RuleEvaluator {
    /// Reports all findings again if the cluster was recovered, and has those checked that only the cluster
    /// counts.
    pub(super) fn compare_counted(&mut self) {
        if self.counted.recovered_at != self.notes.recovered_at {
            self.notes.recovered_at = self.counted.recovered_at;
            tracing::info!(
                revision = %self.counted.recovered_at,
                "the cluster was recovered from a backup: all findings are reported again"
            );
            self.report_all_again();
            self.write();
        }
        self.unconfirmed.clear();
        for key in self.counted.findings.clone() {
            let component = of_this_host(key.component);
            if !self.is_found(&key.rule, &component) {
                self.recheck(FindingKey { component, ..key });
            }
        }
    }

    fn report_all_again(&mut self) {
        let now = self.now();
        let severities = std::mem::take(&mut self.notes.severities);
        for (id, component, severity) in severities {
            // The next result of a site check counts as new.
            if id.starts_with(RULE_PREFIX) {
                continue;
            }
            if let Some(rule) = self.rules.rule(&id) {
                self.readings.doubt(now, rule, &component);
            }
            self.notes.severities.push((id, component, severity));
        }
        for (gpu, name) in std::mem::take(&mut self.notes.signals) {
            if let Some(signal) = signals::find(&name) {
                self.signal(gpu, signal, &name);
            }
            self.notes.signals.push((gpu, name));
        }
        self.publish_faulty();
    }

    /// Whether the agent knows the finding too, or has just reported another severity of it.
    fn is_found(&self, id: &str, component: &Component) -> bool {
        let waiting = self.waiting.iter().map(|(_, finding)| finding);
        let mut unacknowledged = waiting.chain(&self.found);
        let mut severities = self.notes.severities.iter();
        severities.any(|(rule, of, _)| rule == id && of == component)
            || unacknowledged.any(|it| it.rule == id && it.component == *component)
            || self.is_signalled(id, component)
    }

    fn is_signalled(&self, id: &str, component: &Component) -> bool {
        self.notes.signals.iter().any(|(gpu, name)| {
            let signal = signals::find(name).filter(|signal| signal.rule == id);
            signal.is_some_and(|signal| signal.component(*gpu) == *component)
        })
    }

    /// Reports a finding as over as soon as a reading shows that.
    fn recheck(&mut self, key: FindingKey) {
        if REPORTED_ONCE.contains(&&*key.rule) {
            return;
        }
        if key.rule.starts_with(RULE_PREFIX) {
            self.unconfirmed.insert(key);
            return;
        }
        let now = self.now();
        let Some(rule) = self.rules.rule(&key.rule) else {
            // Compared again once the rules in force are fetched.
            return;
        };
        // A host reports a fault of its rack by the readings of its GPUs.
        let components = if rule.component == ComponentKind::Rack {
            self.host
                .models
                .keys()
                .copied()
                .map(Component::Gpu)
                .collect()
        } else {
            vec![key.component.clone()]
        };
        for component in components {
            if !self.is_found(&key.rule, &component) {
                self.readings.doubt(now, rule, &component);
            }
        }
        if signals::of_rule(&key.rule).is_none() {
            return;
        }
        let reported = self.reported.clone();
        self.unconfirmed.insert(key);
        for gpu in reported {
            self.confirm_signals(gpu);
        }
    }

    /// The health of a GPU was reported: counted faults that its backend does not signal are over.
    pub(super) fn confirm_signals(&mut self, gpu: GpuUuid) {
        self.reported.insert(gpu);
        let all_are_reported = self
            .host
            .models
            .keys()
            .all(|gpu| self.reported.contains(gpu));
        for key in self.unconfirmed.clone() {
            let Some(signal) = signals::of_rule(&key.rule) else {
                continue;
            };
            let is_decided = match key.component {
                Component::Gpu(of) => of == gpu,
                _ => all_are_reported,
            };
            if !is_decided {
                continue;
            }
            self.unconfirmed.remove(&key);
            if !self.is_signalled(&key.rule, &key.component) {
                self.signal_over(gpu, signal);
            }
        }
    }

    /// Takes a result of a site check: whether it must be reported even if it is as before, because the
    /// cluster counts another one.
    pub(super) fn confirm(&mut self, id: &str) -> bool {
        self.unconfirmed.remove(&FindingKey {
            rule: id.to_owned(),
            component: THIS_HOST,
        })
    }
}

/// The component in the words of the agent, which does not know the host's id.
fn of_this_host(component: Component) -> Component {
    match component {
        Component::Host(_) => THIS_HOST,
        Component::Nic { name, .. } => Component::Nic {
            host: HostId(0),
            name,
        },
        Component::Gpu(_) | Component::Rack(_) => component,
    }
}
