//! Quick check before a preemption search: an upper bound of the GPUs that a virtual cluster can provide to a
//! unit with all preemptions. It is cheap to compute, and usually less than requested if the cluster is full.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::Job;
use muster_model::ids::{HostId, UnitIndex};

use crate::vc::Clusters;
use crate::vc::cell_request::CellRequest;
use crate::vc::hosts::PreemptionScope;

impl Clusters<'_> {
    /// False if the cluster's cells cannot hold a unit even if all preemptible attempts in them were
    /// stopped: the search for victims would fail. Guaranteed cells that are not bound yet might be
    /// anywhere.
    pub(super) fn may_find(&self, job: &Job, unit: UnitIndex, scope: PreemptionScope) -> bool {
        let cell_request = CellRequest::new(job, unit, true);
        let queue: Arc<str> = Arc::from(job.spec.queue.as_str());
        let open = self.open_by_host(
            &queue,
            (scope >= PreemptionScope::Priority).then_some(job.spec.priority),
        );
        let owed: u64 = self
            .allocation
            .quotas(&queue)
            .map(|(kind, quota)| u64::from(kind.gpus) * u64::from(quota.owed()))
            .sum();
        if owed > 0 {
            return owed + open.values().map(|gpus| u64::from(*gpus)).sum::<u64>()
                >= cell_request.gpus();
        }
        let tasks = cell_request.tasks_by_gpus();
        tasks.keys().all(|gpus| {
            let wanted: u64 = tasks.range(gpus..).map(|(_, tasks)| tasks).sum();
            open.values()
                .map(|open| u64::from(open / gpus))
                .sum::<u64>()
                >= wanted
        })
    }

    /// GPUs in a virtual cluster's bound cells by host that are not permanently held: without those held in
    /// cells by its own work, of the given priority or higher if one is given.
    fn open_by_host(&self, queue: &Arc<str>, priority: Option<i32>) -> BTreeMap<HostId, u32> {
        let before = &self.state.index.allocation;
        let mut open = self.allocation.bound_gpus_since(before, queue);
        let first = (Arc::clone(queue), priority.unwrap_or(i32::MIN), HostId(0));
        let kept = self.state.index.held_in_cells.range(first..);
        for ((_, _, host), gpus) in kept.take_while(|((name, ..), _)| name == queue) {
            if let Some(open) = open.get_mut(host) {
                *open = open.saturating_sub(*gpus);
            }
        }
        open
    }
}
