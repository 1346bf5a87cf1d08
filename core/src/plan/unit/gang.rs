//! A gang: whole or not at all, each group on GPUs of one model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::command::TaskPlacement;
use crate::ids::HostId;
use crate::plan::capacity::{Capacity, FreeHosts, Need, uuids};
use crate::plan::unit::ask::{Ask, Part, task_of};
use crate::plan::unit::{Placed, Shortage};
use crate::state::HostClass;
use crate::topology::GpuMask;

pub(super) fn place(capacity: &mut Capacity<'_>, ask: &Ask<'_>) -> Result<Placed, Shortage> {
    let mut fits_tasks = 0;
    for classes in uniform_classes(ask) {
        let mut trial = capacity.clone();
        match place_in(&mut trial, ask, &classes) {
            Ok(tasks) => {
                *capacity = trial;
                return Ok(Placed { tasks });
            }
            Err(fits) => fits_tasks = fits_tasks.max(fits),
        }
    }
    Err(shortage(capacity, ask, fits_tasks))
}

/// A class for every part: the same one where possible.
fn uniform_classes(ask: &Ask<'_>) -> Vec<Vec<HostClass>> {
    let asking = || {
        ask.parts
            .iter()
            .filter(|part| part.group.resources.gpus > 0)
    };
    let Some(first) = asking().next() else {
        return vec![ask.parts.iter().map(|_| HostClass::from("")).collect()];
    };
    let common = first
        .classes
        .iter()
        .filter(|class| asking().all(|part| part.classes.contains(class)));
    let of_part = |part: &Part<'_>, class: &HostClass| match part.group.resources.gpus {
        0 => HostClass::from(""),
        _ => class.clone(),
    };
    common
        .map(|class| ask.parts.iter().map(|part| of_part(part, class)).collect())
        .collect()
}

/// Places every part in its class, the one with the largest tasks first because it is the hardest;
/// otherwise says how many tasks found room.
fn place_in(
    capacity: &mut Capacity<'_>,
    ask: &Ask<'_>,
    classes: &[HostClass],
) -> Result<Vec<TaskPlacement>, u64> {
    let mut hardest_first: Vec<usize> = (0..ask.parts.len()).collect();
    hardest_first.sort_by_key(|&position| {
        let needs = &ask.parts[position].group.resources;
        Reverse((needs.gpus, needs.cpus_milli, needs.memory_mib))
    });
    let mut placed = vec![Vec::new(); ask.parts.len()];
    let mut fits_tasks = 0;
    let mut whole = true;
    for position in hardest_first {
        let part = &ask.parts[position];
        let need = part.need(ask.asker, &classes[position], part.own);
        let tasks = place_part(capacity, part, need);
        fits_tasks += tasks.len() as u64;
        whole &= tasks.len() == part.count as usize;
        placed[position] = tasks;
    }
    if whole {
        Ok(placed.concat())
    } else {
        Err(fits_tasks)
    }
}

/// Places as many tasks of a part as there is room for, on as few hosts as possible: the hosts with the
/// most free GPUs first, the rest where it leaves the least.
fn place_part(capacity: &mut Capacity<'_>, part: &Part<'_>, need: Need<'_>) -> Vec<TaskPlacement> {
    let mut shares: BTreeMap<HostId, Vec<GpuMask>> = BTreeMap::new();
    let mut left = part.count;
    let hosts = capacity.hosts(need.class);
    for (free, host) in packing_order(&hosts, need.group.resources.gpus) {
        let rest = capacity.tightest(need, left, &shares);
        let (host, fitting) = match rest {
            Some(host) => (host, left),
            None => (host, capacity.tasks_fitting(host, free, need)),
        };
        let count = fitting.min(left);
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
    (0..)
        .zip(placed)
        .filter_map(|(position, (host, gpus))| {
            Some(TaskPlacement {
                task: task_of(part, position),
                host,
                gpus: uuids(capacity.state().host(host)?, gpus),
            })
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

fn shortage(capacity: &Capacity<'_>, ask: &Ask<'_>, fits_tasks: u64) -> Shortage {
    let largest = ask.parts.iter().map(|part| part.group.resources.gpus).max();
    let largest = largest.unwrap_or(0);
    let of_largest: u64 = ask
        .parts
        .iter()
        .filter(|part| part.group.resources.gpus == largest)
        .map(|part| u64::from(part.count))
        .sum();
    let mut classes: Vec<HostClass> = uniform_classes(ask).into_iter().flatten().collect();
    classes.sort();
    classes.dedup();
    classes.retain(|class| !class.is_empty());
    let need_gpus = ask.gpus();
    Shortage {
        need_gpus,
        free_gpus: classes.iter().map(|class| capacity.gpus_free(class)).sum(),
        fits_tasks,
        need_tasks: ask.tasks(),
        lacks_gpus: need_gpus > 0
            && classes.iter().all(|class| {
                capacity.gpus_free(class) < need_gpus || capacity.slots(class, largest) < of_largest
            }),
    }
}
