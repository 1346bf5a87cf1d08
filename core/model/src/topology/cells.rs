//! Cells and their ids, and the cells around and inside one host.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::ids::HostId;
use crate::limits;
use crate::topology::{IgnoredReport, Level, Topology};

/// Separates the names in a cell's path.
const SEPARATOR: &str = "/";

/// A set of GPUs of one host: one bit per position in the host's list (`GPUS_PER_HOST_MAX` is 128).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct GpuMask(pub u128);

impl GpuMask {
    /// The GPUs at the first `count` positions.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count >= limits::GPUS_PER_HOST_MAX {
            Self(u128::MAX)
        } else {
            Self((1 << count) - 1)
        }
    }

    /// The GPU at one position.
    #[must_use]
    pub const fn one(position: usize) -> Self {
        Self(1 << position)
    }

    /// Number of GPUs in the set.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains the GPU at a position.
    #[must_use]
    pub const fn has(self, position: usize) -> bool {
        self.0 >> position & 1 == 1
    }

    /// Intersection.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Union.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Difference.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the other set is a subset.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The `count` lowest GPUs; all of them if there are fewer.
    #[must_use]
    pub const fn lowest(self, count: u32) -> Self {
        let mut rest = self.0;
        let mut left = count;
        while left > 0 && rest != 0 {
            rest &= rest - 1;
            left -= 1;
        }
        Self(self.0 & !rest)
    }

    /// Positions in the set, ascending.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let position = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                position
            })
        })
    }
}

/// One cell of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CellId {
    /// A cell above hosts, identified by its path of names: `pod-1/rack-07`.
    Above(Arc<str>),
    /// A host.
    Host(HostId),
    /// A cell inside a host, single GPUs included.
    Inside(HostId, Level, GpuMask),
}

/// Kind of a cell: cells of one kind are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellKind {
    /// Level of the cell.
    pub level: Level,
    /// The GPU model of all its GPUs.
    pub gpu_model: Arc<str>,
    /// Number of its GPUs.
    pub gpus: u32,
}

/// A cell inside a host, between the host and its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InsideCell {
    /// Level of the cell.
    pub level: Level,
    /// Its GPUs.
    pub gpus: GpuMask,
}

/// Paths of the cells around every host in a configuration, largest first, by host name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellPaths {
    around: BTreeMap<Box<str>, Arc<[Arc<str>]>>,
    /// Paths of the configured cells with a name, by level.
    named: BTreeMap<(usize, Box<str>), Vec<Arc<str>>>,
}

impl CellPaths {
    /// The locations in a topology.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let mut known: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut places = Self::default();
        for place in &topology.places {
            let around: Arc<[Arc<str>]> = paths(&place.cell)
                .map(|path| Arc::clone(known.entry(path.clone()).or_insert(Arc::from(path))))
                .collect();
            for (depth, (name, path)) in place.cell.iter().zip(around.iter()).enumerate() {
                let named = places
                    .named
                    .entry((depth, Box::from(name.as_str())))
                    .or_default();
                if !named.contains(path) {
                    named.push(Arc::clone(path));
                }
            }
            for host in &place.hosts {
                let name = Box::from(host.as_str());
                places.around.insert(name, Arc::clone(&around));
            }
        }
        places
    }

    /// Paths of the cells around a host, largest first; empty if the topology does not list it.
    #[must_use]
    pub fn around(&self, host: &str) -> Arc<[Arc<str>]> {
        self.around.get(host).cloned().unwrap_or_default()
    }

    /// Paths of the cells with this name on a level, counted from the largest.
    pub(super) fn named(&self, level: usize, name: &str) -> &[Arc<str>] {
        let key = (level, Box::from(name));
        self.named.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// Source of a host's cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CellSource {
    /// The host has none.
    #[default]
    None,
    /// The configured topology lists the host, or hosts of its kind.
    Configuration,
    /// Its worker reported them.
    Worker,
}

/// The cells around and inside one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCells {
    /// Paths of the cells around it, largest first; empty if there are none.
    pub above: Arc<[Arc<str>]>,
    /// Cells between the host and its GPUs, by level and then by first GPU; those of one level are disjoint.
    pub inside: Arc<[InsideCell]>,
    /// Its GPUs by model, ascending by model.
    pub models: Arc<[(Arc<str>, GpuMask)]>,
    /// Source of the cells around it.
    pub above_by: CellSource,
    /// Source of the cells inside it.
    pub inside_by: CellSource,
    /// Ignored parts of its worker's report, with reasons.
    pub flaws: Arc<[IgnoredReport]>,
}

impl HostCells {
    /// Its GPUs of a model; all of them if the model is empty.
    #[must_use]
    pub fn of_model(&self, model: &str) -> GpuMask {
        let of_model = |(known, _): &&(Arc<str>, GpuMask)| model.is_empty() || **known == *model;
        let masks = self.models.iter().filter(of_model);
        masks.fold(GpuMask::default(), |all, (_, mask)| all.or(*mask))
    }

    /// The cell on a level that contains the given GPUs of the host; `None` if there is none (a host without
    /// a location, GPUs of two cells).
    #[must_use]
    pub fn enclosing(
        &self,
        topology: &Topology,
        level: Level,
        host: HostId,
        gpus: GpuMask,
    ) -> Option<CellId> {
        let host_level = topology.host_level();
        if level < host_level {
            let path = self.above.get(usize::from(level.0))?;
            return Some(CellId::Above(Arc::clone(path)));
        }
        if level == host_level {
            return Some(CellId::Host(host));
        }
        if level == topology.gpu_level() {
            return (gpus.count() == 1).then_some(CellId::Inside(host, level, gpus));
        }
        self.inside
            .iter()
            .find(|cell| cell.level == level && cell.gpus.covers(gpus))
            .map(|cell| CellId::Inside(host, level, cell.gpus))
    }
}

/// Paths of a cell and of its ancestors, largest first.
pub(super) fn paths(names: &[String]) -> impl Iterator<Item = String> {
    (1..=names.len()).map(|depth| names[..depth].join(SEPARATOR))
}

pub(super) fn models(host: &Host) -> Arc<[(Arc<str>, GpuMask)]> {
    let mut models: BTreeMap<&Arc<str>, GpuMask> = BTreeMap::new();
    for (position, gpu) in host.gpus.iter().enumerate().take(limits::GPUS_PER_HOST_MAX) {
        let mask = models.entry(&gpu.model).or_default();
        *mask = mask.or(GpuMask::one(position));
    }
    models
        .into_iter()
        .map(|(model, mask)| (Arc::clone(model), mask))
        .collect()
}

/// The cells inside a host by the first configured shape that matches it.
pub(super) fn configured_inside(topology: &Topology, host: &Host) -> Option<Vec<InsideCell>> {
    let shape = topology.shapes.iter().find(|shape| shape.fits(host))?;
    let mut cells: Vec<InsideCell> = shape
        .groups
        .iter()
        .filter_map(|group| {
            let gpus = group
                .gpus
                .iter()
                .fold(GpuMask::default(), |mask, position| {
                    mask.or(GpuMask::one(*position as usize))
                });
            let level = topology.level(&group.level)?;
            Some(InsideCell { level, gpus })
        })
        .collect();
    cells.sort_unstable_by_key(|cell| (cell.level, cell.gpus.0.trailing_zeros()));
    Some(cells)
}

impl crate::topology::HostShape {
    /// Whether a host is of this kind.
    #[must_use]
    pub fn fits(&self, host: &Host) -> bool {
        host.gpus.len() == self.gpus as usize
            && (self.gpu_model.is_empty()
                || host.gpus.iter().all(|gpu| *gpu.model == *self.gpu_model))
            && (self.hosts.is_empty() || self.hosts.iter().any(|name| **name == *host.name))
    }
}
