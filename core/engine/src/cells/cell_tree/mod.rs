//! The tree of physical cells with their kinds.

mod form;
mod names;
mod splits;

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::topology::{CellId, CellKind, GpuMask, HostCells, Level, Topology};

use crate::cells::cell_tree::form::{FormCell, FormKey, HostForm};
use crate::cells::{HostLoad, Load};

/// Result of splitting a cell: kinds and numbers of cells, ascending.
type Split = Vec<(CellKind, u32)>;

/// The tree of cells. Cells of several GPU models have no kind: they are never bound, and cells inside them
/// count as having no parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellTree {
    topology: Arc<Topology>,
    hosts: OrdMap<HostId, Arc<CellTreeHost>>,
    names: OrdMap<Arc<str>, HostId>,
    places: OrdMap<Arc<str>, CellNode>,
    /// Kept separately because loads change with every placement and the rest rarely.
    host_loads: OrdMap<HostId, HostLoad>,
    place_loads: OrdMap<Arc<str>, Load>,
    /// Layouts of hosts, and the number of hosts with each.
    forms: OrdMap<FormKey, (Arc<HostForm>, u32)>,
    /// Splits of the cells of a kind, with the number of occurrences (once for every place, once for every
    /// layout).
    splits: OrdMap<CellKind, OrdMap<Split, u32>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CellTreeHost {
    name: Arc<str>,
    above: Arc<[Arc<str>]>,
    form: Arc<HostForm>,
}

/// A cell above hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CellNode {
    level: Level,
    children: OrdSet<CellId>,
    /// GPUs by model; no entry is 0.
    models: OrdMap<Arc<str>, u32>,
}

impl CellNode {
    fn kind(&self) -> Option<CellKind> {
        let (gpu_model, gpus) = self.models.get_min()?;
        (self.models.len() == 1).then(|| CellKind {
            level: self.level,
            gpu_model: Arc::clone(gpu_model),
            gpus: *gpus,
        })
    }
}

impl CellTree {
    /// Builds the cells of a cluster.
    pub(super) fn new<'a>(
        topology: &Arc<Topology>,
        hosts: impl Iterator<Item = (&'a Host, Arc<HostCells>)>,
    ) -> Self {
        let mut tree = Self {
            topology: Arc::clone(topology),
            ..Self::default()
        };
        for (host, cells) in hosts {
            tree.insert_host(host, &cells);
        }
        let places: Vec<Arc<str>> = tree.places.keys().cloned().collect();
        for path in places {
            tree.count_split(&path);
        }
        tree
    }

    /// Returns the names of the levels.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Adds or replaces a host.
    pub(super) fn replace(&mut self, host: &Host, cells: &HostCells) {
        let before = self.hosts.get(&host.id).cloned();
        let mut touched: Vec<Arc<str>> = cells.above.to_vec();
        touched.extend(before.iter().flat_map(|known| known.above.to_vec()));
        touched.sort_unstable();
        touched.dedup();
        for path in &touched {
            self.discount_split(path);
        }
        if let Some(known) = before {
            self.remove_host(host.id, &known);
        }
        self.insert_host(host, cells);
        for path in &touched {
            self.count_split(path);
        }
    }

    /// Adds a host; the splits of the places around it are counted separately.
    fn insert_host(&mut self, host: &Host, cells: &HostCells) {
        let key = FormKey::of(host, cells);
        let form = self.add_form(key);
        let load = HostLoad::of(host);
        let whole = load.within(GpuMask::first(host.gpus.len()));
        if !host.gpus.is_empty() {
            let mut child = CellId::Host(host.id);
            for (depth, path) in cells.above.iter().enumerate().rev() {
                let place = self
                    .places
                    .entry(Arc::clone(path))
                    .or_insert_with(|| CellNode {
                        level: Level(u8::try_from(depth).unwrap_or(u8::MAX)),
                        children: OrdSet::new(),
                        models: OrdMap::new(),
                    });
                place.children.insert(child);
                for (model, gpus) in &form.models {
                    *place.models.entry(Arc::clone(model)).or_default() += gpus;
                }
                self.add_place_load(path, whole);
                child = CellId::Above(Arc::clone(path));
            }
        }
        self.names.insert(Arc::clone(&host.name), host.id);
        let known = CellTreeHost {
            name: Arc::clone(&host.name),
            above: Arc::clone(&cells.above),
            form,
        };
        self.hosts.insert(host.id, Arc::new(known));
        self.host_loads.insert(host.id, load);
    }

    fn remove_host(&mut self, id: HostId, host: &CellTreeHost) {
        let whole = self.host_load(id).within(host.form.all());
        let mut child = Some(CellId::Host(id));
        for path in host.above.iter().rev() {
            let Some(place) = self.places.get_mut(path) else {
                break;
            };
            if let Some(child) = child.take() {
                place.children.remove(&child);
            }
            for (model, gpus) in &host.form.models {
                let left = place.models.get(model).copied().unwrap_or(0) - gpus;
                match left {
                    0 => place.models.remove(model),
                    _ => place.models.insert(Arc::clone(model), left),
                };
            }
            let load = self.place_loads.get_mut(path);
            if let Some(load) = load {
                *load = *load - whole;
            }
            if self.places[path].children.is_empty() {
                self.places.remove(path);
                self.place_loads.remove(path);
                child = Some(CellId::Above(Arc::clone(path)));
            }
        }
        self.hosts.remove(&id);
        self.host_loads.remove(&id);
        self.names.remove(&host.name);
        self.remove_form(&host.form.key);
    }

    fn add_form(&mut self, key: FormKey) -> Arc<HostForm> {
        if let Some((form, hosts)) = self.forms.get_mut(&key) {
            *hosts += 1;
            return Arc::clone(form);
        }
        let form = Arc::new(HostForm::new(&self.topology, key.clone()));
        for (kind, split) in form.splits() {
            *self
                .splits
                .entry(kind)
                .or_default()
                .entry(split)
                .or_default() += 1;
        }
        self.forms.insert(key, (Arc::clone(&form), 1));
        form
    }

    fn remove_form(&mut self, key: &FormKey) {
        let Some((form, hosts)) = self.forms.get_mut(key) else {
            return;
        };
        *hosts -= 1;
        if *hosts > 0 {
            return;
        }
        let form = Arc::clone(form);
        self.forms.remove(key);
        for (kind, split) in form.splits() {
            self.remove_split(&kind, &split);
        }
    }

    fn count_split(&mut self, path: &Arc<str>) {
        if let Some((kind, split)) = self.place_split(path) {
            let ways = self.splits.entry(kind).or_default();
            *ways.entry(split).or_default() += 1;
        }
    }

    fn discount_split(&mut self, path: &Arc<str>) {
        if let Some((kind, split)) = self.place_split(path) {
            self.remove_split(&kind, &split);
        }
    }

    fn remove_split(&mut self, kind: &CellKind, split: &Split) {
        let Some(ways) = self.splits.get_mut(kind) else {
            return;
        };
        if let Some(count) = ways.get_mut(split) {
            *count -= 1;
            if *count == 0 {
                ways.remove(split);
            }
        }
        if ways.is_empty() {
            self.splits.remove(kind);
        }
    }

    fn place_split(&self, path: &Arc<str>) -> Option<(CellKind, Split)> {
        let place = self.places.get(path)?;
        let kinds = place.children.iter().filter_map(|child| self.kind(child));
        Some((place.kind()?, count_kinds(kinds)))
    }

    /// Updates the load of a host.
    pub(super) fn set_load(&mut self, id: HostId, load: HostLoad) {
        let Some(host) = self.hosts.get(&id).cloned() else {
            return;
        };
        let all = host.form.all();
        let before = self.host_load(id).within(all);
        self.host_loads.insert(id, load);
        for path in host.above.iter() {
            if let Some(place) = self.place_loads.get_mut(path) {
                *place = *place - before + load.within(all);
            }
        }
    }

    fn add_place_load(&mut self, path: &Arc<str>, load: Load) {
        let place = self.place_loads.entry(Arc::clone(path)).or_default();
        *place = *place + load;
    }

    /// Returns the load of a host.
    pub(super) fn host_load(&self, id: HostId) -> HostLoad {
        self.host_loads.get(&id).copied().unwrap_or_default()
    }

    /// Whether a host is present with exactly these cells.
    pub(super) fn knows(&self, host: &Host, cells: &HostCells) -> bool {
        self.hosts.get(&host.id).is_some_and(|known| {
            known.name == host.name
                && known.above == cells.above
                && known.form.key == FormKey::of(host, cells)
        })
    }

    fn form_cell(&self, cell: &CellId) -> Option<&FormCell> {
        let (host, position) = self.locate(cell)?;
        host.form.cells.get(position)
    }

    fn locate(&self, cell: &CellId) -> Option<(&CellTreeHost, usize)> {
        match cell {
            CellId::Above(_) => None,
            CellId::Host(id) => Some((self.hosts.get(id)?, 0)),
            CellId::Inside(id, level, gpus) => {
                let host = self.hosts.get(id)?;
                Some((host, host.form.position(*level, *gpus)?))
            }
        }
    }

    /// Returns the kind of a cell; `None` if it does not exist or its GPUs are of several models.
    #[must_use]
    pub fn kind(&self, cell: &CellId) -> Option<CellKind> {
        match cell {
            CellId::Above(path) => self.places.get(path)?.kind(),
            _ => self.form_cell(cell)?.kind.clone(),
        }
    }

    /// Returns the parent of a cell, if that has a kind.
    #[must_use]
    pub fn parent(&self, cell: &CellId) -> Option<CellId> {
        let parent = match cell {
            CellId::Above(path) => {
                let (outer, _) = path.rsplit_once('/')?;
                CellId::Above(Arc::clone(self.places.get_key_value(outer)?.0))
            }
            CellId::Host(id) => CellId::Above(Arc::clone(self.hosts.get(id)?.above.last()?)),
            CellId::Inside(id, ..) => {
                let (host, position) = self.locate(cell)?;
                id_of(*id, host, host.form.cells[position].parent?)
            }
        };
        self.kind(&parent).map(|_| parent)
    }

    /// Returns a cell and all cells around it that have a kind, smallest first.
    pub fn around(&self, cell: &CellId) -> impl Iterator<Item = CellId> + '_ {
        std::iter::successors(Some(cell.clone()), |cell| self.parent(cell))
    }

    /// Returns the children of a cell.
    #[must_use]
    pub fn children(&self, cell: &CellId) -> Vec<CellId> {
        match cell {
            CellId::Above(path) => self
                .places
                .get(path)
                .map(|place| place.children.iter().cloned().collect())
                .unwrap_or_default(),
            CellId::Host(id) | CellId::Inside(id, ..) => {
                let Some((host, position)) = self.locate(cell) else {
                    return Vec::new();
                };
                let children = host.form.cells[position].children.iter();
                children.map(|child| id_of(*id, host, *child)).collect()
            }
        }
    }

    /// Returns the load of a cell.
    #[must_use]
    pub fn load(&self, cell: &CellId) -> Load {
        match cell {
            CellId::Above(path) => self.place_loads.get(path).copied(),
            CellId::Host(id) | CellId::Inside(id, ..) => self
                .form_cell(cell)
                .map(|form| self.host_load(*id).within(form.gpus)),
        }
        .unwrap_or_default()
    }

    /// Returns the GPUs of a cell, by host, ascending.
    #[must_use]
    pub fn gpus(&self, cell: &CellId) -> Vec<(HostId, GpuMask)> {
        match cell {
            CellId::Above(_) => self
                .children(cell)
                .iter()
                .flat_map(|child| self.gpus(child))
                .collect(),
            CellId::Host(id) | CellId::Inside(id, ..) => self
                .form_cell(cell)
                .map(|form| (*id, form.gpus))
                .into_iter()
                .collect(),
        }
    }

    /// Returns the cells of a level above or at hosts.
    #[must_use]
    pub fn cells_of(&self, level: Level) -> Vec<CellId> {
        if level == self.topology.host_level() {
            return self.hosts.keys().copied().map(CellId::Host).collect();
        }
        if level > self.topology.host_level() {
            let hosts = self.hosts.iter();
            let inside = hosts.flat_map(|(id, host)| {
                let cells = host.form.cells.iter().enumerate();
                let cells = cells.filter(|(_, cell)| cell.level == level);
                cells.map(|(position, _)| id_of(*id, host, position))
            });
            return inside.collect();
        }
        let places = self.places.iter();
        places
            .filter(|(_, place)| place.level == level)
            .map(|(path, _)| CellId::Above(Arc::clone(path)))
            .collect()
    }

    /// Returns the GPUs of a model on a host.
    #[must_use]
    pub fn of_model(&self, host: HostId, gpu_model: &str) -> GpuMask {
        let Some(known) = self.hosts.get(&host) else {
            return GpuMask::default();
        };
        known.form.of_model(gpu_model)
    }

    /// Returns the cells of a kind inside a host, by first GPU.
    pub(super) fn cells_inside(&self, host: HostId, kind: &CellKind) -> Vec<CellId> {
        let Some(known) = self.hosts.get(&host) else {
            return Vec::new();
        };
        let cells = known.form.cells.iter().enumerate();
        cells
            .filter(|(_, cell)| cell.kind.as_ref() == Some(kind))
            .map(|(position, _)| id_of(host, known, position))
            .collect()
    }

    /// Returns lower bounds for the GPUs of each host in a cell of a kind; a cell inside a host counts as one
    /// host.
    pub(super) fn host_sizes(&self, kind: &CellKind) -> Vec<u32> {
        if kind.level >= self.topology.host_level() {
            return vec![kind.gpus];
        }
        let parts = self.fewest(kind).into_iter();
        parts
            .flat_map(|(part, count)| {
                let sizes = self.host_sizes(part);
                std::iter::repeat_n(sizes, count as usize).flatten()
            })
            .collect()
    }

    /// Returns the largest cells that have a kind.
    pub(super) fn roots(&self) -> Vec<CellId> {
        let mut roots = Vec::new();
        let mut open: Vec<CellId> = self
            .places
            .keys()
            .filter(|path| !path.contains('/'))
            .map(|path| CellId::Above(Arc::clone(path)))
            .collect();
        let placed = |host: &CellTreeHost| !host.above.is_empty() || host.form.models.is_empty();
        let alone = self.hosts.iter().filter(|(_, host)| !placed(host));
        open.extend(alone.map(|(id, _)| CellId::Host(*id)));
        while let Some(cell) = open.pop() {
            match self.kind(&cell) {
                Some(_) => roots.push(cell),
                None => open.extend(self.children(&cell)),
            }
        }
        roots
    }

    /// Returns the largest cell around a host, with or without a kind.
    pub(super) fn top(&self, id: HostId) -> CellId {
        let above = self.hosts.get(&id).and_then(|host| host.above.first());
        above.map_or(CellId::Host(id), |path| CellId::Above(Arc::clone(path)))
    }
}

fn id_of(id: HostId, host: &CellTreeHost, position: usize) -> CellId {
    let cell = &host.form.cells[position];
    match position {
        0 => CellId::Host(id),
        _ => CellId::Inside(id, cell.level, cell.gpus),
    }
}

pub(super) fn count_kinds(kinds: impl Iterator<Item = CellKind>) -> Split {
    let mut counts = BTreeMap::<CellKind, u32>::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    counts.into_iter().collect()
}
