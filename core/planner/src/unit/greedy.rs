//! Greedy gang placement: best fit decreasing, the parts with the largest tasks first, each task where it
//! leaves the least free.
//!
//! It is exact if one kind of resource decides and the sizes of the tasks divide each other (1, 2, 4, 8
//! GPUs): a task then costs every host the same number of slots for smaller ones, wherever it goes. It is
//! also exact for a single part, subgroups included, because all its tasks are equal. Other cases may need
//! [`super::exact`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_model::command::TaskPlacement;
use muster_model::ids::HostId;
use muster_model::topology::{GpuMask, Level, TaskScope};

use crate::capacity::{Capacity, FreeHosts, Need, uuids};
use crate::unit::gang::{GangVariant, Preferences, subgroups};
use crate::unit::request::{Part, UnitRequest, task_of};

/// Progress of a gang that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartialFit {
    /// Tasks that found room.
    pub(super) fits_tasks: u64,
    /// Whether no other order or choice would place more.
    pub(super) certain: bool,
    /// The level of cells with too little room, if there would be room outside a single cell.
    pub(super) level: Option<Level>,
    /// Whether the topology lacks the requested level.
    pub(super) unknown_level: bool,
    /// Whether a search reached its bound: there may be room.
    pub(super) over_bound: bool,
}

impl PartialFit {
    pub(super) fn unknown_level() -> Self {
        Self {
            certain: true,
            unknown_level: true,
            ..Self::default()
        }
    }

    /// No cell of the level was a candidate.
    pub(super) fn no_cell(level: Level) -> Self {
        Self {
            certain: true,
            level: Some(level),
            ..Self::default()
        }
    }

    /// The result that placed more tasks.
    pub(super) fn nearer(self, other: Self) -> Self {
        let over_bound = self.over_bound || other.over_bound;
        let further = if other.fits_tasks > self.fits_tasks {
            other
        } else {
            self
        };
        Self {
            over_bound,
            ..further
        }
    }
}

/// Placement of a task of a part.
type TaskSlot = (HostId, GpuMask);

/// Places every part in its class, the part with the largest tasks first because it is the hardest.
pub(super) fn place(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
) -> Result<Vec<TaskPlacement>, PartialFit> {
    let mut placed: Vec<Vec<TaskSlot>> = vec![Vec::new(); request.parts.len()];
    let mut short = PartialFit::default();
    let mut whole = true;
    for (turn, position) in hardest_first(request, way).into_iter().enumerate() {
        let part = &request.parts[position];
        let want = way.counts[position];
        let (spots, level) = place_part(capacity, request, way, position);
        short.fits_tasks += spots.len() as u64;
        if spots.len() < want as usize {
            whole = false;
            // The first part had no competition, and its tasks are equal.
            short.certain |= turn == 0;
            short.level = short.level.or(level);
            short.unknown_level |= part.shared.is_some_and(|shared| shared.level.is_none());
        }
        placed[position] = spots;
    }
    if !whole {
        return Err(short);
    }
    let tasks = request.parts.iter().zip(placed);
    Ok(tasks
        .flat_map(|(part, spots)| (0..).zip(spots).map(move |(task, spot)| (part, task, spot)))
        .filter_map(|(part, task, (host, gpus))| {
            Some(TaskPlacement {
                task: task_of(part, task),
                host,
                gpus: uuids(capacity.state().host(host)?, gpus),
            })
        })
        .collect())
}

/// Parts whose GPUs share small cells or that name their GPUs first, then those with large subgroups and
/// tasks.
pub(super) fn hardest_first(request: &UnitRequest<'_>, way: &GangVariant<'_>) -> Vec<usize> {
    let mut parts: Vec<usize> = (0..request.parts.len()).collect();
    parts.sort_by_key(|&position| {
        let part = &request.parts[position];
        let needs = &part.group.resources;
        let block = match is_shared(part, way) {
            true => u64::from(needs.gpus) * u64::from(part.subgroup.min(way.counts[position])),
            false => 0,
        };
        let own = own(part, way);
        Reverse((
            part.named.is_some(),
            own,
            (block, needs.gpus),
            (needs.cpus_milli, needs.memory_mib),
        ))
    });
    parts
}

/// Level that the GPUs of a task of a part must share.
pub(super) fn own(part: &Part<'_>, way: &GangVariant<'_>) -> TaskScope {
    match way.preferences {
        Preferences::Required => part.own_preferred,
        Preferences::Tried | Preferences::Ignored => part.own,
    }
}

/// Whether the subgroups of a part must share cells.
pub(super) fn is_shared(part: &Part<'_>, way: &GangVariant<'_>) -> bool {
    part.shared
        .is_some_and(|shared| shared.required || way.preferences == Preferences::Required)
}

/// Places as many tasks of a part as possible, in task order; returns the level of which a cell is missing.
fn place_part(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
    position: usize,
) -> (Vec<TaskSlot>, Option<Level>) {
    let part = &request.parts[position];
    let need = part.need(request.requester, &way.classes[position], own(part, way));
    let count = way.counts[position];
    let tried = part.shared.is_some() && way.preferences == Preferences::Tried;
    let required = is_shared(part, way);
    if !required && !tried {
        return (fill(capacity, request, need, Pool::Class, count), None);
    }
    let level = part.shared.and_then(|shared| shared.level);
    let mut spots = Vec::new();
    for (_, size) in subgroups(part, count) {
        let in_cell = level.and_then(|level| fill_cell(capacity, request, need, level, size));
        match in_cell {
            Some(of_cell) => spots.extend(of_cell),
            None if required => return (spots, level),
            None => {
                let anywhere = fill(capacity, request, need, Pool::Class, size);
                let enough = anywhere.len() == size as usize;
                spots.extend(anywhere);
                if !enough {
                    return (spots, None);
                }
            }
        }
    }
    (spots, None)
}

/// Places the given tasks in one cell of a level, the fullest with room; places nothing if there is none.
fn fill_cell(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    need: Need<'_>,
    level: Level,
    count: u32,
) -> Option<Vec<TaskSlot>> {
    let host_level = capacity.state().topology.host_level();
    if level >= host_level {
        let host = capacity.fitting_host(need, count)?;
        let gpus = capacity.take(host, need, count);
        return Some(gpus.into_iter().map(|mask| (host, mask)).collect());
    }
    let gpus = u64::from(need.group.resources.gpus) * u64::from(count);
    let places = capacity.places();
    let fits = |path: &&std::sync::Arc<str>| has_room(capacity, need, places.hosts(path), count);
    let path = match need.class.is_empty() {
        true => places.of_level(level).find(fits),
        false => places.with_free(level, need.class, gpus).find(fits),
    }?;
    let hosts = capacity.sized(places.hosts(path), need);
    Some(fill(capacity, request, need, Pool::Hosts(hosts), count))
}

/// Whether some hosts have room for the given number of tasks of one need.
pub(super) fn has_room(
    capacity: &Capacity<'_>,
    need: Need<'_>,
    hosts: impl Iterator<Item = HostId>,
    count: u32,
) -> bool {
    let mut left = count;
    for host in hosts {
        if left == 0 {
            break;
        }
        if let Some(record) = capacity.state().host(host) {
            let free = capacity.free_on(record, need.class).count();
            left = left.saturating_sub(capacity.tasks_fitting(host, free, need));
        }
    }
    left == 0
}

/// Source of hosts.
enum Pool {
    /// All hosts of the need's class, or the named ones.
    Class,
    /// These hosts, fullest first.
    Hosts(Vec<(u32, HostId)>),
}

/// Places as many of the given tasks as there is room for, in host order, so that neighbouring ranks share
/// a host.
fn fill(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    need: Need<'_>,
    pool: Pool,
    count: u32,
) -> Vec<TaskSlot> {
    let pool = match (pool, need.few_hosts) {
        (Pool::Class, Some(hosts)) => Pool::Hosts(capacity.sized(hosts.iter().copied(), need)),
        (pool, _) => pool,
    };
    let hosts = match pool {
        Pool::Hosts(hosts) => hosts.into_iter().collect(),
        Pool::Class => capacity.hosts(need.class),
    };
    let shares = if request.spreads() {
        spread(capacity, need, &hosts, count)
    } else {
        pack(capacity, need, &hosts, count)
    };
    let spots = shares.into_iter();
    spots
        .flat_map(|(host, gpus)| gpus.into_iter().map(move |mask| (host, mask)))
        .collect()
}

/// The GPUs of the tasks on each host.
type Shares = BTreeMap<HostId, Vec<GpuMask>>;

/// As few hosts as possible: those with the most free GPUs first, the rest where it leaves the least.
fn pack(capacity: &mut Capacity<'_>, need: Need<'_>, hosts: &FreeHosts, count: u32) -> Shares {
    let mut shares = Shares::new();
    let mut left = count;
    for (free, host) in packing_order(hosts, need.group.resources.gpus) {
        if left == 0 {
            break;
        }
        let rest = capacity.tightest(need, left, hosts, &shares);
        let (host, fitting) = match rest {
            Some(host) => (host, left),
            None => (host, capacity.tasks_fitting(host, free, need)),
        };
        let taken = fitting.min(left);
        if taken > 0 {
            shares.insert(host, capacity.take(host, need, taken));
            left -= taken;
        }
    }
    shares
}

/// As many hosts as possible: one task each, those with the most free GPUs first, round after round.
fn spread(capacity: &mut Capacity<'_>, need: Need<'_>, hosts: &FreeHosts, count: u32) -> Shares {
    let mut shares = Shares::new();
    let mut left = count;
    let mut open: Vec<(u32, HostId)> = packing_order(hosts, need.group.resources.gpus).collect();
    while left > 0 && !open.is_empty() {
        open.retain_mut(|(free, host)| {
            let fits = left > 0 && capacity.tasks_fitting(*host, *free, need) > 0;
            if fits {
                let gpus = capacity.take(*host, need, 1);
                *free -= need.group.resources.gpus;
                shares.entry(*host).or_default().extend(gpus);
                left -= 1;
            }
            fits
        });
    }
    shares
}

/// Hosts with the most free GPUs first; tasks without GPUs go where the fewest are free.
fn packing_order(hosts: &FreeHosts, gpus: u32) -> Box<dyn Iterator<Item = (u32, HostId)> + '_> {
    if gpus == 0 {
        return Box::new(hosts.iter().copied());
    }
    let most = hosts.get_max().map(|(free, _)| *free);
    let levels = std::iter::successors(most, |level| {
        let below = hosts.range(..(*level, HostId(0))).next_back();
        below.map(|(free, _)| *free)
    });
    let roomy = levels.take_while(move |level| *level >= gpus);
    Box::new(roomy.flat_map(|level| {
        let of_level = hosts.range((level, HostId(0))..=(level, HostId(u32::MAX)));
        of_level.copied()
    }))
}
