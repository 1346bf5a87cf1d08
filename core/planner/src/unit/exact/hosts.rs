//! Assignment of hosts to the bins of the packing search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::topology::{GpuMask, HostCells};

use crate::capacity::Capacity;
use crate::unit::exact::Bins;
use crate::unit::exact::bin::{Atom, Bin, Shapes};

/// A host and its free GPUs, atom by atom.
type Free = (HostId, Vec<GpuMask>);

/// The hosts of each bin.
pub(super) struct Hosts(BTreeMap<Arc<Bin>, Vec<Free>>);

impl Hosts {
    /// The hosts that fit at least one task, at most as many per bin as there are items.
    pub(super) fn of(capacity: &Capacity<'_>, shapes: &Shapes<'_>, items: usize) -> Self {
        let mut hosts = Self(BTreeMap::new());
        for host in candidates(capacity, shapes) {
            let cells = capacity.cells(host);
            let record = capacity.state().host(host);
            let (Some(cells), Some(record)) = (cells, record) else {
                continue;
            };
            let Some((bin, masks)) = bin_of(capacity, shapes, record, cells) else {
                continue;
            };
            let alike = hosts.0.entry(Arc::new(bin)).or_default();
            if alike.len() < items {
                alike.push((host, masks));
            }
        }
        hosts
    }

    pub(super) fn bins(&self) -> Bins {
        let bins = self.0.iter();
        bins.map(|(bin, hosts)| (Arc::clone(bin), hosts.len()))
            .collect()
    }

    /// Moves a host from one bin to another; returns it and the GPUs by which they differ.
    pub(super) fn take_host(
        &mut self,
        from: &Arc<Bin>,
        to: &Arc<Bin>,
    ) -> Option<(HostId, Vec<usize>)> {
        let (host, mut masks) = self.0.get_mut(from)?.pop()?;
        let mut taken = GpuMask::default();
        for ((mask, before), after) in masks.iter_mut().zip(&from.atoms).zip(&to.atoms) {
            let of_atom = mask.lowest(before.free - after.free);
            *mask = mask.without(of_atom);
            taken = taken.or(of_atom);
        }
        self.0
            .entry(Arc::clone(to))
            .or_default()
            .push((host, masks));
        Some((host, taken.positions().collect()))
    }
}

/// Hosts with enough free GPUs for a task of some part.
fn candidates(capacity: &Capacity<'_>, shapes: &Shapes<'_>) -> BTreeSet<HostId> {
    let mut candidates = BTreeSet::new();
    for position in 0..shapes.request.parts.len() {
        let (part, class, _) = shapes.part(position);
        match &part.few_hosts {
            Some(hosts) => candidates.extend(hosts),
            None => {
                let hosts = capacity.hosts(class);
                let roomy = hosts.range((part.group.resources.gpus, HostId(0))..);
                candidates.extend(roomy.map(|(_, host)| *host));
            }
        }
    }
    candidates
}

/// Remaining resources of a host; `None` if it fits no task of any part.
fn bin_of(
    capacity: &Capacity<'_>,
    shapes: &Shapes<'_>,
    host: &Host,
    cells: &HostCells,
) -> Option<(Bin, Vec<GpuMask>)> {
    let mut parts = 0;
    let mut usable = Vec::new();
    for position in 0..shapes.request.parts.len() {
        let (part, class, own) = shapes.part(position);
        let need = part.need(shapes.request.requester, class, own);
        let free = capacity.free_on(host, class);
        if capacity.tasks_fitting(host.id, free.count(), need) > 0 {
            parts |= 1 << position;
            let allowed = match &part.named {
                Some(named) => named.get(&host.id).copied().unwrap_or_default(),
                None => GpuMask(u128::MAX),
            };
            let gpus = match part.group.resources.gpus {
                0 => GpuMask::default(),
                _ => free.and(allowed),
            };
            usable.push((position, gpus));
        }
    }
    if parts == 0 {
        return None;
    }
    let mut atoms: BTreeMap<(u64, Vec<Option<u32>>), GpuMask> = BTreeMap::new();
    let all = usable
        .iter()
        .fold(GpuMask::default(), |all, (_, mask)| all.or(*mask));
    for gpu in all.positions() {
        let usable_by = usable
            .iter()
            .filter(|(_, mask)| mask.has(gpu))
            .fold(0, |bits, (position, _)| bits | 1 << position);
        let levels = shapes.levels.iter();
        let around = levels.map(|level| {
            let cell = cells.on_level(*level).find(|cell| cell.gpus.has(gpu));
            cell.map(|cell| cell.gpus.0.trailing_zeros())
        });
        let mask = atoms.entry((usable_by, around.collect())).or_default();
        *mask = mask.or(GpuMask::one(gpu));
    }
    let masks = atoms.values().copied().collect();
    let atoms = atoms.into_iter().map(|((parts, cells), mask)| Atom {
        parts,
        cells,
        free: mask.count(),
    });
    let bin = Bin {
        above: match shapes.above {
            true => Arc::clone(&cells.above),
            false => Arc::default(),
        },
        parts,
        atoms: atoms.collect(),
        room: capped_room(capacity, shapes, host),
        limits: shapes
            .request
            .parts
            .iter()
            .map(|part| part.group.tasks_per_host_max.unwrap_or(u32::MAX))
            .collect(),
    };
    Some((bin, masks))
}

/// The room of a host, capped at what the gang can use.
fn capped_room(
    capacity: &Capacity<'_>,
    shapes: &Shapes<'_>,
    host: &Host,
) -> muster_engine::feasibility::Room {
    let (mut cpus_milli, mut memory_mib, mut tasks) = (0, 0, 0u32);
    for (part, count) in shapes.request.parts.iter().zip(shapes.way.counts) {
        let resources = &part.group.resources;
        cpus_milli += u64::from(resources.cpus_milli) * u64::from(*count);
        memory_mib += resources.memory_mib.saturating_mul(u64::from(*count));
        tasks = tasks.saturating_add(count.saturating_mul(part.places));
    }
    capacity.room_of(host).capped(cpus_milli, memory_mib, tasks)
}
