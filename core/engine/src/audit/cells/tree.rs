//! The tree of cells according to configuration, hosts and workers, rebuilt for every audit.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::host::{Gpu, Host};
use muster_model::ids::HostId;
use muster_model::topology::{CellId, GpuMask, Level, Topology};

use crate::audit::locations;
use crate::state::State;

/// A GPU by its host and its position there.
pub(super) type GpuPosition = (HostId, usize);

/// Properties that make cells interchangeable: level, GPU model and number of GPUs.
pub(super) type KindKey<'a> = (usize, &'a str, usize);

/// A cell and everything in it.
pub(super) struct Cell<'a> {
    pub(super) id: CellId,
    /// Depth of its level: 0 is the largest.
    pub(super) level: usize,
    pub(super) gpus: BTreeMap<GpuPosition, &'a str>,
    pub(super) children: Vec<Self>,
}

impl<'a> Cell<'a> {
    fn around(id: CellId, level: usize, children: Vec<Self>) -> Self {
        let gpus = children.iter().flat_map(|child| &child.gpus);
        Self {
            id,
            level,
            gpus: gpus.map(|(place, model)| (*place, *model)).collect(),
            children,
        }
    }

    /// Returns its kind; `None` if it has no GPUs or several models.
    pub(super) fn kind(&self) -> Option<KindKey<'a>> {
        let models: BTreeSet<&str> = self.gpus.values().copied().collect();
        let model = models.first().filter(|_| models.len() == 1)?;
        Some((self.level, model, self.gpus.len()))
    }

    pub(super) fn places(&self) -> BTreeSet<GpuPosition> {
        self.gpus.keys().copied().collect()
    }

    /// Returns the cell and all cells in it.
    pub(super) fn all(&self) -> Vec<&Self> {
        let inside = self.children.iter().flat_map(Self::all);
        std::iter::once(self).chain(inside).collect()
    }
}

/// Returns the largest cells, each with everything in it.
pub(super) fn roots(state: &State) -> Vec<Cell<'_>> {
    let topology = &state.topology;
    let places = locations::all(state);
    let mut by_path: BTreeMap<Vec<String>, Vec<Cell<'_>>> = BTreeMap::new();
    for host in state.hosts.values() {
        let place = places.get(&host.id);
        let path = place.map_or_else(Vec::new, |place| place.path.clone());
        let cell = host_cell(topology, host, place);
        by_path.entry(path).or_default().push(cell);
    }
    for depth in (1..=topology.above.len()).rev() {
        let paths = by_path.keys().filter(|path| path.len() == depth);
        for path in paths.cloned().collect::<Vec<_>>() {
            let children = by_path.remove(&path).unwrap_or_default();
            let id = CellId::Above(path.join("/").into());
            let outer = by_path.entry(path[..depth - 1].to_vec()).or_default();
            outer.push(Cell::around(id, depth - 1, children));
        }
    }
    by_path.into_values().flatten().collect()
}

fn host_cell<'a>(
    topology: &Topology,
    host: &'a Host,
    place: Option<&locations::HostLocation>,
) -> Cell<'a> {
    let host_level = topology.above.len();
    let inside = |level: usize, mask| {
        let level = Level(u8::try_from(level).unwrap_or(u8::MAX));
        CellId::Inside(host.id, level, mask)
    };
    let gpu_level = host_level + 1 + topology.inside.len();
    let gpu = |(position, gpu): (usize, &'a Gpu)| Cell {
        id: inside(gpu_level, GpuMask::one(position)),
        level: gpu_level,
        gpus: BTreeMap::from([((host.id, position), gpu.model.as_ref())]),
        children: Vec::new(),
    };
    let mut cells: Vec<Cell<'_>> = host.gpus.iter().enumerate().map(gpu).collect();
    let groups = place.into_iter().flat_map(|place| &place.inside);
    // The deepest groups come last and are assembled first.
    for (depth, gpus) in groups.collect::<Vec<_>>().into_iter().rev() {
        let is_inside = |cell: &Cell<'_>| cell.gpus.keys().all(|(_, gpu)| gpus.contains(gpu));
        let (children, others) = cells.into_iter().partition(is_inside);
        let mask = gpus.iter().fold(GpuMask::default(), |mask, position| {
            mask.or(GpuMask::one(*position))
        });
        let level = host_level + 1 + depth;
        cells = others;
        cells.push(Cell::around(inside(level, mask), level, children));
    }
    Cell::around(CellId::Host(host.id), host_level, cells)
}
