//! Victim selection in virtual clusters: the placement with the least lost work, by sparing victims in
//! repeated searches.
//!
//! The first result is a sufficient fallback. Any cheaper set of victims spares at least one of its
//! victims; so the search is repeated sparing each of them in turn, cheapest results first, and recursively
//! for the new results. With enough tries, and where [`muster_engine::cells::serve`] misses no room, no
//! cheaper set is missed; beyond [`TRIES_MAX`] the cheapest result found is used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::cells::Allocation;
use muster_model::ids::UnitId;

use crate::preempt::Cost;
use crate::vc::cell_request::CellRequest;
use crate::vc::hosts::Hosts;
use crate::vc::{ClusterPlacement, Clusters};

/// Maximum number of searches for one unit.
const TRIES_MAX: usize = 128;

/// Maximum number of tasks served, and of hosts visited, in all these searches: large gangs and large
/// clusters get fewer tries.
const TASKS_SERVED_MAX: usize = 1_024;
/// Maximum number of hosts visited; see [`TASKS_SERVED_MAX`].
const HOSTS_SEEN_MAX: usize = 8_192;

/// Units that are not stopped.
type Spared = BTreeSet<UnitId>;

impl<'a> Clusters<'a> {
    /// Finds room for a unit by preempting others at the least cost within the search bounds.
    pub(super) fn cheapest_for(
        &self,
        allocation: &Allocation,
        hosts: &Hosts<'_, 'a>,
        cell_request: &CellRequest<'_>,
    ) -> Option<ClusterPlacement> {
        let hosts_there = self.state.hosts.len().max(1);
        let tries = TRIES_MAX
            .min(TASKS_SERVED_MAX / cell_request.tasks().max(1))
            .min(HOSTS_SEEN_MAX / hosts_there);
        let mut best: Option<(Cost, ClusterPlacement)> = None;
        let mut seen: BTreeSet<Spared> = BTreeSet::new();
        // The next victim to spare: from the cheapest result so far, in the order in which they were found.
        let mut open: BTreeMap<(Cost, usize), Spared> = BTreeMap::new();
        open.insert((Cost::default(), 0), Spared::new());
        for number in 0..tries.max(1) {
            let Some((_, spared)) = open.pop_first() else {
                break;
            };
            let room = hosts.clone().sparing(&Arc::new(spared.clone()));
            let Some(found) = self.find_for(allocation, &room, cell_request) else {
                continue;
            };
            let cost = hosts.cost_of(&found.victims);
            let mut victims = found.victims.clone();
            if best.as_ref().is_none_or(|(known, _)| cost < *known) {
                best = Some((cost, found));
            }
            if victims.is_empty() {
                break;
            }
            victims.sort_by_key(|victim| Reverse(hosts.cost_of(&[*victim])));
            for (position, victim) in victims.iter().enumerate() {
                let mut further = spared.clone();
                further.insert(victim.unit_id());
                if seen.insert(further.clone()) {
                    let place =
                        (number + 1) * muster_model::limits::VICTIMS_PER_CLAIM_MAX + position;
                    open.insert((cost, place), further);
                }
            }
        }
        best.map(|(_, found)| found)
    }
}
