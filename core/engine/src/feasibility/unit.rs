//! Checks of a unit's placement as a whole.

use std::collections::BTreeMap;

use muster_model::command::TaskPlacement;
use muster_model::ids::{HostId, TaskIndex};
use muster_model::spec::{JobSpec, TaskGroup, Within};
use muster_model::topology::{CellId, GpuMask};

use crate::feasibility::{Freed, HostTrial, Misfit, Requester};
use crate::state::{Attempt, State, TaskRun};

/// Reason why a unit cannot be placed as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// There is no such host.
    HostUnknown(HostId),
    /// The job has no such task.
    TaskUnknown(TaskIndex),
    /// A host cannot take the tasks placed on it.
    Host(HostId, Misfit),
}

/// Checks a unit's placement; returns the positions of its tasks by host.
///
/// Every host must be able to take all of its tasks, and tasks that must share a cell or a model must do so.
///
/// # Errors
/// The first violation.
pub fn check(
    state: &State,
    requester: Requester<'_>,
    tasks: &[TaskPlacement],
    freed: &Freed,
) -> Result<BTreeMap<HostId, Vec<usize>>, Unfit> {
    let mut ledgers: BTreeMap<HostId, (HostTrial<'_>, Vec<usize>)> = BTreeMap::new();
    let mut masks = Vec::with_capacity(tasks.len());
    for (position, task) in tasks.iter().enumerate() {
        let host = state.host(task.host).ok_or(Unfit::HostUnknown(task.host))?;
        let (group, _) = requester
            .job
            .spec
            .group_of(task.task)
            .ok_or(Unfit::TaskUnknown(task.task))?;
        let (ledger, positions) = ledgers
            .entry(task.host)
            .or_insert_with(|| (HostTrial::open(state, host, requester, freed), Vec::new()));
        let mask = ledger
            .take(group, &task.gpus)
            .map_err(|misfit| Unfit::Host(task.host, misfit))?;
        positions.push(position);
        masks.push(mask);
    }
    if requester.job.spec.gang {
        check_gang(state, &requester.job.spec, tasks, &masks)?;
    }
    Ok(ledgers
        .into_iter()
        .map(|(host, (_, positions))| (host, positions))
        .collect())
}

/// Checks the placement of a replacement member in a running gang; the others keep their places regardless of
/// the current state of their hosts.
///
/// # Errors
/// The first violation.
pub fn check_member(
    state: &State,
    requester: Requester<'_>,
    attempt: &Attempt,
    task: &TaskPlacement,
) -> Result<(), Unfit> {
    let host = state.host(task.host).ok_or(Unfit::HostUnknown(task.host))?;
    let spec = &requester.job.spec;
    let (group, _) = spec
        .group_of(task.task)
        .ok_or(Unfit::TaskUnknown(task.task))?;
    let nothing = Freed::default();
    let mask = HostTrial::open(state, host, requester, &nothing)
        .take(group, &task.gpus)
        .map_err(|misfit| Unfit::Host(task.host, misfit))?;
    let others = attempt.tasks.iter().filter(|run| run.task != task.task);
    let mut members: Vec<(TaskPlacement, GpuMask)> = others
        .map(|run| (run.place(), held_mask(state, run)))
        .collect();
    members.push((task.clone(), mask));
    members.sort_unstable_by_key(|(member, _)| member.task);
    let (tasks, masks): (Vec<TaskPlacement>, Vec<GpuMask>) = members.into_iter().unzip();
    check_gang(state, spec, &tasks, &masks)
}

/// Returns the positions of the GPUs that a task holds.
fn held_mask(state: &State, run: &TaskRun) -> GpuMask {
    let gpus = state.host(run.host).map_or(&[][..], |host| &host.gpus);
    let held = gpus.iter().enumerate();
    held.filter(|(_, gpu)| run.gpus.contains(&gpu.uuid))
        .fold(GpuMask::default(), |mask, (position, _)| {
            mask.or(GpuMask::one(position))
        })
}

/// Checks the constraints of a gang: one model per group, and the cells that the job requires.
fn check_gang(
    state: &State,
    spec: &JobSpec,
    tasks: &[TaskPlacement],
    masks: &[GpuMask],
) -> Result<(), Unfit> {
    let placed: Vec<(&TaskPlacement, GpuMask)> = tasks.iter().zip(masks.iter().copied()).collect();
    if let Some(within) = required(spec.scheduling.within.as_ref()) {
        check_shared(state, within, &placed)?;
    }
    let mut rest = placed.as_slice();
    let mut first = 0;
    for group in &spec.groups {
        let end = first + group.count;
        let (of_group, others) =
            rest.split_at(rest.partition_point(|(task, _)| task.task.get() < end));
        check_models(state, group, of_group)?;
        check_subgroups(state, group, first, of_group)?;
        rest = others;
        first = end;
    }
    Ok(())
}

fn check_models(
    state: &State,
    group: &TaskGroup,
    placed: &[(&TaskPlacement, GpuMask)],
) -> Result<(), Unfit> {
    let mut model = None;
    for (task, mask) in placed {
        let Some(host) = state.host(task.host) else {
            continue;
        };
        for position in mask.positions() {
            let own = &host.gpus[position].model;
            if *model.get_or_insert(own) != own {
                let group = group.name.clone();
                return Err(Unfit::Host(task.host, Misfit::Models { group }));
            }
        }
    }
    Ok(())
}

/// Checks that the tasks of each subgroup share a cell of the level that their group requires.
fn check_subgroups(
    state: &State,
    group: &TaskGroup,
    first: u32,
    placed: &[(&TaskPlacement, GpuMask)],
) -> Result<(), Unfit> {
    let Some(within) = required(group.layout.within.as_ref()) else {
        return Ok(());
    };
    let topology = &state.topology;
    // A level inside hosts concerns each task's own GPUs, which the ledger of its host has checked.
    if topology.level(&within.level) > Some(topology.host_level()) {
        return Ok(());
    }
    let size = group.layout.within_tasks.unwrap_or(group.count).max(1);
    placed
        .chunk_by(|(one, _), (other, _)| {
            (one.task.get() - first) / size == (other.task.get() - first) / size
        })
        .try_for_each(|subgroup| check_shared(state, within, subgroup))
}

/// Checks that all of these tasks lie in one cell of a level.
fn check_shared(
    state: &State,
    within: &Within,
    placed: &[(&TaskPlacement, GpuMask)],
) -> Result<(), Unfit> {
    let topology = &state.topology;
    let is_around_hosts = topology
        .level(&within.level)
        .is_some_and(|level| level <= topology.host_level());
    // A single task satisfies this even on a host that lies in no cell.
    if is_around_hosts && placed.len() <= 1 {
        return Ok(());
    }
    let mut shared = None;
    for (task, _) in placed {
        let of_host = placed.iter().filter(|(other, _)| other.host == task.host);
        let mask = || of_host.fold(GpuMask::default(), |all, (_, mask)| all.or(*mask));
        let cell = cell_of(state, within, task.host, mask);
        let agrees = cell.is_some() && shared.get_or_insert_with(|| cell.clone()) == &cell;
        if !agrees {
            let level = within.level.clone();
            return Err(Unfit::Host(task.host, Misfit::NotWithin { level }));
        }
    }
    Ok(())
}

/// Returns the cell of a level around some GPUs of a host, or around the host: tasks without GPUs that share
/// a cell inside hosts share the host.
fn cell_of(
    state: &State,
    within: &Within,
    host: HostId,
    mask: impl FnOnce() -> GpuMask,
) -> Option<CellId> {
    let topology = &state.topology;
    let level = topology.level(&within.level)?;
    let cells = state.index.host_cells.get(&host)?;
    let mask = if level > topology.host_level() {
        mask()
    } else {
        GpuMask::default()
    };
    if mask.is_empty() && level > topology.host_level() {
        return Some(CellId::Host(host));
    }
    cells.enclosing(topology, level, host, mask)
}

/// Returns the cell level that tasks must share; `None` if it is only preferred.
fn required(within: Option<&Within>) -> Option<&Within> {
    within.filter(|within| within.required)
}
