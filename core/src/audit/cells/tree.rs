//! The tree of cells as the topology's configuration and the hosts say it, built anew for every audit.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::HostId;
use crate::state::{Gpu, Host, State};
use crate::topology::{CellId, GpuMask, HostShape, Level, Topology};

/// A GPU by its host and its position there.
pub(super) type Place = (HostId, usize);

/// What makes cells interchangeable: level, GPU model and number of GPUs.
pub(super) type Kind<'a> = (usize, &'a str, usize);

/// A cell and all that lies in it.
pub(super) struct Cell<'a> {
    pub(super) id: CellId,
    /// Its level's depth: 0 is the largest.
    pub(super) level: usize,
    pub(super) gpus: BTreeMap<Place, &'a str>,
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

    /// Its kind; none if it holds GPUs of several models or none at all.
    pub(super) fn kind(&self) -> Option<Kind<'a>> {
        let models: BTreeSet<&str> = self.gpus.values().copied().collect();
        let model = models.first().filter(|_| models.len() == 1)?;
        Some((self.level, model, self.gpus.len()))
    }

    pub(super) fn places(&self) -> BTreeSet<Place> {
        self.gpus.keys().copied().collect()
    }

    /// The cell and all cells in it.
    pub(super) fn all(&self) -> Vec<&Self> {
        let inside = self.children.iter().flat_map(Self::all);
        std::iter::once(self).chain(inside).collect()
    }
}

/// The largest cells, each with all that lies in it.
pub(super) fn roots(state: &State) -> Vec<Cell<'_>> {
    let topology = &state.topology;
    let mut by_path: BTreeMap<Vec<String>, Vec<Cell<'_>>> = BTreeMap::new();
    for host in state.hosts.values() {
        let mut places = topology.places.iter();
        let place = places.find(|place| place.hosts.iter().any(|name| *name == *host.name));
        let path = place.map_or_else(Vec::new, |place| place.cell.clone());
        let cell = host_cell(topology, host);
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

fn host_cell<'a>(topology: &Topology, host: &'a Host) -> Cell<'a> {
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
    let mut shapes = topology.shapes.iter();
    let shape = shapes.find(|shape| is_of_shape(host, shape));
    let groups = shape.map_or(&[][..], |shape| &shape.groups);
    for (depth, name) in topology.inside.iter().enumerate().rev() {
        for group in groups.iter().filter(|group| group.level == *name) {
            let has = |position: usize| group.gpus.iter().any(|gpu| *gpu as usize == position);
            let is_inside = |cell: &Cell<'_>| cell.gpus.keys().all(|(_, position)| has(*position));
            let (children, others) = cells.into_iter().partition(is_inside);
            let mask = (0..host.gpus.len()).filter(|position| has(*position));
            let mask = mask.fold(GpuMask::default(), |mask, position| {
                mask.or(GpuMask::one(position))
            });
            let level = host_level + 1 + depth;
            cells = others;
            cells.push(Cell::around(inside(level, mask), level, children));
        }
    }
    Cell::around(CellId::Host(host.id), host_level, cells)
}

fn is_of_shape(host: &Host, shape: &HostShape) -> bool {
    let mut models = host.gpus.iter().map(|gpu| gpu.model.as_ref());
    let is_named = shape.hosts.is_empty() || shape.hosts.iter().any(|name| *name == *host.name);
    let is_of_model = shape.gpu_model.is_empty() || models.all(|model| model == shape.gpu_model);
    is_named && is_of_model && host.gpus.len() == shape.gpus as usize
}
