//! Cell layout of one kind of host: shared by all hosts with the same GPUs and GPU groups.

use std::sync::Arc;

use muster_model::host::Host;
use muster_model::topology::{CellKind, GpuMask, HostCells, InsideCell, Level, Topology};

use crate::cells::cell_tree::{Split, count_kinds};

/// Key of a layout: the groups of GPUs, and the model of each GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FormKey {
    inside: Arc<[InsideCell]>,
    models: Vec<Arc<str>>,
}

impl FormKey {
    pub(super) fn of(host: &Host, cells: &HostCells) -> Self {
        Self {
            inside: Arc::clone(&cells.inside),
            models: host.gpus.iter().map(|gpu| Arc::clone(&gpu.model)).collect(),
        }
    }
}

/// A cell of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormCell {
    pub(super) level: Level,
    pub(super) gpus: GpuMask,
    /// `None` if its GPUs are of several models.
    pub(super) kind: Option<CellKind>,
    /// Position of the parent cell; `None` for the host itself.
    pub(super) parent: Option<usize>,
    /// Positions of the cells directly inside it, by first GPU.
    pub(super) children: Vec<usize>,
}

/// The cells of a host: the host first, then its groups, largest level first, then its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostForm {
    pub(super) key: FormKey,
    pub(super) cells: Vec<FormCell>,
    /// GPUs by model, ascending by model.
    pub(super) models: Vec<(Arc<str>, u32)>,
}

impl HostForm {
    pub(super) fn new(topology: &Topology, key: FormKey) -> Self {
        let all = GpuMask::first(key.models.len());
        let groups = key.inside.iter().map(|cell| (cell.level, cell.gpus));
        let gpus = all
            .positions()
            .map(|position| (topology.gpu_level(), GpuMask::one(position)));
        let mut cells: Vec<FormCell> = Vec::new();
        for (level, gpus) in std::iter::once((topology.host_level(), all))
            .chain(groups)
            .chain(gpus)
        {
            let parent = cells.iter().rposition(|outer| outer.gpus.covers(gpus));
            let position = cells.len();
            if let Some(parent) = parent {
                cells[parent].children.push(position);
            }
            cells.push(FormCell {
                level,
                gpus,
                kind: kind(level, gpus, &key.models),
                parent,
                children: Vec::new(),
            });
        }
        let models = counted(&key.models);
        Self { key, cells, models }
    }

    /// Returns the GPUs of a model.
    pub(super) fn of_model(&self, gpu_model: &str) -> GpuMask {
        let all = self.key.models.iter().enumerate();
        all.filter(|(_, model)| ***model == *gpu_model)
            .fold(GpuMask::default(), |mask, (position, _)| {
                mask.or(GpuMask::one(position))
            })
    }

    /// Returns all GPUs of the host.
    pub(super) fn all(&self) -> GpuMask {
        self.cells[0].gpus
    }

    /// Returns the position of the cell with exactly these GPUs on a level.
    pub(super) fn position(&self, level: Level, gpus: GpuMask) -> Option<usize> {
        self.cells
            .iter()
            .position(|cell| cell.level == level && cell.gpus == gpus)
    }
}

impl HostForm {
    /// Returns the splits of its cells, each distinct one once.
    pub(super) fn splits(&self) -> Vec<(CellKind, Split)> {
        let mut splits: Vec<(CellKind, Split)> = self
            .cells
            .iter()
            .filter_map(|cell| {
                let children = cell.children.iter();
                let kinds = children.filter_map(|child| self.cells[*child].kind.clone());
                Some((cell.kind.clone()?, count_kinds(kinds)))
            })
            .collect();
        splits.sort_unstable();
        splits.dedup();
        splits
    }
}

fn kind(level: Level, gpus: GpuMask, models: &[Arc<str>]) -> Option<CellKind> {
    let mut positions = gpus.positions();
    let gpu_model = models.get(positions.next()?)?;
    positions
        .all(|position| models.get(position) == Some(gpu_model))
        .then(|| CellKind {
            level,
            gpu_model: Arc::clone(gpu_model),
            gpus: gpus.count(),
        })
}

fn counted(models: &[Arc<str>]) -> Vec<(Arc<str>, u32)> {
    let mut counts = std::collections::BTreeMap::<Arc<str>, u32>::new();
    for model in models {
        *counts.entry(Arc::clone(model)).or_default() += 1;
    }
    counts.into_iter().collect()
}
