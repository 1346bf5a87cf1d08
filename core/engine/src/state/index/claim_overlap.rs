//! Resources that claims take over from work that still holds them: the same GPUs, which must not be counted
//! twice.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::host::Host;
use muster_model::ids::{HostId, UnitId};
use muster_model::quota::{Amounts, within};
use muster_model::spec::JobSpec;

use crate::state::{Attempt, Job, State};

/// Scope of the count.
#[derive(Clone, Copy, Debug)]
pub struct UsageScope<'a> {
    /// A queue, including the queues below it.
    pub queue: &'a str,
    /// One user of it; all users if `None`.
    pub user: Option<&'a str>,
    /// Whether to count opportunistic attempts, which use no guarantee.
    pub opportunistic: bool,
}

/// Attempts and claims to leave out of the count.
#[derive(Clone, Copy)]
pub struct ExcludedUsage<'a> {
    /// Attempts to leave out, by unit.
    pub attempts: &'a dyn Fn(UnitId) -> bool,
    /// Claims to leave out, by unit.
    pub claims: &'a dyn Fn(UnitId) -> bool,
}

impl UsageScope<'_> {
    /// Whether it includes a job.
    pub(crate) fn has(&self, spec: &JobSpec) -> bool {
        self.user.is_none_or(|user| spec.user == user)
            && within(&spec.queue).any(|queue| queue == self.queue)
    }

    fn holds(&self, job: &Job, attempt: &Attempt) -> bool {
        let counts =
            self.opportunistic || attempt.allocation_basis != AllocationBasis::Opportunistic;
        counts && self.has(&job.spec)
    }
}

/// Returns the amounts that the claims of a queue or user take over from its own attempts.
pub fn counted_twice(state: &State, whose: UsageScope<'_>, gone: ExcludedUsage<'_>) -> Amounts {
    let mut amounts = Amounts::default();
    for id in state.index.claims.keys() {
        let job = state.job(id.job).filter(|job| whose.has(&job.spec));
        let claim = job.and_then(|job| job.unit(id.unit)?.claim.as_deref());
        if let (Some(job), Some(claim), false) = (job, claim, (gone.claims)(*id)) {
            let taken = taken_over(state, &job.spec, &claim.tasks, whose, gone);
            amounts.add(&taken);
        }
    }
    amounts
}

/// Returns what tasks take over from attempts of a queue or user on their target hosts: GPUs, and with them
/// as much CPU and memory as both have there. Tasks without GPUs take over nothing, because it is unknown
/// whose CPUs they will get.
pub fn taken_over(
    state: &State,
    spec: &JobSpec,
    tasks: &[TaskPlacement],
    whose: UsageScope<'_>,
    gone: ExcludedUsage<'_>,
) -> Amounts {
    let mut by_host: BTreeMap<HostId, Vec<&TaskPlacement>> = BTreeMap::new();
    for task in tasks.iter().filter(|task| !task.gpus.is_empty()) {
        by_host.entry(task.host).or_default().push(task);
    }
    let mut amounts = Amounts::default();
    for (host, tasks) in by_host {
        if let Some(host) = state.host(host) {
            amounts.add(&taken_on(host, spec, &tasks, &|id| {
                let job = state.job(id.job).filter(|_| !(gone.attempts)(id))?;
                let attempt = job.unit(id.unit)?.attempt.as_deref()?;
                whose.holds(job, attempt).then_some((job, attempt))
            }));
        }
    }
    amounts
}

/// Returns the job and attempt of a unit if they are in scope.
type Holding<'h, 'a> = &'h dyn Fn(UnitId) -> Option<(&'a Job, &'a Attempt)>;

fn taken_on(
    host: &Host,
    spec: &JobSpec,
    tasks: &[&TaskPlacement],
    holding: Holding<'_, '_>,
) -> Amounts {
    let mut amounts = Amounts::default();
    let mut holders: BTreeSet<UnitId> = BTreeSet::new();
    for gpu in &host.gpus {
        let Some(holder) = gpu.holder else { continue };
        let claimed = tasks.iter().any(|task| task.gpus.contains(&gpu.uuid));
        if claimed && holding(holder.unit_id()).is_some() {
            amounts.add_gpus(&gpu.model, 1);
            holders.insert(holder.unit_id());
        }
    }
    let held = holders.iter().filter_map(|id| {
        let (job, attempt) = holding(*id)?;
        let runs = attempt.tasks.iter().filter(|run| run.host == host.id);
        Some(runs.filter_map(|run| Some(&job.spec.group_of(run.task)?.0.resources)))
    });
    let held = held.flatten().fold((0, 0), |(cpus, memory), resources| {
        let cpus_milli = u64::from(resources.cpus_milli);
        (cpus + cpus_milli, memory + resources.memory_mib)
    });
    let claimed = tasks.iter().filter_map(|task| spec.group_of(task.task));
    let claimed = claimed.fold((0, 0), |(cpus, memory), (group, _)| {
        let cpus_milli = u64::from(group.resources.cpus_milli);
        (cpus + cpus_milli, memory + group.resources.memory_mib)
    });
    amounts.cpus_milli = held.0.min(claimed.0);
    amounts.memory_mib = held.1.min(claimed.1);
    amounts
}
