//! Look-ups derived from the rest of the state, kept up to date by `apply`, so that no decision scans
//! all hosts or all jobs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::cells::{Allocation, HostLoad};
use crate::ids::{AttemptEpoch, HostId, JobId, UnitIndex};
use crate::lifecycle::UnitPhase;
use crate::quota::Amounts;
use crate::spec::JobSpec;
use crate::state::usage::{self, Part, UsageByQueue};
use crate::state::{Host, Job, State};
use crate::time::TimeMs;

/// Hosts of one kind: those that carry the same GPU model (empty for all hosts, GPUs or not).
pub type HostClass = Arc<str>;

/// Order in which jobs are considered: highest priority first, then the oldest.
pub type WaitingKey = (Reverse<i32>, JobId);

/// Which hosts the tasks of a job compete for. A waiting job holds up those behind it whose lane meets
/// its own, and nobody else, so a full cluster is noticed after one look per lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// It needs no GPU.
    Cpu,
    /// It takes GPUs of these models, ascending.
    Models(Arc<[String]>),
    /// It takes GPUs of any model.
    AnyGpu,
}

impl Lane {
    /// The lane of a job.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        let asking = || spec.groups.iter().filter(|group| group.resources.gpus > 0);
        if asking().next().is_none() {
            return Self::Cpu;
        }
        if asking().any(|group| group.resources.gpu_models.is_empty()) {
            return Self::AnyGpu;
        }
        let models: BTreeSet<&String> = asking()
            .flat_map(|group| &group.resources.gpu_models)
            .collect();
        Self::Models(models.into_iter().cloned().collect())
    }

    /// Whether jobs of the two lanes may want the same GPUs (or both none).
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu, Self::Cpu) => true,
            (Self::Cpu, _) | (_, Self::Cpu) => false,
            (Self::AnyGpu, _) | (_, Self::AnyGpu) => true,
            (Self::Models(ours), Self::Models(theirs)) => {
                ours.iter().any(|model| theirs.contains(model))
            }
        }
    }
}

/// Derived look-ups; rebuilt from the rest when a snapshot is read. No empty set is kept in a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Jobs with waiting units, by queue and lane ([`Lane::of`] their specification), in order.
    pub waiting: OrdMap<(Arc<str>, Lane), OrdSet<WaitingKey>>,
    /// Units that wait for the end of a back-off that is not over at `State::time`, by that end (they
    /// are in `waiting` too).
    pub delayed: OrdSet<(TimeMs, JobId, UnitIndex)>,
    /// Hosts that accept work, by class and number of free GPUs of that model, 0 included. A host with
    /// two models is in two classes; the class with the empty name holds every host that accepts work,
    /// with all its free GPUs.
    pub free: OrdMap<HostClass, OrdSet<(u32, HostId)>>,
    /// Units that hold resources on a host.
    pub on_host: OrdMap<(HostId, JobId, UnitIndex), AttemptEpoch>,
    /// Tasks that hold resources on a host; no entry is 0.
    pub tasks: OrdMap<HostId, u32>,
    /// Finished jobs, oldest first.
    pub finished: OrdSet<(TimeMs, JobId)>,
    /// Blocks that end by themselves: expiry, host, and position of the GPU in it (none = the host).
    pub expiring: OrdSet<(TimeMs, HostId, Option<u32>)>,
    /// What queues and their users have.
    pub usage: UsageByQueue,
    /// Which cells are bound to which virtual cluster and which are free; empty while there is none.
    pub allocation: Allocation,
}

/// What one host contributes to the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostEntries {
    /// Free GPUs, if it accepts work.
    free_gpus: Option<u32>,
    /// Free GPUs by model, if it accepts work; hosts have one or two models.
    by_model: Vec<(Arc<str>, u32)>,
    expiring: Vec<(TimeMs, Option<u32>)>,
    load: HostLoad,
}

impl HostEntries {
    pub(crate) fn of(host: &Host) -> Self {
        let mut entries = Self {
            load: HostLoad::of(host),
            ..Self::default()
        };
        if host.accepts_work() {
            entries.count_free(host);
        }
        let blocks = host.gpus.iter().zip(0u32..);
        let on_gpus = blocks.map(|(gpu, position)| (&gpu.block, Some(position)));
        for (block, position) in std::iter::once((&host.block, None)).chain(on_gpus) {
            let expiry = block.as_ref().and_then(|block| block.expires_at);
            entries
                .expiring
                .extend(expiry.map(|expires_at| (expires_at, position)));
        }
        entries
    }

    fn count_free(&mut self, host: &Host) {
        let mut total = 0;
        for gpu in &host.gpus {
            let free = u32::from(gpu.is_free());
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

impl Index {
    /// Derives all look-ups from the rest of the state.
    #[must_use]
    pub fn rebuild(state: &State) -> Self {
        let mut index = Self::default();
        for host in state.hosts.values() {
            index.replace_host(host.id, &HostEntries::default(), &HostEntries::of(host));
        }
        for job in state.jobs.values() {
            index.add_job(state, job);
        }
        index.allocation = Allocation::rebuild(state);
        index
    }

    fn add_job(&mut self, state: &State, job: &Job) {
        if let Some(finished_at) = job.finished_at {
            self.finished.insert((finished_at, job.id));
        }
        if job.counts.waiting > 0 {
            self.add_waiting(&Arc::from(job.spec.queue.as_str()), job);
        }
        for (index, unit) in &job.units {
            if unit.phase == UnitPhase::Waiting && unit.not_before > state.time {
                self.delayed.insert((unit.not_before, job.id, *index));
            }
            if let Some(claim) = &unit.claim {
                let amounts = usage::amounts_of(&state.hosts, &job.spec, &claim.tasks);
                self.add_usage(&job.spec, Part::Claimed, &amounts);
            }
            if let Some(attempt) = &unit.attempt {
                for task in &attempt.tasks {
                    self.on_host
                        .insert((task.host, job.id, *index), attempt.epoch);
                    self.add_tasks(task.host, 1);
                }
                let amounts = usage::amounts_held(&state.hosts, &job.spec, attempt);
                self.add_usage(&job.spec, Part::held_by(attempt), &amounts);
            }
        }
    }

    /// A job has waiting units now.
    pub(crate) fn add_waiting(&mut self, queue: &Arc<str>, job: &Job) {
        let key = (Arc::clone(queue), Lane::of(&job.spec));
        let entry = (Reverse(job.spec.priority), job.id);
        self.waiting.entry(key).or_default().insert(entry);
    }

    /// A job has no waiting units any more.
    pub(crate) fn remove_waiting(&mut self, queue: &Arc<str>, job: &Job) {
        let key = (Arc::clone(queue), Lane::of(&job.spec));
        if let Some(jobs) = self.waiting.get_mut(&key) {
            jobs.remove(&(Reverse(job.spec.priority), job.id));
            if jobs.is_empty() {
                self.waiting.remove(&key);
            }
        }
    }

    /// So many more tasks hold resources on a host.
    pub(crate) fn add_tasks(&mut self, host: HostId, tasks: u32) {
        *self.tasks.entry(host).or_default() += tasks;
    }

    /// So many fewer tasks hold resources on a host.
    pub(crate) fn remove_tasks(&mut self, host: HostId, tasks: u32) {
        if let Some(count) = self.tasks.get_mut(&host) {
            *count -= tasks;
            if *count == 0 {
                self.tasks.remove(&host);
            }
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
        for (class, count) in before.classes() {
            self.remove_free(class, count, host);
        }
        for (class, count) in after.classes() {
            self.insert_free(class, count, host);
        }
        for (expires_at, position) in &before.expiring {
            self.expiring.remove(&(*expires_at, host, *position));
        }
        for (expires_at, position) in &after.expiring {
            self.expiring.insert((*expires_at, host, *position));
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
