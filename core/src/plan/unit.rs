//! Where the tasks of one unit go: an independent task by best fit, a gang whole or not at all.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::command::TaskPlacement;
use crate::ids::{HostId, TaskIndex, UnitIndex};
use crate::plan::capacity::{Capacity, FreeHosts, Need, Spread};
use crate::spec::TaskGroup;
use crate::state::{HostClass, Job};

/// Why a unit does not fit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// GPUs that the unit needs.
    pub(super) need_gpus: u64,
    /// GPUs free on acceptable hosts.
    pub(super) free_gpus: u64,
    /// Tasks of the unit that could be placed now.
    pub(super) fits_tasks: u64,
    /// Tasks that the unit has.
    pub(super) need_tasks: u64,
    /// True if there are too few GPUs, false if CPUs or memory are what is missing.
    pub(super) lacks_gpus: bool,
}

/// Finds and takes room for one unit, or says what is missing and takes nothing.
pub(super) fn place(
    capacity: &mut Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
) -> Result<Vec<TaskPlacement>, Shortage> {
    if job.spec.gang {
        return place_gang(capacity, job);
    }
    let task = TaskIndex(unit.get());
    match job.spec.group_of(task) {
        Some((group, _)) => place_single(capacity, job, group, task),
        None => Ok(Vec::new()),
    }
}

fn place_single(
    capacity: &mut Capacity<'_>,
    job: &Job,
    group: &TaskGroup,
    task: TaskIndex,
) -> Result<Vec<TaskPlacement>, Shortage> {
    let resources = &group.resources;
    let need = |class| Need {
        class,
        resources,
        spread: group
            .tasks_per_host_max
            .map(|limit| Spread { job, group, limit }),
    };
    let classes = acceptable_classes(capacity, &[group]);
    let best = classes
        .iter()
        .enumerate()
        .filter_map(|(preference, class)| {
            let (free, host) = capacity.best_fit(need(class))?;
            Some((free, preference, host))
        })
        .min();
    let Some((_, preference, host)) = best else {
        return Err(Shortage {
            need_gpus: u64::from(resources.gpus),
            free_gpus: gpus_free(capacity, &classes),
            fits_tasks: 0,
            need_tasks: 1,
            lacks_gpus: classes
                .iter()
                .all(|class| capacity.slots(class, resources.gpus) == 0),
        });
    };
    let gpus = capacity.take(host, need(&classes[preference]), 1);
    Ok(vec![TaskPlacement {
        task,
        host,
        gpus: gpus.concat(),
    }])
}

/// A gang lies on GPUs of one model only: the first acceptable one that has room for all of it.
fn place_gang(capacity: &mut Capacity<'_>, job: &Job) -> Result<Vec<TaskPlacement>, Shortage> {
    let groups: Vec<&TaskGroup> = job.spec.groups.iter().collect();
    let classes = acceptable_classes(capacity, &groups);
    let mut fits_tasks = 0;
    for class in &classes {
        let mut trial = capacity.clone();
        match place_gang_in(&mut trial, class, &groups) {
            Ok(tasks) => {
                *capacity = trial;
                return Ok(tasks);
            }
            Err(fits) => fits_tasks = fits_tasks.max(fits),
        }
    }
    let need_gpus = gpus_needed(&groups);
    Err(Shortage {
        need_gpus,
        free_gpus: gpus_free(capacity, &classes),
        fits_tasks,
        need_tasks: job.spec.tasks(),
        lacks_gpus: need_gpus > 0
            && classes
                .iter()
                .all(|class| lacks_gpus(capacity, class, &groups)),
    })
}

/// Places every group in one class, the one with the largest tasks first because it is the hardest;
/// otherwise says how many tasks found room.
fn place_gang_in(
    capacity: &mut Capacity<'_>,
    class: &HostClass,
    groups: &[&TaskGroup],
) -> Result<Vec<TaskPlacement>, u64> {
    let mut hardest_first: Vec<usize> = (0..groups.len()).collect();
    hardest_first.sort_by_key(|&position| {
        let needs = &groups[position].resources;
        Reverse((needs.gpus, needs.cpus_milli, needs.memory_mib))
    });
    let mut placed = vec![Vec::new(); groups.len()];
    let mut fits_tasks = 0;
    let mut whole = true;
    for position in hardest_first {
        let group = groups[position];
        let first_task = groups[..position].iter().map(|group| group.count).sum();
        let tasks = place_group(capacity, class, group, first_task);
        fits_tasks += tasks.len() as u64;
        whole &= tasks.len() == group.count as usize;
        placed[position] = tasks;
    }
    if whole {
        Ok(placed.concat())
    } else {
        Err(fits_tasks)
    }
}

/// Places as many tasks of a group as there is room for, on as few hosts as possible: the hosts with the
/// most free GPUs first, the rest where it leaves the least.
fn place_group(
    capacity: &mut Capacity<'_>,
    class: &HostClass,
    group: &TaskGroup,
    first_task: u32,
) -> Vec<TaskPlacement> {
    let any_host = HostClass::from("");
    let need = Need {
        class: if group.resources.gpus == 0 {
            &any_host
        } else {
            class
        },
        resources: &group.resources,
        spread: None,
    };
    let per_host_max = group.tasks_per_host_max.unwrap_or(u32::MAX);
    let mut shares = BTreeMap::new();
    let mut left = group.count;
    let hosts = capacity.hosts(need.class);
    for (free, host) in packing_order(&hosts, need.resources.gpus) {
        let rest = (left <= per_host_max)
            .then(|| capacity.tightest(need, left, &shares))
            .flatten();
        let (host, fitting) = match rest {
            Some(host) => (host, left),
            None => (host, capacity.tasks_fitting(host, free, need)),
        };
        let count = fitting.min(per_host_max).min(left);
        if count > 0 {
            shares.insert(host, capacity.take(host, need, count));
            left -= count;
        }
        if left == 0 {
            break;
        }
    }
    // In host order, so that neighbouring ranks share a host.
    let placed = shares
        .into_iter()
        .flat_map(|(host, gpus)| gpus.into_iter().map(move |gpus| (host, gpus)));
    (first_task..)
        .zip(placed)
        .map(|(task, (host, gpus))| TaskPlacement {
            task: TaskIndex(task),
            host,
            gpus,
        })
        .collect()
}

/// Hosts with the most free GPUs first; tasks without GPUs go where the fewest are free.
fn packing_order(hosts: &FreeHosts, gpus: u32) -> Box<dyn Iterator<Item = (u32, HostId)> + '_> {
    if gpus == 0 {
        return Box::new(hosts.iter().copied());
    }
    let most = hosts.get_max().map(|(free, _)| *free);
    let levels = std::iter::successors(most, |level| {
        let below = hosts.range(..(*level, HostId(0))).next_back();
        below.map(|(free, _)| *free)
    });
    let roomy = levels.take_while(move |level| *level >= gpus);
    Box::new(roomy.flat_map(|level| {
        let of_level = hosts.range((level, HostId(0))..=(level, HostId(u32::MAX)));
        of_level.copied()
    }))
}

/// Classes on hosts that accept work in which all of these groups may lie, in the order in which the job
/// names them; all hosts if no group needs GPUs.
pub(super) fn acceptable_classes(capacity: &Capacity<'_>, groups: &[&TaskGroup]) -> Vec<HostClass> {
    let asking: Vec<&TaskGroup> = groups
        .iter()
        .copied()
        .filter(|group| group.resources.gpus > 0)
        .collect();
    if asking.is_empty() {
        return vec![HostClass::from("")];
    }
    let acceptable = |model: &str| {
        asking
            .iter()
            .all(|group| group.resources.accepts_model(model))
    };
    let named = asking
        .iter()
        .map(|group| &group.resources.gpu_models)
        .find(|models| !models.is_empty());
    match named {
        None => capacity.models().cloned().collect(),
        Some(models) => models
            .iter()
            .filter(|model| acceptable(model))
            .map(|model| HostClass::from(model.as_str()))
            .collect(),
    }
}

/// GPUs that these groups need in all.
pub(super) fn gpus_needed(groups: &[&TaskGroup]) -> u64 {
    groups
        .iter()
        .map(|group| u64::from(group.count) * u64::from(group.resources.gpus))
        .sum()
}

fn gpus_free(capacity: &Capacity<'_>, classes: &[HostClass]) -> u64 {
    classes.iter().map(|class| capacity.gpus_free(class)).sum()
}

/// Whether a class has too few GPUs for a gang even if CPUs and memory were plentiful.
fn lacks_gpus(capacity: &Capacity<'_>, class: &str, groups: &[&TaskGroup]) -> bool {
    let largest = groups.iter().map(|group| group.resources.gpus).max();
    let largest = largest.unwrap_or(0);
    let of_largest: u64 = groups
        .iter()
        .filter(|group| group.resources.gpus == largest)
        .map(|group| u64::from(group.count))
        .sum();
    capacity.gpus_free(class) < gpus_needed(groups) || capacity.slots(class, largest) < of_largest
}
