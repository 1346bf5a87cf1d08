//! Request of a unit for cells of its virtual cluster.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::cells::{Allocation, Request, TaskRequest};
use muster_engine::state::{Job, State};
use muster_model::command::TaskPlacement;
use muster_model::ids::{HostId, TaskIndex, UnitIndex};
use muster_model::spec::TaskGroup;
use muster_model::topology::{GpuMask, Level};

use crate::capacity::uuids;
use crate::vc::hosts::Hosts;

/// Maximum number of model assignments tried, those with one model for all groups first.
const MODELS_TRIED_MAX: usize = 64;

/// Tasks that are served together.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Positions of their pieces in the request.
    pub(super) pieces: Vec<usize>,
    /// The level of the cell that they share, and whether it is required.
    pub(super) shared: Option<(Level, bool)>,
    pub(super) gpus: u64,
}

impl Block {
    fn add(&mut self, piece: usize, group: &TaskGroup) {
        self.pieces.push(piece);
        self.gpus += u64::from(group.resources.gpus);
    }

    pub(super) fn is_required(&self) -> bool {
        self.shared.is_some_and(|(_, required)| required)
    }
}

/// A unit's tasks.
pub(super) struct CellRequest<'a> {
    job: &'a Job,
    /// Task, position of its group, and the group.
    tasks: Vec<(TaskIndex, usize, &'a TaskGroup)>,
}

impl<'a> CellRequest<'a> {
    /// All tasks of a unit or, with `least`, only the minimum of a gang's groups.
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

    /// Number of its GPUs.
    pub(super) fn gpus(&self) -> u64 {
        let groups = self.tasks.iter().map(|(_, _, group)| group);
        groups.map(|group| u64::from(group.resources.gpus)).sum()
    }

    /// Number of its tasks with GPUs, by GPUs per task.
    pub(super) fn tasks_by_gpus(&self) -> BTreeMap<u32, u64> {
        let mut tasks = BTreeMap::new();
        for (_, _, group) in self.with_gpus() {
            *tasks.entry(group.resources.gpus).or_default() += 1;
        }
        tasks
    }

    fn with_gpus(&self) -> impl Iterator<Item = &(TaskIndex, usize, &'a TaskGroup)> {
        self.tasks
            .iter()
            .filter(|(_, _, group)| group.resources.gpus > 0)
    }

    /// Requests, one per choice of GPU models.
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
                    .map(|(_, group, spec)| TaskRequest {
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
            let kind = cell.and_then(|cell| allocation.tree().kind(cell));
            return kind.map(|kind| kind.gpu_model).into_iter().collect();
        }
        let kinds = allocation.quotas(&spec.queue);
        let models: BTreeSet<Arc<str>> =
            kinds.map(|(kind, _)| Arc::clone(&kind.gpu_model)).collect();
        models.into_iter().collect()
    }

    /// The level of the cell that all tasks of a gang share, and whether it is required.
    pub(super) fn shared(&self, state: &State) -> Option<(Level, bool)> {
        if !self.job.spec.gang {
            return None;
        }
        let within = self.job.spec.scheduling.within.as_ref()?;
        Some((state.topology.level(&within.level)?, within.required))
    }

    /// The tasks with GPUs, grouped as they are served: subgroups that share a cell of host level or above,
    /// largest first, then all others.
    pub(super) fn blocks(&self, state: &State) -> Vec<Block> {
        let mut subgroups: BTreeMap<(usize, u32), Block> = BTreeMap::new();
        let mut others = Block::default();
        for (piece, (task, position, group)) in self.with_gpus().enumerate() {
            let Some((level, required)) = self.shared_by(state, group) else {
                others.add(piece, group);
                continue;
            };
            let size = group.layout.within_tasks.unwrap_or(group.count).max(1);
            let within_group = task.get() - self.first_of(*position);
            let subgroup = subgroups
                .entry((*position, within_group / size))
                .or_default();
            subgroup.shared = Some((level, required));
            subgroup.add(piece, group);
        }
        let mut blocks: Vec<Block> = subgroups.into_values().collect();
        blocks.sort_by_key(|block| Reverse((block.is_required(), block.gpus)));
        blocks.extend((!others.pieces.is_empty()).then_some(others));
        blocks
    }

    /// The level, host or above, of the cell that the tasks of each subgroup of a group share, and whether
    /// it is required.
    fn shared_by(&self, state: &State, group: &TaskGroup) -> Option<(Level, bool)> {
        if !self.job.spec.gang {
            return None;
        }
        let within = group.layout.within.as_ref()?;
        let level = state.topology.level(&within.level)?;
        (level <= state.topology.host_level()).then_some((level, within.required))
    }

    fn first_of(&self, position: usize) -> u32 {
        let before = self.job.spec.groups.iter().take(position);
        before.map(|group| group.count).sum()
    }

    /// All tasks with their placement, in task order; those without GPUs go where there is room.
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

/// The models that a group accepts, in the order in which it names them.
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
