//! Check whether a unit could ever be placed, with every host empty, reachable and unblocked.
//!
//! The only scan over hosts in a round. It stops at the host that proves the unit possible (for a gang, the
//! last one that it needs), and a round runs it once per demand.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use muster_engine::state::{HostClass, Job, State};
use muster_model::host::Host;
use muster_model::ids::{TaskIndex, UnitIndex};
use muster_model::spec::{Resources, TaskGroup};

use crate::Blocker;
use crate::capacity::Capacity;
use crate::sentence::cpus;
use crate::unit::{self, Lack};

/// A group and the number of its tasks in the unit.
type Part<'a> = (&'a TaskGroup, u32);

/// Reason why the cluster could never hold a unit; `None` if it could.
pub(super) fn impossible(state: &State, job: &Job, unit: UnitIndex) -> Option<Blocker> {
    let parts: Vec<Part<'_>> = if job.spec.gang {
        let groups = job.spec.groups.iter();
        groups.map(|group| (group, enough(group))).collect()
    } else {
        let (group, _) = job.spec.group_of(TaskIndex(unit.get()))?;
        vec![(group, 1)]
    };
    match (by_numbers(state, &parts), is_particular(job)) {
        (None, false) => None,
        // The remaining constraints are checked by running the placement search on the empty cluster.
        (by_numbers, true) => {
            let shortage = unit::fits(&Capacity::empty(state), job, unit).err()?;
            // If the search reaches its bound, the result is unknown and the unit waits.
            if shortage.lack == Lack::SearchBound {
                return None;
            }
            by_numbers.or_else(|| Some(no_such_place(job, &parts)))
        }
        (by_numbers, false) => by_numbers,
    }
}

/// Minimum number of tasks of a group.
pub(super) fn enough(group: &TaskGroup) -> u32 {
    let count_min = group.layout.count_min.unwrap_or(group.count);
    count_min.min(group.count)
}

/// Whether amounts alone are not decisive: the job has placement constraints, or its groups may use
/// different models.
fn is_particular(job: &Job) -> bool {
    let scheduling = &job.spec.scheduling;
    let groups = job.spec.groups.iter();
    let asking = groups.filter(|group| group.resources.gpus > 0).count();
    let of_group = |group: &TaskGroup| {
        group.layout.within.is_some()
            || !group.layout.gpus.is_empty()
            || group.execution.container.is_some()
    };
    scheduling.within.is_some()
        || !scheduling.hosts.is_empty()
        || !scheduling.hosts_excluded.is_empty()
        || job.spec.groups.iter().any(of_group)
        || (job.spec.gang && asking > 1)
}

/// The amounts suffice, but no place satisfies the constraints.
fn no_such_place(job: &Job, parts: &[Part<'_>]) -> Blocker {
    let scheduling = &job.spec.scheduling;
    let mut need = no_room(parts);
    let groups = parts.iter().map(|(group, _)| *group);
    let levels = groups
        .clone()
        .filter_map(|group| group.layout.within.as_ref())
        .chain(&scheduling.within)
        .filter(|within| within.required);
    for within in levels {
        let _infallible = write!(need, ", within one cell of level `{}`", within.level);
    }
    if groups.clone().any(|group| !group.layout.gpus.is_empty()) {
        need.push_str(", on the GPUs that are named");
    }
    if groups
        .clone()
        .any(|group| group.execution.container.is_some())
    {
        need.push_str(", on hosts with a container engine");
    }
    if !scheduling.hosts.is_empty() {
        let _infallible = write!(need, ", on {}", scheduling.hosts.join(" or "));
    }
    if !scheduling.hosts_excluded.is_empty() {
        let _infallible = write!(need, ", not on {}", scheduling.hosts_excluded.join(" or "));
    }
    Blocker::NoSuchHost { need }
}

/// Reason why the cluster could never hold the tasks on GPUs of one model, ignoring placement.
fn by_numbers(state: &State, parts: &[Part<'_>]) -> Option<Blocker> {
    if parts.iter().all(|(group, _)| group.resources.gpus == 0) {
        let tally = fill(state, "", parts).err()?;
        return Some(no_such_host(parts, &tally));
    }
    // Models of hosts that accept work come first: they prove most units possible without a scan of all
    // hosts.
    let likely: Vec<HostClass> = state.index.free.keys().cloned().collect();
    let mut tallies = Vec::new();
    for model in likely.into_iter().chain(models_of_cluster(state)) {
        if acceptable(parts, &model) {
            tallies.push(fill(state, &model, parts).err()?);
        }
    }
    let best = tallies.into_iter().max_by_key(|tally| {
        let hosted = tally.hosted.iter().filter(|hosted| **hosted).count();
        (hosted, tally.gpus)
    });
    let tally = best.unwrap_or_default();
    let need_gpus = parts
        .iter()
        .map(|(group, count)| u64::from(*count) * u64::from(group.resources.gpus))
        .sum();
    let is_hosted = !tally.hosted.is_empty() && tally.hosted.iter().all(|hosted| *hosted);
    Some(if is_hosted && tally.gpus < need_gpus {
        Blocker::ExceedsCluster {
            need_gpus,
            have_gpus: tally.gpus,
        }
    } else {
        no_such_host(parts, &tally)
    })
}

/// Findings of an unsuccessful attempt to fill the empty cluster.
#[derive(Debug, Default)]
struct Tally {
    /// Parts for which a host is large enough for one task.
    hosted: Vec<bool>,
    /// Total GPUs of the model.
    gpus: u64,
}

/// Fills one host after the other with the parts' tasks, using GPUs of one model only.
fn fill(state: &State, model: &str, parts: &[Part<'_>]) -> Result<(), Tally> {
    let mut left: Vec<u32> = parts.iter().map(|(_, count)| *count).collect();
    let mut tally = Tally {
        hosted: vec![false; parts.len()],
        gpus: 0,
    };
    for host in state.hosts.values() {
        let mut empty = Empty::of(host, model);
        tally.gpus += u64::from(empty.gpus);
        for (position, (group, _)) in parts.iter().enumerate() {
            tally.hosted[position] |= Empty::of(host, model).tasks(&group.resources) > 0;
            let count = empty
                .tasks(&group.resources)
                .min(left[position])
                .min(group.tasks_per_host_max.unwrap_or(u32::MAX));
            left[position] -= count;
            empty.deduct(&group.resources, count);
        }
        if left.iter().all(|left| *left == 0) {
            return Ok(());
        }
    }
    Err(tally)
}

/// Remaining GPUs of one model, CPUs and memory of an empty host.
struct Empty {
    gpus: u32,
    cpus_milli: u32,
    memory_mib: u64,
}

impl Empty {
    fn of(host: &Host, model: &str) -> Self {
        let gpus = host.gpus.iter().filter(|gpu| *gpu.model == *model).count();
        Self {
            gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
            cpus_milli: host.cpus_milli,
            memory_mib: host.memory_mib,
        }
    }

    fn tasks(&self, asked: &Resources) -> u32 {
        let by_gpus = self.gpus.checked_div(asked.gpus);
        let by_cpus = self.cpus_milli.checked_div(asked.cpus_milli);
        let by_memory = self.memory_mib.checked_div(asked.memory_mib);
        by_gpus
            .unwrap_or(u32::MAX)
            .min(by_cpus.unwrap_or(u32::MAX))
            .min(by_memory.map_or(u32::MAX, |tasks| u32::try_from(tasks).unwrap_or(u32::MAX)))
    }

    fn deduct(&mut self, asked: &Resources, count: u32) {
        self.gpus -= count * asked.gpus;
        self.cpus_milli -= count * asked.cpus_milli;
        self.memory_mib -= u64::from(count) * asked.memory_mib;
    }
}

/// Whether every part that needs GPUs may run on this model.
fn acceptable(parts: &[Part<'_>], model: &str) -> bool {
    !model.is_empty()
        && parts
            .iter()
            .all(|(group, _)| group.resources.gpus == 0 || group.resources.accepts_model(model))
}

/// All GPU models; computed lazily, because it visits every GPU.
fn models_of_cluster(state: &State) -> impl Iterator<Item = HostClass> {
    std::iter::once_with(|| {
        let gpus = state.hosts.values().flat_map(|host| &host.gpus);
        gpus.map(|gpu| HostClass::clone(&gpu.model))
            .collect::<BTreeSet<_>>()
    })
    .flatten()
}

fn no_such_host(parts: &[Part<'_>], tally: &Tally) -> Blocker {
    let unhosted = parts
        .iter()
        .enumerate()
        .find(|(position, _)| tally.hosted.get(*position) != Some(&true));
    let need = match unhosted {
        Some((_, (group, _))) => format!("a host with {}", describe(&group.resources)),
        None => no_room(parts),
    };
    Blocker::NoSuchHost { need }
}

fn no_room(parts: &[Part<'_>]) -> String {
    let tasks: u64 = parts.iter().map(|(_, count)| u64::from(*count)).sum();
    format!("room for {tasks} tasks at once")
}

/// Text for users: `8 GPUs (H100 or H200), 16 CPUs, 65536 MiB`; resources that are not requested are left
/// out.
pub(super) fn describe(resources: &Resources) -> String {
    let Resources {
        gpus,
        gpu_models,
        cpus_milli,
        memory_mib,
    } = resources;
    let mut parts = Vec::new();
    match &gpu_models[..] {
        _ if *gpus == 0 => {}
        [] => parts.push(format!("{gpus} GPUs")),
        models => parts.push(format!("{gpus} GPUs ({})", models.join(" or "))),
    }
    if *cpus_milli > 0 {
        parts.push(format!("{} CPUs", cpus(*cpus_milli)));
    }
    if *memory_mib > 0 {
        parts.push(format!("{memory_mib} MiB"));
    }
    if parts.is_empty() {
        return "room for one more task".to_owned();
    }
    parts.join(", ")
}
