//! Hosts that the next placement of a unit should avoid.

use std::collections::BTreeSet;

use muster_model::desired::RestartReason;
use muster_model::health::Measure;
use muster_model::ids::{HostId, UnitIndex};

use crate::state::{Job, PastAttempt, State, Unit};

impl Unit {
    /// Returns the newest consecutive past attempts that ended because a task could not be started, newest
    /// first.
    pub fn start_errors(&self) -> impl Iterator<Item = &PastAttempt> {
        let had_start_error = |past: &&PastAttempt| {
            let exit = past.exit.as_ref();
            exit.is_some_and(|exit| exit.start_error.is_some())
        };
        self.past.iter().rev().take_while(had_start_error)
    }

    /// Returns the hosts that failed to start a task in those attempts.
    #[must_use]
    pub fn hosts_with_start_errors(&self) -> BTreeSet<HostId> {
        let of_past = self.start_errors().map(|past| past.culprit);
        of_past.flatten().collect()
    }

    /// Whether a task of an earlier attempt cannot be killed and still holds a GPU.
    #[must_use]
    pub fn has_stuck_task(&self, state: &State) -> bool {
        let held = self
            .past
            .iter()
            .flat_map(|past| past.hosts.iter().zip(&past.gpus));
        held.filter(|(_, held)| **held != 0).any(|(host, held)| {
            let gpus = state.host(*host).map_or(&[][..], |host| &host.gpus);
            let mut bits = gpus
                .iter()
                .zip((0..u128::BITS).map(|position| held >> position & 1));
            bits.any(|(gpu, bit)| bit == 1 && gpu.health.is_task_stuck())
        })
    }

    /// Returns the hosts on which it has just failed for an unknown reason.
    fn to_be_retried_off(&self) -> &[HostId] {
        let last = self.past.last();
        let sent_elsewhere = last.filter(|past| {
            let attribution = past.attribution.as_deref();
            attribution
                .is_some_and(|attribution| attribution.measures.contains(&Measure::RetryElsewhere))
        });
        sent_elsewhere.map_or(&[], |past| &past.hosts)
    }
}

impl Job {
    /// Returns the hosts that a waiting unit should avoid: those where it used up its consecutive retries in
    /// place, those that could not start one of its tasks since it last ran, the one its last end is
    /// attributed to, and those where it has just failed for an unknown reason.
    #[must_use]
    pub fn hosts_avoided(&self, unit: UnitIndex) -> Vec<HostId> {
        let Some(known) = self.unit(unit) else {
            return Vec::new();
        };
        let max = self.spec.lifecycle.local_retries_max;
        let failed = known.restart_reason == RestartReason::User;
        if failed && max > 0 && known.local_retries >= max {
            let last = known.past.last();
            return last.map_or_else(Vec::new, |past| past.hosts.clone());
        }
        let mut avoided = known.hosts_with_start_errors();
        avoided.extend(known.past.last().and_then(|past| past.culprit));
        avoided.extend(known.to_be_retried_off());
        avoided.into_iter().collect()
    }
}
