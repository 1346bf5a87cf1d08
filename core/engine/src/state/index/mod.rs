//! Lookup tables derived from the rest of the state and maintained by `apply`, so that no decision scans all
//! hosts or all jobs.

pub(super) mod attempts;
pub(super) mod cell_index;
pub(super) mod cells;
pub(super) mod claim_overlap;
pub(super) mod settled;
pub(super) mod totals;
pub(super) mod waiting_class;

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::command::GpuHealth;
use muster_model::host::{Host, HostClaim};
use muster_model::ids::{AttemptEpoch, HostId, JobId, PipelineId, UnitId};
use muster_model::lifecycle::UnitPhase;
use muster_model::quota::Amounts;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use muster_model::topology::{ClusterTree, HostCells};

use crate::cells::{Allocation, HostLoad};
use crate::state::queue::usage::{self, UsageByQueue, UsageKind};
use crate::state::{
    Attempt, Attempts, CellIndex, HeldInCells, Job, OpenDependencies, Pools, Queue, RunTimes,
    State, Totals, WaitingClass, WaitingKey,
};

/// Hosts with the same GPU model (empty: all hosts, with or without GPUs).
pub type HostClass = Arc<str>;

/// Tasks that hold resources on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TasksOnHost {
    /// Number of tasks.
    pub count: u32,
    /// Number of places they count as ([`TaskGroup::places`](muster_model::spec::TaskGroup::places)).
    pub places: u32,
}

/// Derived lookup tables; rebuilt when a snapshot is read. No empty set is kept in a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Jobs with waiting units that wait for no other job and are not suspended, by waiting class
    /// ([`WaitingClass::of`]), in order.
    pub waiting: OrdMap<WaitingClass, OrdSet<WaitingKey>>,
    /// Total resources of all registered hosts, regardless of their state.
    pub totals: Totals,
    /// Units in back-off beyond `State::time`, by its end (they are in `waiting` or in `vacant` too).
    pub delayed: OrdSet<(TimeMs, UnitId)>,
    /// Hosts that accept work, by class and number of free, unclaimed GPUs of that model, 0 included. A host
    /// with two models is in two classes; the class with the empty name holds every host that accepts work,
    /// with all its free GPUs.
    pub free: OrdMap<HostClass, OrdSet<(u32, HostId)>>,
    /// Units that hold resources on a host ([`Index::units_on`]).
    pub units_on_host: OrdMap<(HostId, UnitId), AttemptEpoch>,
    /// Tasks that hold resources, by host; hosts without any have no entry.
    pub tasks: OrdMap<HostId, TasksOnHost>,
    /// Finished jobs, oldest first.
    pub finished: OrdSet<(TimeMs, JobId)>,
    /// The cells around and inside every host.
    pub host_cells: OrdMap<HostId, Arc<HostCells>>,
    /// Cells above hosts with their free GPUs.
    pub cells: CellIndex,
    /// Location of hosts, as configured and as reported by their workers.
    pub tree: ClusterTree,
    /// Usual run times.
    pub run_times: RunTimes,
    /// Pools of hosts with their out-of-placement counts.
    pub pools: Pools,
    /// Blocks that begin or end on their own, by time.
    pub block_changes: OrdSet<(TimeMs, HostId, BlockChange)>,
    /// Hosts with a planned block.
    pub planned: OrdSet<HostId>,
    /// Usage of queues and their users.
    pub usage: UsageByQueue,
    /// Bound and free cells of the virtual clusters; empty while there is none.
    pub allocation: Allocation,
    /// Attempts that end on their own, by time ([`Attempt::deadline`]).
    pub deadlines: OrdSet<(TimeMs, UnitId)>,
    /// Gangs whose members are all prepared and that are not released yet.
    pub prepared_gangs: OrdSet<UnitId>,
    /// Gangs that continue although one member's place is vacant.
    pub vacant: OrdSet<UnitId>,
    /// Attempts in preemption order.
    pub attempts: Attempts,
    /// GPUs that attempts in cells hold, by host.
    pub held_in_cells: HeldInCells,
    /// Dependencies of jobs that wait for others to end; such jobs are not in `waiting`.
    pub open_dependencies: OpenDependencies,
    /// Suspended jobs; they are not in `waiting`.
    pub suspended: OrdSet<JobId>,
    /// Jobs of each pipeline that are still kept.
    pub pipelines: OrdMap<PipelineId, OrdSet<JobId>>,
    /// Progress of the claims, by unit.
    pub claims: OrdMap<UnitId, ClaimProgress>,
}

/// A scheduled change of a host's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockChange {
    /// The planned block begins.
    Begins,
    /// The block of the host ends, or of the GPU at a position.
    Ends(Option<u32>),
}

/// Remaining work before a claim is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimProgress {
    /// Hosts with claimed resources.
    pub hosts: u32,
    /// Claimed GPUs still held by other work; at 0 the claim is ready as far as GPUs are concerned.
    pub gpus_held: u32,
}

/// All queues by name.
type Queues = OrdMap<Arc<str>, Arc<Queue>>;

/// Contribution of one host to the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEntries {
    /// Free GPUs, if it accepts work.
    free_gpus: Option<u32>,
    /// GPUs reported as unfit by its worker.
    unfit_gpus: u32,
    /// Free GPUs by model, if it accepts work; hosts have one or two models.
    pub(super) by_model: Vec<(Arc<str>, u32)>,
    block_changes: Vec<(TimeMs, BlockChange)>,
    load: HostLoad,
    totals: Totals,
    /// Units with a claim here, with the number of claimed GPUs that are held.
    claims: Vec<(UnitId, u32)>,
}

impl HostEntries {
    pub(crate) fn of(host: &Host) -> Self {
        let mut entries = Self {
            load: HostLoad::of(host),
            totals: Totals::of(host),
            ..Self::default()
        };
        if host.accepts_work() {
            entries.count_free(host);
        }
        let unfit = host
            .gpus
            .iter()
            .filter(|gpu| gpu.health != GpuHealth::Healthy);
        entries.unfit_gpus = u32::try_from(unfit.count()).unwrap_or(u32::MAX);
        entries.claims = host
            .claims
            .iter()
            .map(|claim| held_of(host, claim))
            .collect();
        let blocks = host.gpus.iter().zip(0u32..);
        let on_gpus = blocks.map(|(gpu, position)| (&gpu.block, Some(position)));
        for (block, position) in std::iter::once((&host.block, None)).chain(on_gpus) {
            let expiry = block.as_ref().and_then(|block| block.expires_at);
            let ends = expiry.map(|expires_at| (expires_at, BlockChange::Ends(position)));
            entries.block_changes.extend(ends);
        }
        let planned = host.planned.as_ref().and_then(|block| block.planned);
        let begins = planned.map(|planned| (planned.at, BlockChange::Begins));
        entries.block_changes.extend(begins);
        entries
    }

    fn has_plan(&self) -> bool {
        let mut changes = self.block_changes.iter();
        changes.any(|(_, change)| *change == BlockChange::Begins)
    }

    /// Whether its pool counts the host unchanged, judging by these entries.
    pub(crate) const fn has_equal_pool_counts(&self, other: &Self) -> bool {
        self.free_gpus.is_some() == other.free_gpus.is_some() && self.unfit_gpus == other.unfit_gpus
    }

    fn count_free(&mut self, host: &Host) {
        let mut total = 0;
        for gpu in &host.gpus {
            let free = u32::from(gpu.is_free() && gpu.claim.is_none());
            total += free;
            let known = self
                .by_model
                .iter_mut()
                .find(|(model, _)| *model == gpu.model);
            match known {
                Some((_, count)) => *count += free,
                None => self.by_model.push((Arc::clone(&gpu.model), free)),
            }
        }
        self.free_gpus = Some(total);
    }

    /// Returns the free GPUs of a model, if the host has any GPU of it.
    pub(super) fn of_model(&self, model: &str) -> Option<u32> {
        let known = self.by_model.iter().find(|(known, _)| **known == *model);
        known.map(|(_, count)| *count)
    }

    /// Returns every class of the host with its free GPUs.
    fn classes(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.free_gpus.map(|count| ("", count));
        let by_model = self
            .by_model
            .iter()
            .filter(|(model, _)| !model.is_empty())
            .map(|(model, count)| (model.as_ref(), *count));
        all.into_iter().chain(by_model)
    }
}

/// Returns the claiming unit and the number of its claimed GPUs on the host that are held.
fn held_of(host: &Host, claim: &HostClaim) -> (UnitId, u32) {
    let claimant = claim.unit_id();
    let claimed = host.gpus.iter().filter(|gpu| gpu.claim == Some(claimant));
    let held = claimed.filter(|gpu| gpu.holder.is_some()).count();
    (claimant, u32::try_from(held).unwrap_or(u32::MAX))
}

impl Index {
    /// Derives all lookup tables from the rest of the state.
    #[must_use]
    pub fn rebuild(state: &State) -> Self {
        let mut index = Self::default();
        index.place_hosts(state.cluster_tree(), &state.hosts);
        for host in state.hosts.values() {
            index.replace_host(host.id, &HostEntries::default(), &HostEntries::of(host));
        }
        for job in state.jobs.values() {
            index.add_job(state, job);
        }
        index.allocation = Allocation::by_tree(state, &index.tree);
        index.pools = Pools::of(state);
        index
    }

    fn add_job(&mut self, state: &State, job: &Job) {
        if let Some(finished_at) = job.finished_at {
            self.finished.insert((finished_at, job.id));
            self.run_times.learn(job);
        }
        self.hold(&state.jobs, job);
        self.add_to_pipeline(job);
        if job.wants_room() && !self.is_held(job.id) {
            self.add_waiting(&state.queues, job);
        }
        if job.suspension.is_some() {
            self.suspended.insert(job.id);
        }
        let places = job.spec.task_weights();
        for (index, unit) in &job.units {
            let id = UnitId::new(job.id, *index);
            if unit.phase == UnitPhase::Waiting && unit.not_before > state.time {
                self.delayed.insert((unit.not_before, id));
            }
            if let Some(claim) = &unit.claim {
                let amounts = usage::amounts_of(&state.hosts, &job.spec, &claim.tasks);
                self.add_usage(&job.spec, UsageKind::Claimed, &amounts);
            }
            if let Some(attempt) = &unit.attempt {
                self.add_deadline(id, job, attempt);
                self.add_attempt(id, &job.spec, unit);
                if attempt.is_whole() {
                    self.prepared_gangs.insert(id);
                }
                self.add_vacancy(id, state.time, attempt);
                for task in &attempt.tasks {
                    self.units_on_host.insert((task.host, id), attempt.epoch);
                    self.add_task(task.host, places.of(task.task));
                }
                let amounts = usage::amounts_held(&state.hosts, &job.spec, attempt);
                self.add_usage(&job.spec, UsageKind::held_by(attempt), &amounts);
            }
        }
    }

    /// Adds a job to its pipeline.
    pub(crate) fn add_to_pipeline(&mut self, job: &Job) {
        if let Some(mark) = &job.pipeline {
            self.pipelines.entry(mark.id).or_default().insert(job.id);
        }
    }

    /// Removes a forgotten job from its pipeline, and the pipeline with its last job.
    pub(crate) fn forget_in_pipeline(&mut self, job: &Job) {
        let Some(mark) = &job.pipeline else {
            return;
        };
        if let Some(jobs) = self.pipelines.get_mut(&mark.id) {
            jobs.remove(&job.id);
            if jobs.is_empty() {
                self.pipelines.remove(&mark.id);
            }
        }
    }

    /// Adds a job that has waiting units.
    pub(crate) fn add_waiting(&mut self, queues: &Queues, job: &Job) {
        let (class, key) = WaitingClass::of(queues, job);
        self.waiting.entry(class).or_default().insert(key);
    }

    /// Removes a job that has no waiting units any more.
    pub(crate) fn remove_waiting(&mut self, queues: &Queues, job: &Job) {
        let (class, key) = WaitingClass::of(queues, job);
        if let Some(jobs) = self.waiting.get_mut(&class) {
            jobs.remove(&key);
            if jobs.is_empty() {
                self.waiting.remove(&class);
            }
        }
    }

    /// Sorts all waiting jobs into classes again, after the queue configuration changed.
    pub(crate) fn reclassify_waiting(&mut self, queues: &Queues, jobs: &OrdMap<JobId, Arc<Job>>) {
        let waiting = std::mem::take(&mut self.waiting);
        for (_, job) in waiting.values().flatten() {
            if let Some(job) = jobs.get(job) {
                self.add_waiting(queues, job);
            }
        }
    }

    /// Returns the units that hold resources on a host, ascending.
    pub fn units_on(&self, host: HostId) -> impl Iterator<Item = UnitId> {
        let units = self
            .units_on_host
            .range((host, UnitId::MIN)..=(host, UnitId::MAX));
        units.map(|((_, unit), _)| *unit)
    }

    /// Returns the units of one job that hold resources on a host, ascending.
    pub fn units_of_job_on(&self, job: JobId, host: HostId) -> impl Iterator<Item = UnitId> {
        let (first, last) = UnitId::all_of(job).into_inner();
        let units = self.units_on_host.range((host, first)..=(host, last));
        units.map(|((_, unit), _)| *unit)
    }

    /// Adds a task with this number of places to a host.
    pub(crate) fn add_task(&mut self, host: HostId, places: u32) {
        let known = self.tasks.entry(host).or_default();
        known.count += 1;
        known.places += places;
    }

    /// Removes a task with this number of places from a host.
    pub(crate) fn remove_task(&mut self, host: HostId, places: u32) {
        if let Some(known) = self.tasks.get_mut(&host) {
            known.count -= 1;
            known.places -= places;
            if known.count == 0 {
                self.tasks.remove(&host);
            }
        }
    }

    /// Adds a gang if it continues with a vacant place.
    pub(crate) fn add_vacancy(&mut self, id: UnitId, now: TimeMs, attempt: &Attempt) {
        let Some(vacancy) = attempt.open_vacancy() else {
            return;
        };
        self.vacant.insert(id);
        if vacancy.not_before > now {
            self.delayed.insert((vacancy.not_before, id));
        }
    }

    /// Removes a gang from those that need a replacement member.
    pub(crate) fn remove_vacancy(&mut self, id: UnitId, attempt: &Attempt) {
        if let Some(vacancy) = attempt.vacancy() {
            self.vacant.remove(&id);
            self.delayed.remove(&(vacancy.not_before, id));
        }
    }

    /// Adds the deadline of an attempt, if its job sets one.
    pub(crate) fn add_deadline(&mut self, id: UnitId, job: &Job, attempt: &Attempt) {
        if let Some((at, _)) = attempt.deadline(job) {
            self.deadlines.insert((at, id));
        }
    }

    /// Removes the deadline of an attempt; called before it ends or the deadline changes.
    pub(crate) fn remove_deadline(&mut self, id: UnitId, job: &Job, attempt: &Attempt) {
        if let Some((at, _)) = attempt.deadline(job) {
            self.deadlines.remove(&(at, id));
        }
    }

    /// Adds amounts to the usage of a job's queue and user.
    pub(crate) fn add_usage(&mut self, spec: &JobSpec, part: UsageKind, amounts: &Amounts) {
        usage::add(&mut self.usage, spec, part, amounts);
    }

    /// Subtracts amounts from the usage of a job's queue and user.
    pub(crate) fn remove_usage(&mut self, spec: &JobSpec, part: UsageKind, amounts: &Amounts) {
        usage::remove(&mut self.usage, spec, part, amounts);
    }

    /// Replaces the contribution of a host.
    pub(crate) fn replace_host(&mut self, host: HostId, before: &HostEntries, after: &HostEntries) {
        if before == after {
            return;
        }
        self.allocation.set_load(host, after.load);
        self.totals.replace(&before.totals, &after.totals);
        for (class, count) in before.classes() {
            self.remove_free(class, count, host);
        }
        for (class, count) in after.classes() {
            self.insert_free(class, count, host);
        }
        self.recount_cells(host, before, after);
        for (at, change) in &before.block_changes {
            self.block_changes.remove(&(*at, host, *change));
        }
        for (at, change) in &after.block_changes {
            self.block_changes.insert((*at, host, *change));
        }
        match after.has_plan() {
            true => self.planned.insert(host),
            false => self.planned.remove(&host),
        };
        self.replace_claims(&before.claims, &after.claims);
    }

    fn replace_claims(&mut self, before: &[(UnitId, u32)], after: &[(UnitId, u32)]) {
        for (claimant, gpus_held) in after {
            let progress = self.claims.entry(*claimant).or_default();
            progress.hosts += 1;
            progress.gpus_held += gpus_held;
        }
        for (claimant, gpus_held) in before {
            if let Some(progress) = self.claims.get_mut(claimant) {
                progress.hosts -= 1;
                progress.gpus_held -= gpus_held;
                if progress.hosts == 0 {
                    self.claims.remove(claimant);
                }
            }
        }
    }

    fn remove_free(&mut self, class: &str, count: u32, host: HostId) {
        if let Some(hosts) = self.free.get_mut(class) {
            hosts.remove(&(count, host));
            if hosts.is_empty() {
                self.free.remove(class);
            }
        }
    }

    fn insert_free(&mut self, class: &str, count: u32, host: HostId) {
        match self.free.get_mut(class) {
            Some(hosts) => {
                hosts.insert((count, host));
            }
            None => {
                self.free
                    .insert(Arc::from(class), OrdSet::unit((count, host)));
            }
        }
    }

    /// Removes back-offs that are over.
    pub(crate) fn end_delays(&mut self, time: TimeMs) {
        while let Some(first) = self.delayed.get_min().copied() {
            if first.0 > time {
                break;
            }
            self.delayed.remove(&first);
        }
    }
}
