//! Claims: resources reserved for a waiting unit, with or without victims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_model::command::{ClaimSpec, HostRegistration, StopCause, StopReason, TaskPlacement};
use muster_model::event::EventKind;
use muster_model::host::{Host, HostClaim};
use muster_model::ids::{GpuUuid, HostId, JobId, UnitId, UnitIndex};
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;

use crate::apply::Step;
use crate::apply::attempt::{stopping, texts};
use crate::apply::claim::claim_check::{check_claim, units_of};
use crate::state::{Answer, Claim, Purpose, UsageKind, amounts_of};

impl Step<'_> {
    pub(in crate::apply) fn claim(&mut self, claiming: &ClaimSpec) -> Result<Answer, Rejection> {
        let hosts = check_claim(self.state, claiming)?;
        for superseded in &claiming.supersedes {
            self.give_up_claim(*superseded, "replaced by another unit's claim");
        }
        if let Some(moving) = &claiming.moving {
            self.move_others(claiming, moving, &hosts);
            return Ok(Answer::Done);
        }
        let claim = self.claim_of(claiming);
        self.reserve(claiming.unit_id(), claim, &hosts);
        self.emit_claimed(claiming);
        let detail = texts::claimant(self.job_mut(claiming.job), claiming.unit);
        let cause = StopCause::new(StopReason::Preempted, detail);
        for victim in &claiming.victims {
            let grace_ms = stopping::grace_ms(&self.job_mut(victim.job).spec, &cause.reason);
            self.order_stop(victim.unit_id(), cause.clone(), grace_ms);
        }
        Ok(Answer::Done)
    }

    pub(in crate::apply) fn emit_claimed(&mut self, claiming: &ClaimSpec) {
        self.emit(EventKind::UnitClaimed {
            job: claiming.job,
            unit: claiming.unit,
            gpus: claiming
                .tasks
                .iter()
                .map(|task| u32::try_from(task.gpus.len()).unwrap_or(u32::MAX))
                .sum(),
            victims: claiming.victims.clone(),
            expected_at: claiming.expected_at,
        });
    }

    pub(in crate::apply) fn drop_claim(
        &mut self,
        job: JobId,
        unit: UnitIndex,
        reason: &str,
    ) -> Result<Answer, Rejection> {
        let known = self.known_job(job)?.unit(unit);
        if known.is_none_or(|known| known.claim.is_none()) {
            return Err(Rejection::NoClaim { job, unit });
        }
        let limit = muster_model::limits::TEXT_BYTES_MAX;
        crate::apply::require_length("reason", reason, "TEXT_BYTES_MAX", limit)?;
        self.give_up_claim(UnitId::new(job, unit), reason);
        Ok(Answer::Done)
    }

    /// Builds the record of a claim.
    pub(in crate::apply) fn claim_of(&self, claiming: &ClaimSpec) -> Claim {
        Claim {
            revision: self.state.revision,
            since: self.state.time,
            tasks: Arc::clone(&claiming.tasks),
            allocation_basis: claiming.basis.clone(),
            victims: claiming.victims.clone(),
            expected_at: claiming.expected_at,
            purpose: Purpose::Ordinary,
        }
    }

    /// Records a claim at the unit and on every host.
    pub(in crate::apply) fn reserve(&mut self, id: UnitId, claim: Claim, hosts: &BTreeSet<HostId>) {
        let spec = Arc::clone(&self.job_mut(id.job).spec);
        for host in hosts {
            let here: Vec<&TaskPlacement> = claim
                .tasks
                .iter()
                .filter(|task| task.host == *host)
                .collect();
            self.edit_host(*host, |host| mark(host, &here, id, &spec));
        }
        self.bind(&spec, &claim.allocation_basis);
        let amounts = amounts_of(&self.state.hosts, &spec, &claim.tasks);
        self.state
            .index
            .add_usage(&spec, UsageKind::Claimed, &amounts);
        self.unit_mut(id).claim = Some(Arc::new(claim));
    }

    /// Gives up a unit's claim with a reason; does nothing if it has none.
    pub(in crate::apply) fn give_up_claim(&mut self, id: UnitId, reason: &str) {
        if self.release_claim(id) {
            self.emit(EventKind::ClaimDropped {
                job: id.job,
                unit: id.unit,
                reason: reason.to_owned(),
            });
        }
    }

    /// Releases everything that a unit has claimed; false if it has no claim.
    pub(in crate::apply) fn release_claim(&mut self, id: UnitId) -> bool {
        let known = self.state.unit(id);
        if known.is_none_or(|known| known.claim.is_none()) {
            return false;
        }
        let Some(claim) = self.unit_mut(id).claim.take() else {
            return false;
        };
        let spec = Arc::clone(&self.job_mut(id.job).spec);
        let amounts = amounts_of(&self.state.hosts, &spec, &claim.tasks);
        self.state
            .index
            .remove_usage(&spec, UsageKind::Claimed, &amounts);
        self.unbind(&spec, &claim.allocation_basis);
        let hosts: BTreeSet<HostId> = claim.tasks.iter().map(|task| task.host).collect();
        for host in hosts {
            self.edit_host(host, |host| unmark(host, id));
        }
        true
    }

    /// Gives up the claims that a host can no longer honour: it accepts no work, or a claimed GPU is unfit.
    pub(in crate::apply) fn give_up_broken_claims(&mut self, id: HostId) {
        let Some(host) = self.state.host(id).filter(|host| !host.claims.is_empty()) else {
            return;
        };
        let reason = |claim: &HostClaim| {
            if !host.accepts_work() {
                return Some(format!("host {} accepts no work", host.name));
            }
            let claimant = Some(claim.unit_id());
            let mut claimed = host.gpus.iter().filter(|gpu| gpu.claim == claimant);
            let unfit = claimed.find(|gpu| !gpu.usable());
            unfit.map(|gpu| format!("{} cannot be used", gpu.uuid))
        };
        let broken: Vec<_> = host
            .claims
            .iter()
            .filter_map(|claim| Some((claim.unit_id(), reason(claim)?)))
            .collect();
        for (claimant, reason) in broken {
            self.give_up_claim(claimant, &reason);
        }
    }

    /// Gives up the claims on a host that is about to report other GPUs or fewer other resources: claims on
    /// GPUs that are gone or of another model, or all of them if less is left for tasks.
    pub(in crate::apply) fn give_up_claims_on(
        &mut self,
        id: HostId,
        registration: &HostRegistration,
    ) {
        let Some(host) = self.state.host(id).filter(|host| !host.claims.is_empty()) else {
            return;
        };
        let gpus = registration.gpus.iter();
        let models: BTreeMap<GpuUuid, &str> =
            gpus.map(|gpu| (gpu.uuid, gpu.model.as_str())).collect();
        let less =
            registration.cpus_milli < host.cpus_milli || registration.memory_mib < host.memory_mib;
        let gone = |claim: &&HostClaim| {
            let claimant = Some(claim.unit_id());
            let mut claimed = host.gpus.iter().filter(|gpu| gpu.claim == claimant);
            less || claimed.any(|gpu| models.get(&gpu.uuid) != Some(&&*gpu.model))
        };
        let reason = format!("host {} has changed", host.name);
        let broken: Vec<_> = host
            .claims
            .iter()
            .filter(gone)
            .map(HostClaim::unit_id)
            .collect();
        for claimant in broken {
            self.give_up_claim(claimant, &reason);
        }
    }

    /// Gives up all claims of a job.
    pub(in crate::apply) fn give_up_claims_of(&mut self, id: JobId, reason: &str) {
        for unit in units_of(self.state, id) {
            self.give_up_claim(unit, reason);
        }
    }
}

/// Claims what a unit's tasks need of a host.
fn mark(host: &mut Host, tasks: &[&TaskPlacement], claimant: UnitId, spec: &JobSpec) {
    let mut claim = HostClaim {
        job: claimant.job,
        unit: claimant.unit,
        cpus_milli: 0,
        memory_mib: 0,
    };
    for task in tasks {
        if let Some((group, _)) = spec.group_of(task.task) {
            claim.cpus_milli += group.resources.cpus_milli;
            claim.memory_mib += group.resources.memory_mib;
        }
        for gpu in &mut host.gpus {
            if task.gpus.contains(&gpu.uuid) {
                gpu.claim = Some(claimant);
            }
        }
    }
    let position = host.claims.partition_point(|other| *other < claim);
    host.claims.insert(position, claim);
}

fn unmark(host: &mut Host, claimant: UnitId) {
    host.claims.retain(|claim| claim.unit_id() != claimant);
    for gpu in &mut host.gpus {
        if gpu.claim == Some(claimant) {
            gpu.claim = None;
        }
    }
}
