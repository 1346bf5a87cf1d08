//! Use of claimed resources, and exclusivity of hosts.

use std::collections::BTreeSet;

use muster_model::command::TaskPlacement;
use muster_model::host::{Holder, Host, HostClaim};
use muster_model::ids::{HostId, JobId, UnitId, UnitIndex};
use muster_model::spec::Packing;
use muster_model::time::TimeMs;

use crate::feasibility::Misfit;
use crate::state::{Job, State};

/// A unit that asks for resources at a time.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The owning job.
    pub job: &'a Job,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Its expected start.
    pub now: TimeMs,
    /// Whether it may use resources that others claim for a time after its end.
    pub borrows: bool,
}

/// Resources that count as free although they are held or claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// True: everything that attempts hold. A reservation waits for other work to end on its own.
    pub all_attempts: bool,
    /// Everything that the attempts of these units hold.
    pub attempts: BTreeSet<UnitId>,
    /// Everything that these units claim.
    pub claims: BTreeSet<UnitId>,
}

impl Freed {
    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all_attempts && self.attempts.is_empty() && self.claims.is_empty()
    }

    /// Whether the resources of a holder count as free.
    #[must_use]
    pub fn holds(&self, holder: &Holder) -> bool {
        self.has_unit(holder.unit_id())
    }

    /// Whether the resources of a unit's attempt count as free.
    #[must_use]
    pub fn has_unit(&self, id: UnitId) -> bool {
        self.all_attempts || self.attempts.contains(&id)
    }
}

impl<'a> Requester<'a> {
    /// A unit that would start now.
    #[must_use]
    pub const fn at(job: &'a Job, unit: UnitIndex, now: TimeMs) -> Self {
        Self {
            job,
            unit,
            now,
            borrows: true,
        }
    }

    /// A unit that asks for a claim, to start at some later time: its end is then not known to precede the
    /// time of other claims, so it borrows none of their resources.
    #[must_use]
    pub const fn for_later(job: &'a Job, unit: UnitIndex, now: TimeMs) -> Self {
        Self {
            job,
            unit,
            now,
            borrows: false,
        }
    }

    /// A unit that claims resources: it starts at the expected time of the claim, or now if that is unknown or
    /// past. Proposals, checks and the later look at a claim all ask for this time, so they agree on which
    /// hosts are to be blocked too soon.
    #[must_use]
    pub fn for_claim(
        job: &'a Job,
        unit: UnitIndex,
        expected_at: Option<TimeMs>,
        now: TimeMs,
    ) -> Self {
        Self::for_later(job, unit, expected_at.map_or(now, |at| at.max(now)))
    }

    /// The unit that asks.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job.id, self.unit)
    }

    /// Whether the unit may use what `claimant` claims: its own claim, and other claims if it ends before
    /// their time.
    #[must_use]
    pub fn may_use(&self, state: &State, claimant: UnitId) -> bool {
        claimant == self.unit_id() || self.ends_before(state, claimant)
    }

    /// Whether the unit claimed resources of a host before another unit did. CPUs and memory are claimed as
    /// amounts: the later claim may count on work that ends only after the unit has started, so it takes nothing
    /// from the unit.
    #[must_use]
    pub fn claimed_before(&self, state: &State, host: HostId, claimant: UnitId) -> bool {
        let claim = |id| state.unit(id).and_then(|unit| unit.claim.as_deref());
        let Some((own, other)) = claim(self.unit_id()).zip(claim(claimant)) else {
            return false;
        };
        own.revision < other.revision && own.tasks.iter().any(|task| task.host == host)
    }

    /// Whether the unit is sure to have ended before the time of a claim.
    fn ends_before(&self, state: &State, claimant: UnitId) -> bool {
        let run_time_ms = self.job.spec.scheduling.run_time_ms_max;
        let Some(run_time_ms) = run_time_ms.filter(|_| self.borrows) else {
            return false;
        };
        let claim = state.unit(claimant).and_then(|unit| unit.claim.as_deref());
        claim
            .and_then(|claim| claim.expected_at)
            .is_some_and(|expected_at| self.now.after(run_time_ms) <= expected_at)
    }

    /// Whether the job needs its hosts exclusively.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.job.spec.scheduling.packing == Packing::Exclusive
    }

    /// Returns why the job may not use a host because of its name or its probation.
    #[must_use]
    pub fn name_or_probation_misfit(&self, host: &Host) -> Option<Misfit> {
        let scheduling = &self.job.spec.scheduling;
        let names = |names: &[String]| names.iter().any(|name| **name == *host.name);
        if !scheduling.hosts.is_empty() && !names(&scheduling.hosts) {
            return Some(Misfit::HostNotNamed);
        }
        if names(&scheduling.hosts_excluded) {
            return Some(Misfit::HostExcluded);
        }
        let spec = &self.job.spec;
        if host.no_gangs && spec.gang && spec.tasks() > 1 {
            return Some(Misfit::NoGangs);
        }
        let is_taken = !host.on_probation || spec.may_be_lost();
        if !is_taken {
            return Some(Misfit::OnProbation);
        }
        self.maintenance_misfit(host)
    }

    /// Returns a misfit if a host is to be blocked before the unit is sure to have ended there.
    #[must_use]
    pub fn maintenance_misfit(&self, host: &Host) -> Option<Misfit> {
        let block = host.planned.as_ref()?;
        let planned = block.planned.as_ref()?;
        let run_time_ms_max = self.job.spec.scheduling.run_time_ms_max;
        let is_in_time = block.allows_start(self.now, run_time_ms_max);
        (!is_in_time).then(|| Misfit::Maintenance {
            in_ms: planned.at.since(self.now),
            reason: block.reason.clone(),
        })
    }

    /// Hosts of a placement that are to be blocked before the unit is sure to have ended there, ascending.
    #[must_use]
    pub fn hosts_blocked_too_soon(&self, state: &State, tasks: &[TaskPlacement]) -> Vec<HostId> {
        if state.index.planned.is_empty() {
            return Vec::new();
        }
        let hosts: BTreeSet<HostId> = tasks.iter().map(|task| task.host).collect();
        let records = hosts.into_iter().filter_map(|host| state.host(host));
        records
            .filter(|host| self.maintenance_misfit(host).is_some())
            .map(|host| host.id)
            .collect()
    }

    /// Returns why the job may not use a host because of other jobs that are there, or have claims there.
    #[must_use]
    pub fn exclusivity_misfit(&self, state: &State, host: &Host, freed: &Freed) -> Option<Misfit> {
        if state.index.tasks.get(&host.id).is_some()
            && let Some(misfit) = self.tenants(state, host.id, freed)
        {
            return Some(misfit);
        }
        host.claims
            .iter()
            .map(HostClaim::unit_id)
            .filter(|claimant| claimant.job != self.job.id && !freed.claims.contains(claimant))
            .filter(|claimant| !self.may_use(state, *claimant))
            .find_map(|claimant| self.exclusivity_conflict(state, claimant.job))
    }

    fn tenants(&self, state: &State, host: HostId, freed: &Freed) -> Option<Misfit> {
        if freed.all_attempts {
            return None;
        }
        let units = state.index.units_on(host);
        let mut tenants = units.filter(|tenant| !freed.attempts.contains(tenant));
        if self.is_exclusive() {
            return tenants.find_map(|tenant| self.exclusivity_conflict(state, tenant.job));
        }
        // An exclusive job is the only one on its host, so checking any unit is enough.
        let tenant = tenants.next()?;
        self.exclusivity_conflict(state, tenant.job)
    }

    /// Returns why the job may not share a host with another one.
    fn exclusivity_conflict(&self, state: &State, other: JobId) -> Option<Misfit> {
        if other == self.job.id {
            return None;
        }
        if self.is_exclusive() {
            return Some(Misfit::HostShared(other));
        }
        state
            .job(other)
            .is_some_and(|job| job.spec.scheduling.packing == Packing::Exclusive)
            .then_some(Misfit::HostExclusive(other))
    }
}
