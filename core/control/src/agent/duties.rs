//! Pending health duties of a worker: unacknowledged findings, ordered repairs and checks.

use muster_health::outbox::Outbox;
use muster_model::desired::{CountedFindings, HealthDuties};
use muster_model::health::{Finding, Order};
use muster_model::heartbeat::WorkDone;
use muster_model::ids::Revision;

use crate::agent::Action;

/// A worker's health duties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Duties {
    waiting: Outbox,
    rules: (Revision, u64),
    counted: CountedFindings,
    /// Orders that were started.
    begun: Vec<Order>,
    /// Results of the orders that have finished.
    done: Vec<WorkDone>,
}

impl Duties {
    pub(super) fn add_findings(&mut self, findings: Vec<Finding>, actions: &mut Vec<Action>) {
        if findings.is_empty() {
            return;
        }
        for finding in findings {
            self.waiting.push(finding);
        }
        actions.push(Action::SendStatus);
    }

    /// Applies the leader's reply: acknowledged findings and new orders.
    pub(super) fn apply_reply(&mut self, duties: HealthDuties, actions: &mut Vec<Action>) {
        self.waiting.acknowledge(duties.acknowledged);
        self.rules = (duties.rules, duties.rules_fingerprint);
        self.counted = duties.counted;
        self.begun.retain(|order| duties.orders.contains(order));
        self.done.retain(|done| duties.orders.contains(&done.order));
        for order in duties.orders {
            if !self.begun.contains(&order) {
                self.begun.push(order.clone());
                actions.push(Action::HealthWork(order));
            }
        }
    }

    pub(super) fn work_done(&mut self, done: WorkDone, actions: &mut Vec<Action>) {
        let is_new = !self.done.iter().any(|known| known.order == done.order);
        if is_new && self.begun.contains(&done.order) {
            self.done.push(done);
            actions.push(Action::SendStatus);
        }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        self.waiting.report().cloned().collect()
    }

    pub(super) const fn waiting(&self) -> &Outbox {
        &self.waiting
    }

    pub(super) const fn rules(&self) -> (Revision, u64) {
        self.rules
    }

    pub(super) const fn counted(&self) -> &CountedFindings {
        &self.counted
    }

    pub(super) fn done(&self) -> &[WorkDone] {
        &self.done
    }
}
