//! Who may use what is claimed, and who is on a host.

use std::collections::BTreeSet;

use muster_model::host::{Holder, Host};
use muster_model::ids::{HostId, JobId, UnitIndex};
use muster_model::spec::Packing;
use muster_model::time::TimeMs;

use crate::feasibility::Misfit;
use crate::state::{Job, State};

/// A unit that asks for resources, and when.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its job.
    pub job: &'a Job,
    /// Which of its units.
    pub unit: UnitIndex,
    /// When it would begin, as far as one knows.
    pub now: TimeMs,
    /// Whether it may use what others claim for a time by which it will have ended.
    pub borrows: bool,
}

/// What counts as free although somebody has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// True: what any attempt holds. A reservation waits for others to end by themselves.
    pub all_attempts: bool,
    /// What the attempts of these units hold.
    pub attempts: BTreeSet<(JobId, UnitIndex)>,
    /// What these units claim.
    pub claims: BTreeSet<(JobId, UnitIndex)>,
}

impl Freed {
    /// Whether nothing is freed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all_attempts && self.attempts.is_empty() && self.claims.is_empty()
    }

    /// Whether what a holder holds counts as free.
    #[must_use]
    pub fn holds(&self, holder: &Holder) -> bool {
        self.has_unit(holder.job, holder.unit)
    }

    /// Whether what a unit's attempt holds counts as free.
    #[must_use]
    pub fn has_unit(&self, job: JobId, unit: UnitIndex) -> bool {
        self.all_attempts || self.attempts.contains(&(job, unit))
    }
}

impl<'a> Asker<'a> {
    /// A unit that would begin now.
    #[must_use]
    pub const fn at(job: &'a Job, unit: UnitIndex, now: TimeMs) -> Self {
        Self {
            job,
            unit,
            now,
            borrows: true,
        }
    }

    /// A unit that asks for a claim, to begin at some time from now on: nothing that begins then is sure to end before
    /// what others claim is theirs, so it borrows none of it.
    #[must_use]
    pub const fn for_later(job: &'a Job, unit: UnitIndex, now: TimeMs) -> Self {
        Self {
            job,
            unit,
            now,
            borrows: false,
        }
    }

    /// Whether the unit may use what another (or it itself) claims: its own, and what work that ends before the claim's
    /// time may use.
    #[must_use]
    pub fn may_use(&self, state: &State, claimant: (JobId, UnitIndex)) -> bool {
        claimant == (self.job.id, self.unit) || self.ends_before(state, claimant)
    }

    fn ends_before(&self, state: &State, (job, unit): (JobId, UnitIndex)) -> bool {
        let run_time_ms = self.job.spec.scheduling.run_time_ms_max;
        let Some(run_time_ms) = run_time_ms.filter(|_| self.borrows) else {
            return false;
        };
        let claim = state
            .job(job)
            .and_then(|job| job.unit(unit))
            .and_then(|unit| unit.claim.as_deref());
        claim
            .and_then(|claim| claim.expected_at)
            .is_some_and(|expected_at| self.now.after(run_time_ms) <= expected_at)
    }

    /// Whether the job wants its hosts for itself.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.job.spec.scheduling.packing == Packing::Exclusive
    }

    /// Why the job may not be on a host for its name, or for what the host has to prove.
    #[must_use]
    pub fn named_out(&self, host: &Host) -> Option<Misfit> {
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
        self.begins_too_late(host)
    }

    /// Whether a host is to be blocked before the unit is sure to have ended there.
    #[must_use]
    pub fn begins_too_late(&self, host: &Host) -> Option<Misfit> {
        let block = host.planned.as_ref()?;
        let planned = block.planned.as_ref()?;
        let run_time_ms_max = self.job.spec.scheduling.run_time_ms_max;
        let is_in_time = block.lets_begin(self.now, run_time_ms_max);
        (!is_in_time).then(|| Misfit::Maintenance {
            in_ms: planned.at.since(self.now),
            reason: block.reason.clone(),
        })
    }

    /// Why the job may not be on a host for those who are there, or are to be.
    #[must_use]
    pub fn crowded_out(&self, state: &State, host: &Host, freed: &Freed) -> Option<Misfit> {
        if state.index.tasks.get(&host.id).is_some()
            && let Some(misfit) = self.tenants(state, host.id, freed)
        {
            return Some(misfit);
        }
        host.claims
            .iter()
            .map(|claim| (claim.job, claim.unit))
            .filter(|claimant| claimant.0 != self.job.id && !freed.claims.contains(claimant))
            .filter(|claimant| !self.may_use(state, *claimant))
            .find_map(|(job, _)| self.against(state, job))
    }

    fn tenants(&self, state: &State, host: HostId, freed: &Freed) -> Option<Misfit> {
        if freed.all_attempts {
            return None;
        }
        let first = (host, JobId(0), UnitIndex(0));
        let last = (host, JobId(u64::MAX), UnitIndex(u32::MAX));
        let mut units = state
            .index
            .on_host
            .range(first..=last)
            .map(|((_, job, unit), _)| (*job, *unit))
            .filter(|tenant| !freed.attempts.contains(tenant));
        if self.is_exclusive() {
            return units.find_map(|(job, _)| self.against(state, job));
        }
        // A job that has a host for itself is the only one there: any of them tells.
        units.next().and_then(|(job, _)| self.against(state, job))
    }

    /// Why the job may not be where another one is.
    fn against(&self, state: &State, other: JobId) -> Option<Misfit> {
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
