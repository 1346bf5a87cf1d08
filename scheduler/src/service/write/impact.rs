//! Impact of a block.

use std::collections::BTreeMap;

use muster_engine::state::{State, pool_of};
use muster_model::command::BlockTarget;
use muster_model::host::{Gpu, Host};
use muster_model::ids::{HostId, JobId};
use muster_model::rejection::Rejection;
use muster_proto::v1;

/// Jobs listed in one answer.
const IMPACTED_JOBS_MAX: usize = 1_000;

/// Impact of a block of `target` in this state; `is_plan`: a block scheduled for later.
pub(crate) fn of_block(
    state: &State,
    target: &BlockTarget,
    is_plan: bool,
) -> Result<v1::Impact, Rejection> {
    let (host, gpus): (&Host, Vec<&Gpu>) = match target {
        BlockTarget::Host(name) => {
            let host = state
                .host_by_name(name)
                .ok_or_else(|| Rejection::UnknownHost(name.clone()))?;
            (host, host.gpus.iter().collect())
        }
        BlockTarget::Gpu(uuid) => {
            let (host, gpu) = state.gpu(*uuid).ok_or(Rejection::UnknownGpu(*uuid))?;
            (host, vec![gpu])
        }
    };
    let takes_work = host.accepts_work();
    let usable = || {
        gpus.iter()
            .filter(|gpu| host.block.is_none() && gpu.usable())
    };
    let jobs = holders(state, host.id, target, &gpus);
    let left = RemainingCapacity::without(state, host, target);
    let takes_last = match target {
        BlockTarget::Host(_) => takes_work && left.hosts == 0,
        BlockTarget::Gpu(_) => takes_work && usable().count() > 0 && left.gpus == 0,
    };
    let replaces = match target {
        BlockTarget::Host(_) if is_plan => host.planned.as_ref(),
        BlockTarget::Host(_) => host.block.as_ref(),
        BlockTarget::Gpu(_) => gpus.first().and_then(|gpu| gpu.block.as_ref()),
    };
    Ok(v1::Impact {
        takes_work,
        replaces: replaces.map(Into::into),
        pool: pool_of(host).to_owned(),
        pool_hosts_left: left.hosts,
        pool_gpus_left: left.gpus,
        takes_last,
        gpus: count(usable().count()),
        gpus_free: count(usable().filter(|gpu| gpu.holder.is_none()).count()),
        jobs_total: count(jobs.len()),
        jobs: jobs
            .iter()
            .take(IMPACTED_JOBS_MAX)
            .filter_map(|(job, held)| impacted(state, *job, held))
            .collect(),
    })
}

/// Capacity of a pool that would remain for new work.
struct RemainingCapacity {
    hosts: u32,
    gpus: u32,
}

impl RemainingCapacity {
    fn without(state: &State, host: &Host, target: &BlockTarget) -> Self {
        let pool = pool_of(host);
        let is_target = |gpu: &Gpu| *target == BlockTarget::Gpu(gpu.uuid);
        let is_hosts = matches!(target, BlockTarget::Host(_));
        let in_service = state
            .hosts
            .values()
            .filter(|other| other.accepts_work() && pool_of(other) == pool)
            .filter(|other| !is_hosts || other.id != host.id);
        let usable = |host: &Host| {
            let usable = host
                .gpus
                .iter()
                .filter(|gpu| gpu.usable() && !is_target(gpu));
            count(usable.count())
        };
        let mut left = Self { hosts: 0, gpus: 0 };
        for other in in_service {
            left.hosts += u32::from(other.id != host.id);
            left.gpus += usable(other);
        }
        left
    }
}

/// Units and GPUs of each job that would have to leave.
#[derive(Default)]
struct AffectedJob {
    units: u32,
    gpus: u32,
}

fn holders(
    state: &State,
    host: HostId,
    target: &BlockTarget,
    gpus: &[&Gpu],
) -> BTreeMap<JobId, AffectedJob> {
    let mut jobs: BTreeMap<JobId, AffectedJob> = BTreeMap::new();
    match target {
        // Tasks without GPUs leave a blocked host too.
        BlockTarget::Host(_) => {
            for unit in state.index.units_on(host) {
                jobs.entry(unit.job).or_default().units += 1;
            }
        }
        BlockTarget::Gpu(_) => {
            for holder in gpus.iter().filter_map(|gpu| gpu.holder) {
                jobs.entry(holder.job).or_default().units = 1;
            }
        }
    }
    for holder in gpus.iter().filter_map(|gpu| gpu.holder) {
        jobs.entry(holder.job).or_default().gpus += 1;
    }
    jobs
}

fn impacted(state: &State, id: JobId, held: &AffectedJob) -> Option<v1::ImpactedJob> {
    let job = state.job(id)?;
    Some(v1::ImpactedJob {
        job_id: id.get(),
        name: job.spec.name.clone(),
        user: job.spec.user.clone(),
        queue: job.spec.queue.clone(),
        units: held.units,
        gpus: held.gpus,
    })
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
