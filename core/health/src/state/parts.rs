//! The health state in parts, as stored in snapshots.

use std::sync::Arc;

use muster_model::health::{Component, DeviceAction, Finding};
use muster_model::ids::HostId;
use serde::{Deserialize, Serialize};

use crate::component::{Condition, Repairs};
use crate::evaluate::Xids;
use crate::flap_history::Flaps;
use crate::guard_rails::{Incidents, Rails};
use crate::lemons::HostRecord;
use crate::outbox::AppliedUpTo;
use crate::state::{FailedEnd, HealthState, Program, Successes};

/// A part of the health state. Serialized with field names, so that older ones can be read: a field that is
/// added later has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Condition of a component.
    Condition(Component, Condition),
    /// Action wanted for it.
    Wanted(Component, DeviceAction),
    /// Repairs of it.
    Repairs(Component, Repairs),
    /// Record of a host.
    Record(HostId, HostRecord),
    /// Flapping of a host.
    Flaps(HostId, Flaps),
    /// A rule about racks reported by a host.
    OfRack(String, HostId),
    /// Newest applied finding of its worker.
    // Its name in stored states is older.
    #[serde(rename = "Heard")]
    Applied(HostId, AppliedUpTo),
    /// A finding, oldest first.
    Finding(Finding),
    /// An unexplained end, oldest first.
    End(FailedEnd),
    /// GPUs on which a program succeeded.
    RanWell(Program, Successes),
    /// XIDs of all GPUs.
    Xids(Xids),
    /// Budgets and breakers.
    Rails(Rails),
    /// Incidents.
    Incidents(Incidents),
}

impl HealthState {
    /// All parts; empty for a health state without content.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let conditions = self.conditions.iter();
        let wanted = self.wanted.iter();
        let repairs = self.repairs.iter();
        let records = self.records.iter();
        let flaps = self.flaps.iter();
        let of_racks = self.of_racks.iter();
        let applied = self.applied.iter();
        let findings = self.findings.iter();
        let ends = self.ends.iter();
        let ran_well = self.ran_well.iter();
        let xids = (*self.xids != Xids::default()).then(|| Part::Xids((*self.xids).clone()));
        let rails = (*self.rails != Rails::default()).then(|| Part::Rails((*self.rails).clone()));
        let incidents = (*self.incidents != Incidents::default())
            .then(|| Part::Incidents((*self.incidents).clone()));
        conditions
            .map(|(of, it)| Part::Condition(of.clone(), it.clone()))
            .chain(wanted.map(|(of, it)| Part::Wanted(of.clone(), *it)))
            .chain(repairs.map(|(of, it)| Part::Repairs(of.clone(), it.clone())))
            .chain(records.map(|(of, it)| Part::Record(*of, (**it).clone())))
            .chain(flaps.map(|(of, it)| Part::Flaps(*of, it.clone())))
            .chain(of_racks.map(|(rule, of)| Part::OfRack(rule.clone(), *of)))
            .chain(applied.map(|(of, it)| Part::Applied(*of, *it)))
            .chain(findings.map(|it| Part::Finding(it.clone())))
            .chain(ends.map(|it| Part::End(it.clone())))
            .chain(ran_well.map(|(of, it)| Part::RanWell(of.clone(), it.clone())))
            .chain([xids, rails, incidents].into_iter().flatten())
    }

    /// Restores a part.
    pub fn restore(&mut self, part: Part) {
        match part {
            Part::Condition(of, it) => drop(self.conditions.insert(of, it)),
            Part::Wanted(of, it) => drop(self.wanted.insert(of, it)),
            Part::Repairs(of, it) => drop(self.repairs.insert(of, it)),
            Part::Record(of, it) => drop(self.records.insert(of, Arc::new(it))),
            Part::Flaps(of, it) => drop(self.flaps.insert(of, it)),
            Part::OfRack(rule, of) => drop(self.of_racks.insert((rule, of))),
            Part::Applied(of, it) => drop(self.applied.insert(of, it)),
            Part::Finding(it) => self.findings.push(it),
            Part::End(it) => self.ends.push(it),
            Part::RanWell(of, it) => drop(self.ran_well.insert(of, it)),
            Part::Xids(it) => self.xids = Arc::new(it),
            Part::Rails(it) => self.rails = Arc::new(it),
            Part::Incidents(it) => self.incidents = Arc::new(it),
        }
    }
}
