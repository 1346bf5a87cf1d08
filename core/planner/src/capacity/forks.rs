//! Hypothetical capacity for trial placements: forks in which more or less is free than now.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use muster_engine::feasibility::{self, Requester};
use muster_engine::state::{CellIndex, HostClass, Job, Running};
use muster_model::command::{TaskPlacement, Victim};
use muster_model::host::{Gpu, Host};
use muster_model::ids::{HostId, UnitId, UnitIndex};
use muster_model::topology::GpuMask;

use crate::capacity::left::Remaining;
use crate::capacity::{Capacity, FreeHosts, Masks};

impl<'a> Capacity<'a> {
    /// Capacity without the given attempts.
    pub(crate) fn free_attempts(&self, victims: &[Victim]) -> Self {
        let mut fork = self.fork();
        for victim in victims {
            fork.free_attempt(*victim);
        }
        fork
    }

    /// Capacity available to one unit: what is free, what the unit itself claims, and what others claim for
    /// a later time by which it will have ended. `None` if that adds nothing.
    pub(crate) fn for_unit(&self, job: &Job, unit: UnitIndex) -> Option<Self> {
        let requester = self.requester(job, unit);
        let usable: Vec<UnitId> = self
            .claimants(requester)
            .into_iter()
            .filter(|claimant| requester.may_use(self.state, *claimant))
            .collect();
        if usable.is_empty() {
            return None;
        }
        let mut fork = self.fork();
        for claimant in usable {
            fork.free_claim(claimant);
        }
        fork.ignore_later_claims(requester);
        Some(fork)
    }

    /// Counts the CPUs and the memory as free that others claimed after a unit on the hosts of its claim. For forks.
    fn ignore_later_claims(&mut self, requester: Requester<'_>) {
        let claim = self.state.unit(requester.unit_id());
        let tasks = claim.and_then(|unit| unit.claim.as_deref());
        let tasks = tasks.into_iter().flat_map(|claim| claim.tasks.iter());
        let hosts: BTreeSet<HostId> = tasks.map(|task| task.host).collect();
        for host in hosts.into_iter().filter_map(|host| self.state.host(host)) {
            let mut left = self.left_of(host);
            for claim in &host.claims {
                let claimant = claim.unit_id();
                let is_later = requester.claimed_before(self.state, host.id, claimant);
                if is_later && !self.freed.claims.contains(&claimant) {
                    left.room = left.room.more(claim.cpus_milli, claim.memory_mib);
                }
            }
            self.replace(host, left);
        }
    }

    /// Whether these tasks of a unit fit as given, together.
    pub(crate) fn admits_all(&self, requester: Requester<'_>, tasks: &[TaskPlacement]) -> bool {
        feasibility::check(self.state, requester, tasks, &self.freed).is_ok()
    }

    /// Capacity without any claims.
    pub(crate) fn without_claims(&self) -> Self {
        let mut fork = self.fork();
        for claimant in self.state.index.claims.keys() {
            fork.free_claim(*claimant);
        }
        fork
    }

    /// Units whose claimed resources the requester may use.
    fn claimants(&self, requester: Requester<'_>) -> BTreeSet<UnitId> {
        let own = requester.unit_id();
        let claims = requester
            .job
            .unit(requester.unit)
            .is_some_and(|known| known.claim.is_some());
        let mut claimants: BTreeSet<_> = claims.then_some(own).into_iter().collect();
        if requester.job.spec.scheduling.run_time_ms_max.is_some() {
            claimants.extend(self.state.index.claims.keys().copied());
        }
        claimants
    }

    /// Capacity restricted to these GPUs of these hosts; tasks without GPUs may use any of the hosts.
    pub(crate) fn within(&self, masks: Masks) -> Self {
        let counted: Masks = match &self.only {
            Some(only) => masks
                .into_iter()
                .filter_map(|(host, mask)| Some((host, mask.and(*only.get(&host)?))))
                .collect(),
            None => masks,
        };
        let mut fork = self.fork();
        let mut free: OrdMap<HostClass, FreeHosts> = OrdMap::new();
        fork.left = OrdMap::new();
        fork.places = CellIndex::default();
        for (host, mask) in &counted {
            let Some(host) = self.state.host(*host).filter(|host| self.accepts(host)) else {
                continue;
            };
            let unmasked = self.left_of(host);
            let left = Remaining {
                free: unmasked.free.and(*mask),
                ..unmasked
            };
            fork.left.insert(host.id, left);
            let any = free.entry(HostClass::from("")).or_default();
            any.insert((left.free.count(), host.id));
            let Some(cells) = self.cells(host.id) else {
                continue;
            };
            fork.places.add_host(&cells.above, host.id);
            for (class, of_class) in cells.models.iter() {
                let gpus = left.free.and(*of_class).count();
                let hosts = free.entry(class.clone()).or_default();
                hosts.insert((gpus, host.id));
                fork.places.change(&cells.above, class, None, Some(gpus));
            }
        }
        fork.free = free;
        fork.only = Some(Arc::new(counted));
        fork
    }

    /// Capacity without these hosts, and without those that it lacks already.
    pub(crate) fn without_hosts(&self, hosts: impl Iterator<Item = HostId>) -> Self {
        let mut fork = self.fork();
        Arc::make_mut(&mut fork.avoided).extend(hosts);
        fork
    }

    /// The unit as the requester of resources at the present time.
    pub(crate) const fn requester<'b>(&self, job: &'b Job, unit: UnitIndex) -> Requester<'b> {
        Requester::at(job, unit, self.now)
    }

    fn fork(&self) -> Self {
        let mut fork = self.clone();
        // More may fit in the fork than the narrowed index shows.
        fork.narrowed.clear();
        fork.last_blocks.clear();
        fork
    }

    /// Counts what an attempt holds as free; does nothing if it is not the unit's current attempt. For
    /// forks only.
    pub(crate) fn free_attempt(&mut self, victim: Victim) {
        let running = Running::of(self.state, victim.unit_id());
        let running = running.filter(|running| running.attempt.epoch == victim.epoch);
        let Some(Running { job, attempt, .. }) = running else {
            return;
        };
        let freed = &mut Arc::make_mut(&mut self.freed).attempts;
        if !freed.insert(victim.unit_id()) {
            return;
        }
        for run in &attempt.tasks {
            let host = self.state.host(run.host);
            let group = job.spec.group_of(run.task);
            if let (Some(host), Some((group, _))) = (host, group) {
                let mut left = self.left_of(host);
                left.room.take_back(&group.resources, group.task_weight());
                self.replace(host, left);
            }
        }
        for host in attempt.hosts() {
            self.refresh(host);
        }
    }

    /// Counts what a unit claims as free. For forks, and for units being placed.
    pub(crate) fn free_claim(&mut self, claimant: UnitId) {
        let known = self.state.unit(claimant);
        let Some(claim) = known.and_then(|known| known.claim.as_deref()) else {
            return;
        };
        let freed = &mut Arc::make_mut(&mut self.freed).claims;
        if !freed.insert(claimant) {
            return;
        }
        let hosts: BTreeSet<_> = claim.tasks.iter().map(|task| task.host).collect();
        for host in hosts {
            if let Some(record) = self.state.host(host) {
                let mut left = self.left_of(record);
                let on_host = record.claims.iter();
                for claim in on_host.filter(|claim| claim.unit_id() == claimant) {
                    left.room = left.room.more(claim.cpus_milli, claim.memory_mib);
                }
                self.replace(record, left);
            }
            self.refresh(host);
        }
    }

    /// Recomputes the free GPUs of a host.
    fn refresh(&mut self, host: HostId) {
        let Some(host) = self.state.host(host) else {
            return;
        };
        let mut left = self.left_of(host);
        let before = left.free;
        let all = host.gpus.iter().enumerate();
        let free = all
            .take(muster_model::limits::GPUS_PER_HOST_MAX)
            .filter(|(_, gpu)| self.counts_as_free(gpu))
            .fold(GpuMask::default(), |mask, (position, _)| {
                mask.or(GpuMask::one(position))
            });
        left.free = self.counted(host, free).without(left.taken);
        self.replace(host, left);
        self.reorder(host, before, left.free);
    }

    fn replace(&mut self, host: &Host, left: Remaining) {
        self.left.insert(host.id, left);
    }

    fn counts_as_free(&self, gpu: &Gpu) -> bool {
        gpu.usable()
            && gpu
                .holder
                .as_ref()
                .is_none_or(|holder| self.freed.holds(holder))
            && gpu
                .claim
                .is_none_or(|claimant| self.freed.claims.contains(&claimant))
    }
}
