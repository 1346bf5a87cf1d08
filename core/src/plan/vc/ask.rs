//! What a unit asks of its virtual cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cells::{Allocation, Piece, Request};
use crate::command::TaskPlacement;
use crate::ids::{HostId, TaskIndex, UnitIndex};
use crate::plan::capacity::uuids;
use crate::plan::vc::hosts::Hosts;
use crate::spec::{TaskGroup, Within};
use crate::state::{Job, State};
use crate::topology::{GpuMask, Level};

/// Ways to choose a model for every group that are tried, those with one model for all first.
const MODELS_TRIED_MAX: usize = 64;

/// A unit's tasks.
pub(super) struct Ask<'a> {
    job: &'a Job,
    /// Task, position of its group, and the group.
    tasks: Vec<(TaskIndex, usize, &'a TaskGroup)>,
}

impl<'a> Ask<'a> {
    /// All tasks of a unit, or of a gang's groups only as many as are enough.
    pub(super) fn new(job: &'a Job, unit: UnitIndex, least: bool) -> Self {
        let mut tasks = Vec::new();
        let mut first = 0;
        for (position, group) in job.spec.groups.iter().enumerate() {
            let enough = group.layout.count_min.filter(|_| least && job.spec.gang);
            let count = enough.unwrap_or(group.count).min(group.count);
            let end = first + count;
            let own = (first..end).filter(|task| job.spec.gang || *task == unit.get());
            tasks.extend(own.map(|task| (TaskIndex(task), position, group)));
            first += group.count;
        }
        Self { job, tasks }
    }

    pub(super) const fn job(&self) -> &'a Job {
        self.job
    }

    pub(super) const fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn with_gpus(&self) -> impl Iterator<Item = &(TaskIndex, usize, &'a TaskGroup)> {
        self.tasks
            .iter()
            .filter(|(_, _, group)| group.resources.gpus > 0)
    }

    /// What to ask for, by choice of GPU models.
    pub(super) fn requests(&self, allocation: &Allocation) -> Vec<Request> {
        let queue: Arc<str> = Arc::from(self.job.spec.queue.as_str());
        let pinned: Option<Arc<str>> = self
            .job
            .spec
            .scheduling
            .pinned_cell
            .as_deref()
            .map(Arc::from);
        self.models(allocation)
            .into_iter()
            .map(|models| Request {
                queue: Arc::clone(&queue),
                pinned: pinned.clone(),
                tasks: self
                    .with_gpus()
                    .map(|(_, group, spec)| Piece {
                        group: *group,
                        gpus: spec.resources.gpus,
                        gpu_model: Arc::clone(&models[*group]),
                    })
                    .collect(),
            })
            .collect()
    }

    /// A model for every group (any for those without GPUs): the same one where possible.
    fn models(&self, allocation: &Allocation) -> Vec<Vec<Arc<str>>> {
        let of_cluster = self.models_of_cluster(allocation);
        let asking: BTreeSet<usize> = self.with_gpus().map(|(_, group, _)| *group).collect();
        let groups = &self.job.spec.groups;
        let accepted: Vec<Vec<Arc<str>>> = groups
            .iter()
            .map(|group| ordered(group, &of_cluster))
            .collect();
        let uniform = of_cluster
            .iter()
            .filter(|model| asking.iter().all(|group| accepted[*group].contains(model)));
        let mut ways: Vec<Vec<Arc<str>>> = uniform
            .map(|model| vec![Arc::clone(model); groups.len()])
            .collect();
        if let Some(first) = asking.first() {
            ways.sort_by_key(|way| {
                accepted[*first]
                    .iter()
                    .position(|model| *model == way[*first])
            });
        }
        let mut mixed: Vec<Vec<Arc<str>>> = vec![Vec::new()];
        for (position, accepted) in accepted.iter().enumerate() {
            let any = [Arc::from("")];
            let choices: &[Arc<str>] = if asking.contains(&position) {
                accepted
            } else {
                &any
            };
            mixed = mixed
                .iter()
                .flat_map(|way| {
                    choices.iter().map(move |model| {
                        let mut way = way.clone();
                        way.push(Arc::clone(model));
                        way
                    })
                })
                .take(MODELS_TRIED_MAX)
                .collect();
        }
        let differs = |way: &Vec<Arc<str>>| {
            let mut models = asking.iter().map(|group| &way[*group]);
            let first = models.next();
            models.any(|model| Some(model) != first)
        };
        ways.extend(mixed.into_iter().filter(differs));
        ways
    }

    fn models_of_cluster(&self, allocation: &Allocation) -> Vec<Arc<str>> {
        let spec = &self.job.spec;
        if let Some(name) = &spec.scheduling.pinned_cell {
            let cell = allocation.pinned(name);
            let kind = cell.and_then(|cell| allocation.ground().kind(cell));
            return kind.map(|kind| kind.gpu_model).into_iter().collect();
        }
        let kinds = allocation.quotas(&spec.queue);
        let models: BTreeSet<Arc<str>> =
            kinds.map(|(kind, _)| Arc::clone(&kind.gpu_model)).collect();
        models.into_iter().collect()
    }

    /// Levels from hosts up on which the tasks share a cell, and whether they must. Subgroups and groups of several
    /// are left to the final check.
    pub(super) fn shared(&self, state: &State) -> Option<(Level, bool)> {
        let spec = &self.job.spec;
        let topology = &state.topology;
        let level = |within: &Within| {
            let level = topology.level(&within.level)?;
            (level <= topology.host_level()).then_some((level, within.required))
        };
        let of_gang = spec.scheduling.within.as_ref().filter(|_| spec.gang);
        let of_group = match spec.groups.as_slice() {
            [group] if group.layout.within_tasks.is_none() => group.layout.within.as_ref(),
            _ => None,
        };
        of_gang
            .and_then(level)
            .or_else(|| of_group.filter(|_| spec.gang).and_then(level))
    }

    /// All tasks with where they go, in task order; those without GPUs go where there is room.
    pub(super) fn placements(
        &self,
        state: &State,
        served: &[(HostId, GpuMask)],
        hosts: &mut Hosts<'_, '_>,
    ) -> Option<Vec<TaskPlacement>> {
        let mut served = served.iter();
        let mut placements = Vec::with_capacity(self.tasks.len());
        for (task, position, group) in &self.tasks {
            let (host, gpus) = match group.resources.gpus {
                0 => (hosts.take_without_gpus(*position, group)?, Vec::new()),
                _ => {
                    let (host, gpus) = served.next()?;
                    (*host, uuids(state.host(*host)?, *gpus))
                }
            };
            placements.push(TaskPlacement {
                task: *task,
                host,
                gpus,
            });
        }
        Some(placements)
    }
}

/// Those of the models that a group accepts, in the order in which it names them.
fn ordered(group: &TaskGroup, models: &[Arc<str>]) -> Vec<Arc<str>> {
    let names = &group.resources.gpu_models;
    let mut accepted: Vec<Arc<str>> = models
        .iter()
        .filter(|model| group.resources.accepts_model(model))
        .cloned()
        .collect();
    accepted.sort_by_key(|model| names.iter().position(|name| **name == **model));
    accepted
}
