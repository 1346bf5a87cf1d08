//! Running attempts with their expected ends, as the planner considers them for preemption and reservations.

use std::collections::BTreeSet;

use muster_engine::desired::units_on;
use muster_engine::state::{BasisKind, Job, Running, State};
use muster_model::command::TaskPlacement;
use muster_model::host::Host;
use muster_model::ids::{GpuUuid, HostId};
use muster_model::spec::{Packing, Resources, TaskGroup};
use muster_model::time::TimeMs;

use crate::capacity::Capacity;

/// Expected end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The best estimate.
    pub(super) at: TimeMs,
    /// Whether the end is known from a time limit or experience, not only estimated from the attempt's age.
    pub(super) is_known: bool,
}

/// Test whether the end of a running attempt could make room for a unit.
pub(super) struct Useful<'j> {
    job: &'j Job,
    /// Whether its groups accept the GPUs of every model.
    any_model: bool,
}

/// CPUs (thousandths), memory (MiB) and task slots that the tasks of a unit would need on one host.
#[derive(Default)]
struct HostDemand {
    cpus_milli: u64,
    memory_mib: u64,
    slots: u64,
}

impl HostDemand {
    fn add(&mut self, group: &TaskGroup, tasks: u64) {
        let Resources {
            cpus_milli,
            memory_mib,
            ..
        } = group.resources;
        let add = |sum: &mut u64, each: u64| *sum = sum.saturating_add(each.saturating_mul(tasks));
        add(&mut self.cpus_milli, u64::from(cpus_milli));
        add(&mut self.memory_mib, memory_mib);
        add(&mut self.slots, u64::from(group.task_weight()));
    }
}

impl<'j> Useful<'j> {
    pub(super) fn for_job(state: &State, job: &'j Job) -> Self {
        let useful = Self {
            job,
            any_model: false,
        };
        let mut models = state.index.free.keys().filter(|class| !class.is_empty());
        let any_model = models.all(|model| useful.is_accepted(model));
        Self {
            any_model,
            ..useful
        }
    }

    /// Whether an attempt holds something that the unit could use: GPUs of an accepted model; CPUs, memory or
    /// task slots where the unit's tasks would find too few; or a host for itself, if one of them needs that.
    pub(super) fn has(&self, capacity: &Capacity<'_>, running: &Running<'_>) -> bool {
        let is_exclusive = |job: &Job| job.spec.scheduling.packing == Packing::Exclusive;
        let excludes = is_exclusive(self.job) || is_exclusive(running.job);
        running.attempt.tasks.iter().any(|run| {
            let Some(host) = capacity.state().host(run.host) else {
                return false;
            };
            let demand = || self.demand(host);
            self.holds_gpu(host, &run.gpus)
                || demand().is_some_and(|demand| excludes || is_short(capacity, host, &demand))
        })
    }

    fn is_accepted(&self, model: &str) -> bool {
        let mut groups = self.job.spec.groups.iter();
        groups.any(|group| group.resources.gpus > 0 && group.resources.accepts_model(model))
    }

    /// Whether a task on a host holds a GPU that the unit could use.
    fn holds_gpu(&self, host: &Host, gpus: &[GpuUuid]) -> bool {
        let Some(first) = gpus.first() else {
            return false;
        };
        let model = || host.gpus.iter().find(|gpu| gpu.uuid == *first);
        self.any_model || model().is_some_and(|gpu| self.is_accepted(&gpu.model))
    }

    /// The most that tasks of the unit would need on a host beside GPUs; `None` if none of them may run there.
    fn demand(&self, host: &Host) -> Option<HostDemand> {
        let spec = &self.job.spec;
        let mut demand = HostDemand::default();
        for group in &spec.groups {
            let tasks = if spec.gang { group.count } else { 1 };
            let gpus = group.resources.gpus;
            let accepted = || {
                let models = host.gpus.iter().map(|gpu| &gpu.model);
                models.filter(|model| group.resources.accepts_model(model))
            };
            let there = if gpus == 0 {
                u64::from(tasks)
            } else {
                u64::from(tasks).min(accepted().count() as u64 / u64::from(gpus))
            };
            demand.add(group, there);
        }
        (demand.slots > 0).then_some(demand)
    }
}

/// Whether a host has less free than is needed there, GPUs aside.
fn is_short(capacity: &Capacity<'_>, host: &Host, demand: &HostDemand) -> bool {
    let room = capacity.room_of(host);
    let (cpus_milli, memory_mib) = room.free();
    u64::from(cpus_milli) < demand.cpus_milli
        || memory_mib < demand.memory_mib
        || u64::from(room.free_slots()) < demand.slots
}

impl End {
    /// Expected end of an attempt: at its time limit at the latest; by experience with its kind; otherwise
    /// after as long a time as it has already run. An attempt being stopped ends with its grace period. Time in
    /// which its tasks were paused does not count; the end of an attempt that is paused now is not known.
    pub(super) fn of(state: &State, running: &Running<'_>, now: TimeMs) -> Self {
        let known_end = |at| Self { at, is_known: true };
        let Running { job, attempt, .. } = *running;
        if let Some(stop) = &attempt.stop {
            return known_end(stop.at.after(stop.grace_ms).max(now));
        }
        let began = attempt.running_at.unwrap_or(attempt.placed_at);
        let since = began.after(attempt.paused_ms());
        let spec = &job.spec;
        let limit_ms = spec.scheduling.run_time_ms_max;
        let at_limit = limit_ms.map(|limit_ms| since.after(limit_ms).max(now));
        let usual_ms = state.index.run_times.usual_ms(spec);
        // Experience does not apply to an attempt that has already run longer than usual.
        let as_usual = usual_ms
            .map(|usual_ms| since.after(usual_ms))
            .filter(|end| *end > now);
        match (at_limit, as_usual) {
            (Some(end), _) | (_, Some(end)) if job.is_paused() => Self {
                at: end,
                is_known: false,
            },
            (Some(at_limit), Some(as_usual)) => known_end(at_limit.min(as_usual)),
            (Some(end), None) | (None, Some(end)) => known_end(end),
            (None, None) => Self {
                at: now.after(now.since(since)),
                is_known: false,
            },
        }
    }
}

/// All attempts that hold resources, by expected end.
pub(super) fn by_end(state: &State, now: TimeMs) -> Vec<(End, Running<'_>)> {
    let keys = state.index.attempts.values().flatten();
    let running = keys.filter_map(|key| {
        let running = Running::of(state, key.unit_id())?;
        Some((End::of(state, &running, now), running))
    });
    let mut ending: Vec<_> = running.collect();
    ending.sort_unstable_by_key(|(end, running)| (end.at, running.unit_id()));
    ending
}

/// Attempts that are being stopped.
pub(super) fn stopping(state: &State) -> impl Iterator<Item = Running<'_>> {
    let classes = state.index.attempts.iter();
    let stopping = classes.take_while(|(class, _)| class.basis == BasisKind::Stopping);
    stopping
        .flat_map(|(_, keys)| keys)
        .filter_map(|key| Running::of(state, key.unit_id()))
}

/// Time at which the last attempt that is being stopped on the hosts of a placement has ended; `now` if there is none.
pub(super) fn stops_end(state: &State, tasks: &[TaskPlacement], now: TimeMs) -> TimeMs {
    let hosts: BTreeSet<HostId> = tasks.iter().map(|task| task.host).collect();
    let running = hosts.into_iter().flat_map(|host| units_on(state, host));
    running
        .filter(|running| running.attempt.stop.is_some())
        .map(|running| End::of(state, &running, now).at)
        .fold(now, TimeMs::max)
}
