//! Look-ups derived from the rest of the state, kept up to date by `apply`, so that no decision scans
//! all hosts or all jobs.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::command::GpuHealth;
use muster_model::host::{Host, HostClaim};
use muster_model::ids::{AttemptEpoch, HostId, JobId, PipelineId, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::quota::Amounts;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use muster_model::topology::{ClusterTree, HostCells};

use crate::cells::{Allocation, HostLoad};
use crate::state::usage::{self, Part, UsageByQueue};
use crate::state::{
    Attempt, Attempts, CellIndex, Held, HeldInCells, Job, Line, Pools, Queue, RunTimes, State,
    Totals, WaitingKey,
};

/// Hosts of one kind: those that carry the same GPU model (empty for all hosts, GPUs or not).
pub type HostClass = Arc<str>;

/// The tasks that hold resources on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TasksOnHost {
    /// How many.
    pub count: u32,
    /// As how many they count ([`TaskGroup::places`](muster_model::spec::TaskGroup::places)).
    pub places: u32,
}

/// Derived look-ups; rebuilt from the rest when a snapshot is read. No empty set is kept in a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Jobs with waiting units that wait for no other job and are not suspended, by line ([`Line::of`]), in order.
    pub waiting: OrdMap<Line, OrdSet<WaitingKey>>,
    /// What the registered hosts have in all, whatever became of them.
    pub totals: Totals,
    /// Units that wait for the end of a back-off that is not over at `State::time`, by that end (they
    /// are in `waiting` too, or in `vacant`).
    pub delayed: OrdSet<(TimeMs, JobId, UnitIndex)>,
    /// Hosts that accept work, by class and number of GPUs of that model that are free and not claimed, 0 included. A host with
    /// two models is in two classes; the class with the empty name holds every host that accepts work,
    /// with all its free GPUs.
    pub free: OrdMap<HostClass, OrdSet<(u32, HostId)>>,
    /// Units that hold resources on a host.
    pub on_host: OrdMap<(HostId, JobId, UnitIndex), AttemptEpoch>,
    /// Tasks that hold resources on a host; none without an entry.
    pub tasks: OrdMap<HostId, TasksOnHost>,
    /// Finished jobs, oldest first.
    pub finished: OrdSet<(TimeMs, JobId)>,
    /// The cells around and inside every host.
    pub host_cells: OrdMap<HostId, Arc<HostCells>>,
    /// The cells above hosts with what is free in them.
    pub cells: CellIndex,
    /// Where hosts lie, by configuration and by their workers' word.
    pub tree: ClusterTree,
    /// How long work usually runs.
    pub run_times: RunTimes,
    /// Pools of hosts with what is out of placement of them.
    pub pools: Pools,
    /// Blocks that begin or end by themselves, by when.
    pub block_changes: OrdSet<(TimeMs, HostId, BlockChange)>,
    /// Hosts for which a block is planned.
    pub planned: OrdSet<HostId>,
    /// What queues and their users have.
    pub usage: UsageByQueue,
    /// Which cells are bound to which virtual cluster and which are free; empty while there is none.
    pub allocation: Allocation,
    /// Attempts that end by themselves, by when ([`Attempt::deadline`]).
    pub deadlines: OrdSet<(TimeMs, JobId, UnitIndex)>,
    /// Gangs all of whose members are prepared, and that are not let go yet.
    pub whole: OrdSet<(JobId, UnitIndex)>,
    /// Gangs that go on although the place of one member is vacant.
    pub vacant: OrdSet<(JobId, UnitIndex)>,
    /// Attempts in the order in which they would be stopped for others.
    pub attempts: Attempts,
    /// What attempts in cells hold of every host.
    pub held_in_cells: HeldInCells,
    /// Jobs that wait for others to end: none of them is in `waiting`.
    pub held: Held,
    /// Jobs that are suspended: none of them is in `waiting`.
    pub suspended: OrdSet<JobId>,
    /// The jobs of each pipeline that are not forgotten.
    pub pipelines: OrdMap<PipelineId, OrdSet<JobId>>,
    /// Units that have a claim.
    pub claims: OrdMap<(JobId, UnitIndex), ClaimProgress>,
}

/// What becomes of a host's blocks by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockChange {
    /// The one that is planned begins.
    Begins,
    /// The one of the host is over, or of the GPU at a position.
    Ends(Option<u32>),
}

/// How far a claim is from being ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimProgress {
    /// Hosts on which it claims something.
    pub hosts: u32,
    /// Claimed GPUs that somebody still holds; with 0 it is ready, as far as GPUs are concerned.
    pub gpus_held: u32,
}

/// All queues by name.
type Queues = OrdMap<Arc<str>, Arc<Queue>>;

/// What one host contributes to the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEntries {
    /// Free GPUs, if it accepts work.
    free_gpus: Option<u32>,
    /// GPUs that its worker calls unfit.
    unfit_gpus: u32,
    /// Free GPUs by model, if it accepts work; hosts have one or two models.
    pub(super) by_model: Vec<(Arc<str>, u32)>,
    block_changes: Vec<(TimeMs, BlockChange)>,
    load: HostLoad,
    totals: Totals,
    /// Units with a claim here, and how many of the GPUs that they claim are held.
    claims: Vec<((JobId, UnitIndex), u32)>,
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
        let unfit = { host.gpus.iter() }.filter(|gpu| gpu.health != GpuHealth::Healthy);
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

    /// Whether its pool counts the host as before, as far as one can see from here.
    pub(crate) const fn counts_as(&self, other: &Self) -> bool {
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

    /// Free GPUs of a model, if it has any GPU of it.
    pub(super) fn of_model(&self, model: &str) -> Option<u32> {
        let known = self.by_model.iter().find(|(known, _)| **known == *model);
        known.map(|(_, count)| *count)
    }

    /// Every class the host is in, with its free GPUs.
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

/// The claimant, and how many of the GPUs that it claims on the host are held.
fn held_of(host: &Host, claim: &HostClaim) -> ((JobId, UnitIndex), u32) {
    let claimant = (claim.job, claim.unit);
    let claimed = host.gpus.iter().filter(|gpu| gpu.claim == Some(claimant));
    let held = claimed.filter(|gpu| gpu.holder.is_some()).count();
    (claimant, u32::try_from(held).unwrap_or(u32::MAX))
}

impl Index {
    /// Derives all look-ups from the rest of the state.
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
        let places = job.spec.places();
        for (index, unit) in &job.units {
            if unit.phase == UnitPhase::Waiting && unit.not_before > state.time {
                self.delayed.insert((unit.not_before, job.id, *index));
            }
            if let Some(claim) = &unit.claim {
                let amounts = usage::amounts_of(&state.hosts, &job.spec, &claim.tasks);
                self.add_usage(&job.spec, Part::Claimed, &amounts);
            }
            if let Some(attempt) = &unit.attempt {
                self.add_deadline((job.id, *index), &job.spec, attempt);
                self.add_attempt((job.id, *index), &job.spec, unit);
                if attempt.is_whole() {
                    self.whole.insert((job.id, *index));
                }
                self.add_vacancy((job.id, *index), state.time, attempt);
                for task in &attempt.tasks {
                    self.on_host
                        .insert((task.host, job.id, *index), attempt.epoch);
                    self.add_task(task.host, places.of(task.task));
                }
                let amounts = usage::amounts_held(&state.hosts, &job.spec, attempt);
                self.add_usage(&job.spec, Part::held_by(attempt), &amounts);
            }
        }
    }

    /// Notes a job among those of its pipeline.
    pub(crate) fn add_to_pipeline(&mut self, job: &Job) {
        if let Some(mark) = &job.pipeline {
            self.pipelines.entry(mark.id).or_default().insert(job.id);
        }
    }

    /// A job is forgotten; its pipeline is with the last one.
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

    /// A job has waiting units now.
    pub(crate) fn add_waiting(&mut self, queues: &Queues, job: &Job) {
        let (line, key) = Line::of(queues, job);
        self.waiting.entry(line).or_default().insert(key);
    }

    /// A job has no waiting units any more.
    pub(crate) fn remove_waiting(&mut self, queues: &Queues, job: &Job) {
        let (line, key) = Line::of(queues, job);
        if let Some(jobs) = self.waiting.get_mut(&line) {
            jobs.remove(&key);
            if jobs.is_empty() {
                self.waiting.remove(&line);
            }
        }
    }

    /// The queues were configured anew: jobs may stand in other lines now.
    pub(crate) fn line_up_again(&mut self, queues: &Queues, jobs: &OrdMap<JobId, Arc<Job>>) {
        let lines = std::mem::take(&mut self.waiting);
        for (_, job) in lines.values().flatten() {
            if let Some(job) = jobs.get(job) {
                self.add_waiting(queues, job);
            }
        }
    }

    /// A task that counts as so many holds resources on a host.
    pub(crate) fn add_task(&mut self, host: HostId, places: u32) {
        let known = self.tasks.entry(host).or_default();
        known.count += 1;
        known.places += places;
    }

    /// A task that counted as so many holds resources on a host no longer.
    pub(crate) fn remove_task(&mut self, host: HostId, places: u32) {
        if let Some(known) = self.tasks.get_mut(&host) {
            known.count -= 1;
            known.places -= places;
            if known.count == 0 {
                self.tasks.remove(&host);
            }
        }
    }

    /// A gang may have lost a member while it goes on.
    pub(crate) fn add_vacancy(&mut self, id: (JobId, UnitIndex), now: TimeMs, attempt: &Attempt) {
        let Some(vacancy) = attempt.open_vacancy() else {
            return;
        };
        self.vacant.insert(id);
        if vacancy.not_before > now {
            self.delayed.insert((vacancy.not_before, id.0, id.1));
        }
    }

    /// Nobody is looked for any more to take a member's place.
    pub(crate) fn remove_vacancy(&mut self, id: (JobId, UnitIndex), attempt: &Attempt) {
        if let Some(vacancy) = attempt.vacancy() {
            self.vacant.remove(&id);
            self.delayed.remove(&(vacancy.not_before, id.0, id.1));
        }
    }

    /// An attempt is to end by itself, if its job says so.
    pub(crate) fn add_deadline(
        &mut self,
        (job, unit): (JobId, UnitIndex),
        spec: &JobSpec,
        attempt: &Attempt,
    ) {
        if let Some((at, _)) = attempt.deadline(spec) {
            self.deadlines.insert((at, job, unit));
        }
    }

    /// An attempt does not end by itself any more, or at another time.
    pub(crate) fn remove_deadline(
        &mut self,
        (job, unit): (JobId, UnitIndex),
        spec: &JobSpec,
        attempt: &Attempt,
    ) {
        if let Some((at, _)) = attempt.deadline(spec) {
            self.deadlines.remove(&(at, job, unit));
        }
    }

    /// A job has so much more.
    pub(crate) fn add_usage(&mut self, spec: &JobSpec, part: Part, amounts: &Amounts) {
        usage::add(&mut self.usage, spec, part, amounts);
    }

    /// A job has so much less.
    pub(crate) fn remove_usage(&mut self, spec: &JobSpec, part: Part, amounts: &Amounts) {
        usage::remove(&mut self.usage, spec, part, amounts);
    }

    /// Replaces what a host contributes.
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

    fn replace_claims(
        &mut self,
        before: &[((JobId, UnitIndex), u32)],
        after: &[((JobId, UnitIndex), u32)],
    ) {
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

    /// Forgets the back-offs that are over.
    pub(crate) fn end_delays(&mut self, time: TimeMs) {
        while let Some(first) = self.delayed.get_min().copied() {
            if first.0 > time {
                break;
            }
            self.delayed.remove(&first);
        }
    }
}
