//! Preemptible attempts on a host, and the cost of stopping them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use muster_engine::desired::units_on;
use muster_engine::rights::{lost_work_ms, protected_ms};
use muster_engine::state::{AttemptClass, BasisKind};
use muster_model::command::{AllocationBasis, Victim};
use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::topology::GpuMask;

use crate::preempt::Cost;
use crate::vc::hosts::{Hosts, PreemptionScope};

/// Cost of stopping an attempt, the attempt, and its GPUs on a host.
pub(super) type Stoppable = (Cost, Victim, GpuMask);

/// Stoppable attempts by host, filled on demand.
#[expect(
    clippy::disallowed_types,
    reason = "cache of values derived from the state; changes are not observable"
)]
pub(super) type Memo = Rc<std::cell::RefCell<BTreeMap<HostId, Rc<[Stoppable]>>>>;

impl Hosts<'_, '_> {
    /// Attempts on a host that may be stopped for the unit (or are being stopped), cheapest first, without
    /// those that are spared.
    pub(super) fn stoppable(&self, host: &Host) -> Vec<Stoppable> {
        if self.scope == PreemptionScope::None {
            return Vec::new();
        }
        let mut known = self.stoppable.borrow_mut();
        let on_host = known
            .entry(host.id)
            .or_insert_with(|| self.stoppable_at_all(host));
        let not_spared = on_host.iter().filter(|(cost, victim, _)| {
            *cost == Cost::default() || !self.spared.contains(&victim.unit_id())
        });
        not_spared.copied().collect()
    }

    fn stoppable_at_all(&self, host: &Host) -> Rc<[Stoppable]> {
        let mut held: BTreeMap<Victim, GpuMask> = BTreeMap::new();
        for (position, gpu) in host.gpus.iter().enumerate() {
            if let Some(holder) = gpu.holder.filter(|_| gpu.usable()) {
                let victim = Victim {
                    job: holder.job,
                    unit: holder.unit,
                    epoch: holder.epoch,
                };
                let mask = held.entry(victim).or_default();
                *mask = mask.or(GpuMask::one(position));
            }
        }
        // Attempts without GPUs here hold CPUs and memory that the cells' owner may need.
        for running in units_on(self.state, host.id) {
            held.entry(running.as_victim()).or_default();
        }
        let mut stoppable: Vec<Stoppable> = held
            .into_iter()
            .filter_map(|(victim, gpus)| Some((self.cost(victim)?, victim, gpus)))
            .collect();
        stoppable.sort_unstable();
        stoppable.into()
    }

    /// Cost of stopping some attempts.
    pub(in crate::vc) fn cost_of(&self, victims: &[Victim]) -> Cost {
        let costs = victims.iter().filter_map(|victim| self.cost(*victim));
        costs.fold(Cost::default(), Cost::plus)
    }

    /// Cost of stopping an attempt: zero if it is being stopped; otherwise the lost work. `None` if it may
    /// not be stopped.
    fn cost(&self, victim: Victim) -> Option<Cost> {
        let job = self.state.job(victim.job)?;
        let known = job.unit(victim.unit)?;
        let attempt = known.attempt.as_deref()?;
        if attempt.stop.is_some() {
            return Some(Cost::default());
        }
        // A process that cannot be killed frees nothing, and would put the next GPU out of service as well.
        if known.has_stuck_task(self.state) {
            return None;
        }
        let is_cells = matches!(attempt.allocation_basis, AllocationBasis::Cells(_));
        if is_cells && self.scope < PreemptionScope::Priority {
            return None;
        }
        // The unit's GPUs will be in bound cells; which ones does not matter for the right.
        self.rights.over_class(&AttemptClass {
            basis: BasisKind::of(attempt),
            queue: Arc::from(job.spec.queue.as_str()),
            priority: job.spec.priority,
            gpus: attempt.gpus(),
        })?;
        let protected_ms = protected_ms(self.state, &job.spec.queue);
        let until = attempt.protected_since().after(protected_ms);
        if protected_ms > 0 && until > self.state.time {
            return None;
        }
        let opportunistic = attempt.allocation_basis == AllocationBasis::Opportunistic;
        let lost_ms = lost_work_ms(known, attempt, self.state.time);
        Some(Cost::of(opportunistic, job.spec.priority, lost_ms))
    }
}
