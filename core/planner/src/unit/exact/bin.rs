//! Bins of the packing search: the free resources of a host, reduced to what the parts of one gang can
//! distinguish.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::feasibility::Room;
use muster_engine::state::HostClass;
use muster_model::spec::Resources;
use muster_model::topology::{Level, TaskScope};

use crate::unit::gang::GangVariant;
use crate::unit::greedy::own;
use crate::unit::request::{Part, UnitRequest};

/// GPUs of a host that are equivalent for all parts: the same parts may use them, and they are in the same
/// cells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Atom {
    /// Parts that may use them: one bit per position (`GROUPS_PER_JOB_MAX` is 64).
    pub(super) parts: u64,
    /// The cell on each level inside hosts that a part requests, by its first GPU.
    pub(super) cells: Vec<Option<u32>>,
    /// Number of free GPUs.
    pub(super) free: u32,
}

/// Hosts with the same remaining resources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bin {
    /// Cells around the host, if a part requests one.
    pub(super) above: Arc<[Arc<str>]>,
    /// Parts that may be placed there.
    pub(super) parts: u64,
    pub(super) atoms: Vec<Atom>,
    pub(super) room: Room,
    /// Number of tasks that each part with a limit may still place here.
    pub(super) limits: Vec<u32>,
}

impl Bin {
    /// Number of free GPUs.
    pub(super) fn gpus(&self) -> u32 {
        self.atoms.iter().map(|atom| atom.free).sum()
    }
}

/// The parts' requests in terms of bins.
pub(super) struct Shapes<'a> {
    pub(super) request: &'a UnitRequest<'a>,
    pub(super) way: &'a GangVariant<'a>,
    /// Levels inside hosts that a part requests, ascending.
    pub(super) levels: Vec<Level>,
    /// Whether a part requests a cell above hosts.
    pub(super) above: bool,
    /// Whether it matters which of the GPUs in a cell a task gets.
    ambiguous: bool,
}

impl<'a> Shapes<'a> {
    pub(super) fn of(request: &'a UnitRequest<'a>, way: &'a GangVariant<'a>) -> Self {
        let levels: BTreeSet<Level> = request
            .parts
            .iter()
            .filter_map(|part| match own(part, way) {
                TaskScope::Cell(level) => Some(level),
                TaskScope::Host | TaskScope::Gpu => None,
            })
            .collect();
        Self {
            request,
            way,
            levels: levels.into_iter().collect(),
            above: request.parts.iter().any(|part| part.shared.is_some()),
            ambiguous: request.parts.iter().any(|part| part.named.is_some()),
        }
    }

    pub(super) fn part(&self, part: usize) -> (&'a Part<'a>, &'a HostClass, TaskScope) {
        let of_part = &self.request.parts[part];
        (of_part, &self.way.classes[part], own(of_part, self.way))
    }

    fn resources(&self, part: usize) -> &'a Resources {
        &self.request.parts[part].group.resources
    }

    /// Number of tasks of a part that fit in a bin, if no other comes.
    pub(super) fn tasks(&self, bin: &Bin, part: usize) -> u32 {
        if bin.parts >> part & 1 == 0 {
            return 0;
        }
        let resources = self.resources(part);
        let places = self.request.parts[part].places;
        let by_room = bin.room.tasks(resources, places).min(bin.limits[part]);
        if resources.gpus == 0 {
            return by_room;
        }
        let by_gpus: u32 = self
            .cells(bin, part)
            .into_iter()
            .map(|atoms| self.free(bin, &atoms) / resources.gpus)
            .sum();
        by_gpus.min(by_room)
    }

    /// The remaining bins after placing `tasks` tasks of a part, one for each way that makes a difference.
    pub(super) fn place(&self, bin: &Bin, part: usize, tasks: u32) -> BTreeSet<Bin> {
        let mut left = BTreeSet::from([bin.clone()]);
        for _ in 0..tasks {
            left = left
                .iter()
                .flat_map(|bin| self.place_one(bin, part))
                .collect();
        }
        left
    }

    fn place_one(&self, bin: &Bin, part: usize) -> Vec<Bin> {
        if self.tasks(bin, part) == 0 {
            return Vec::new();
        }
        let resources = self.resources(part);
        let mut given = bin.clone();
        given
            .room
            .deduct(resources, self.request.parts[part].places, 1);
        if given.limits[part] != u32::MAX {
            given.limits[part] -= 1;
        }
        if resources.gpus == 0 {
            return vec![given];
        }
        let cells = self.cells(bin, part).into_iter();
        cells
            .filter(|atoms| self.free(bin, atoms) >= resources.gpus)
            .flat_map(|atoms| self.take(&given, &atoms, resources.gpus))
            .collect()
    }

    /// The atoms from which a task of a part may take its GPUs, by the cell that they must share.
    fn cells(&self, bin: &Bin, part: usize) -> Vec<Vec<usize>> {
        let usable = (0..bin.atoms.len()).filter(|atom| bin.atoms[*atom].parts >> part & 1 == 1);
        let own = self.part(part).2;
        match own {
            TaskScope::Host => vec![usable.collect()],
            TaskScope::Gpu if self.resources(part).gpus > 1 => Vec::new(),
            TaskScope::Gpu => usable.map(|atom| vec![atom]).collect(),
            TaskScope::Cell(level) => {
                let Some(column) = self.levels.iter().position(|known| *known == level) else {
                    return Vec::new();
                };
                let mut cells: std::collections::BTreeMap<u32, Vec<usize>> =
                    std::collections::BTreeMap::new();
                for atom in usable {
                    if let Some(cell) = bin.atoms[atom].cells[column] {
                        cells.entry(cell).or_default().push(atom);
                    }
                }
                cells.into_values().collect()
            }
        }
    }

    fn free(&self, bin: &Bin, atoms: &[usize]) -> u32 {
        atoms.iter().map(|atom| bin.atoms[*atom].free).sum()
    }

    /// Takes GPUs of some atoms, which have enough: in every way if it matters, else in one.
    ///
    /// Parts that share the smallest cells come first, so for later parts it does not matter which GPUs of
    /// a cell remain; it may matter to parts that name their GPUs.
    fn take(&self, bin: &Bin, atoms: &[usize], gpus: u32) -> Vec<Bin> {
        if gpus == 0 {
            return vec![bin.clone()];
        }
        let Some((first, others)) = atoms.split_first() else {
            return Vec::new();
        };
        let most = bin.atoms[*first].free.min(gpus);
        let fewest = match self.ambiguous {
            true => gpus.saturating_sub(self.free(bin, others)),
            false => most,
        };
        (fewest..=most)
            .flat_map(|taken| {
                let mut left = bin.clone();
                left.atoms[*first].free -= taken;
                self.take(&left, others, gpus - taken)
            })
            .collect()
    }
}
