//! Virtual clusters: every cell is bound to at most one of them, within its quota, and each can get all cells
//! that it is still owed.
//!
//! Everything is recomputed from the configuration, the hosts, and the attempts and claims.

mod tree;

use std::collections::{BTreeMap, BTreeSet};

use muster_model::command::AllocationBasis;
use muster_model::ids::{GpuUuid, UnitIndex};
use muster_model::quota::{CellQuota, Guarantee};
use muster_model::topology::CellId;
use tree::{Cell, GpuPosition, KindKey};

use crate::audit::{Report, Rule};
use crate::state::{Job, State, Unit};

/// All cells by the ids used in allocation bases.
type Cells<'t, 'a> = BTreeMap<&'t CellId, &'t Cell<'a>>;
/// Bound cells with their virtual clusters.
type Bound<'a> = BTreeMap<CellId, &'a str>;
/// Number of owed cells by kind.
type Owed<'a> = BTreeMap<KindKey<'a>, i64>;

pub(super) fn check(state: &State, report: &mut Report) {
    if quotas(state).next().is_none() {
        return;
    }
    let roots = tree::roots(state);
    let all = roots.iter().flat_map(Cell::all);
    let cells: Cells<'_, '_> = all.map(|cell| (&cell.id, cell)).collect();
    let pinned = pinned(state, &cells);
    let mut bound = pinned.clone();
    for job in state.jobs.values() {
        for (index, unit) in &job.units {
            check_gpus(state, job, *index, unit, &cells, report);
            for cell in held(unit) {
                let queue = job.spec.queue.as_str();
                let known = *bound.entry(cell.clone()).or_insert(queue);
                report.require(
                    known == queue,
                    Rule::VirtualClusters,
                    &format!("{cell:?}"),
                    || format!("it is bound to {known} and held by {queue}"),
                );
            }
        }
    }
    check_apart(&bound, &cells, report);
    let at_rest = owed(state, &cells, &pinned, &pinned, report);
    let owed = owed(state, &cells, &pinned, &bound, report);
    // A cluster that lost hardware may be short of cells even with nothing bound.
    if missing(&roots, &pinned, at_rest).is_none() {
        let missing = missing(&roots, &bound, owed);
        report.require(missing.is_none(), Rule::VirtualClusters, &"cells", || {
            format!("too few are left for the owed cells: {missing:?}")
        });
    }
}

/// Returns all cell quotas with their queues.
fn quotas(state: &State) -> impl Iterator<Item = (&str, &CellQuota)> {
    let queues = state.queues.iter().filter(|(_, queue)| !queue.retired);
    queues.flat_map(|(name, queue)| {
        let quotas = match &queue.config.guarantee {
            Guarantee::Cells(quotas) => quotas.as_slice(),
            Guarantee::Amounts(_) => &[],
        };
        quotas.iter().map(move |quota| (name.as_ref(), quota))
    })
}

fn kind_of<'a>(state: &State, quota: &'a CellQuota) -> Option<KindKey<'a>> {
    let level = state.topology.level(&quota.level)?;
    let gpus = usize::try_from(quota.gpus).ok()?;
    Some((usize::from(level.0), quota.gpu_model.as_str(), gpus))
}

/// Returns the permanently bound cells; a pin that names no cell of its kind, or one in or around another
/// pinned one, is ignored.
fn pinned<'a>(state: &'a State, cells: &Cells<'_, '_>) -> Bound<'a> {
    let mut bound = Bound::new();
    let mut taken: BTreeSet<GpuPosition> = BTreeSet::new();
    for (queue, quota) in quotas(state) {
        let kind = kind_of(state, quota);
        for pin in &quota.pinned {
            let named = |cell: &&&Cell<'_>| cell.kind() == kind && is_named(state, cell, &pin.cell);
            let Some(cell) = cells.values().find(named) else {
                continue;
            };
            if cell.gpus.keys().all(|gpu| !taken.contains(gpu)) {
                taken.extend(cell.gpus.keys());
                bound.insert(cell.id.clone(), queue);
            }
        }
    }
    bound
}

/// Whether a configured name refers to a cell: a path, a host, or a host and the position of one of its GPUs.
fn is_named(state: &State, cell: &Cell<'_>, name: &str) -> bool {
    let host_name = |host| state.host(host).map(|host| host.name.as_ref());
    match &cell.id {
        CellId::Above(path) => **path == *name,
        CellId::Host(host) => host_name(*host) == Some(name),
        CellId::Inside(host, ..) => name.rsplit_once(':').is_some_and(|(named, position)| {
            let position = position.parse().ok();
            host_name(*host) == Some(named)
                && position.is_some_and(|position| cell.gpus.contains_key(&(*host, position)))
        }),
    }
}

/// Returns the cells that a unit holds or claims.
fn held(unit: &Unit) -> impl Iterator<Item = &CellId> {
    let attempt = unit
        .attempt
        .as_ref()
        .map(|attempt| &attempt.allocation_basis);
    let claim = unit.claim.as_ref().map(|claim| &claim.allocation_basis);
    let standings = attempt.into_iter().chain(claim);
    standings.flat_map(|allocation_basis| match allocation_basis {
        AllocationBasis::Cells(cells) => cells.as_slice(),
        AllocationBasis::Share | AllocationBasis::Opportunistic => &[],
    })
}

/// Checks that work that holds cells has all its GPUs in them, and a GPU in each.
fn check_gpus(
    state: &State,
    job: &Job,
    index: UnitIndex,
    unit: &Unit,
    cells: &Cells<'_, '_>,
    report: &mut Report,
) {
    let Some(attempt) = &unit.attempt else { return };
    let AllocationBasis::Cells(held) = &attempt.allocation_basis else {
        return;
    };
    let place_of = |gpu: &GpuUuid| {
        let host = state.host(*state.gpu_hosts.get(gpu)?)?;
        let position = host.gpus.iter().position(|known| known.uuid == *gpu)?;
        Some((host.id, position))
    };
    let gpus = attempt.tasks.iter().flat_map(|run| &run.gpus);
    let gpus: Option<BTreeSet<GpuPosition>> = gpus.map(place_of).collect();
    let inside: Vec<BTreeSet<GpuPosition>> = held
        .iter()
        .map(|id| {
            cells
                .get(id)
                .map_or_else(BTreeSet::new, |cell| cell.places())
        })
        .collect();
    let is_used = |cell: &BTreeSet<GpuPosition>| {
        gpus.as_ref()
            .is_some_and(|gpus| gpus.iter().any(|gpu| cell.contains(gpu)))
    };
    let is_inside = gpus
        .iter()
        .flatten()
        .all(|gpu| inside.iter().any(|cell| cell.contains(gpu)));
    report.require(
        gpus.is_some() && is_inside && inside.iter().all(is_used),
        Rule::VirtualClusters,
        &format!("job {} unit {index}", job.id),
        || format!("its GPUs {gpus:?} are not those of its cells {held:?}"),
    );
}

/// Checks that no GPU lies in two bound cells.
fn check_apart(bound: &Bound<'_>, cells: &Cells<'_, '_>, report: &mut Report) {
    let mut seen: BTreeMap<GpuPosition, &CellId> = BTreeMap::new();
    for id in bound.keys() {
        for gpu in cells.get(id).into_iter().flat_map(|cell| cell.gpus.keys()) {
            let other = seen.insert(*gpu, id);
            report.require(
                other.is_none(),
                Rule::VirtualClusters,
                &format!("{id:?}"),
                || format!("it overlaps with {other:?}, which is bound too"),
            );
        }
    }
}

/// Returns the quota that is not bound; checks that no quota is exceeded.
fn owed<'a>(
    state: &'a State,
    cells: &Cells<'_, 'a>,
    pinned: &Bound<'_>,
    bound: &Bound<'_>,
    report: &mut Report,
) -> Owed<'a> {
    let mut left: BTreeMap<(&str, KindKey<'_>), i64> = BTreeMap::new();
    for (queue, quota) in quotas(state) {
        if let Some(kind) = kind_of(state, quota) {
            *left.entry((queue, kind)).or_default() += i64::from(quota.count);
        }
    }
    let loose = bound.iter().filter(|(id, _)| !pinned.contains_key(*id));
    for (id, queue) in loose {
        let kind = cells.get(id).and_then(|cell| cell.kind());
        let quota = kind.and_then(|kind| left.get_mut(&(*queue, kind)));
        let is_left = quota.as_deref().is_some_and(|left| *left > 0);
        report.require(is_left, Rule::VirtualClusters, &format!("{id:?}"), || {
            format!("it is bound beyond the quota of {queue}")
        });
        if let Some(left) = quota {
            *left -= 1;
        }
    }
    let mut owed = Owed::new();
    for ((_, kind), left) in left {
        *owed.entry(kind).or_default() += left;
    }
    owed
}

/// Returns a kind with fewer available cells than are owed; available are free cells and parts of larger free
/// cells that no cluster is owed.
fn missing<'a>(roots: &[Cell<'a>], bound: &Bound<'_>, owed: Owed<'a>) -> Option<KindKey<'a>> {
    let mut left: BTreeMap<KindKey<'a>, i64> = BTreeMap::new();
    let mut splits: BTreeMap<KindKey<'a>, Vec<BTreeMap<KindKey<'a>, i64>>> = BTreeMap::new();
    for root in roots {
        count_free(root, bound, &mut left);
        for cell in root.all() {
            if let Some(kind) = cell.kind() {
                let mut pieces = BTreeMap::new();
                for child in cell.children.iter().filter_map(Cell::kind) {
                    *pieces.entry(child).or_default() += 1;
                }
                splits.entry(kind).or_default().push(pieces);
            }
        }
    }
    for (kind, count) in owed {
        *left.entry(kind).or_default() -= count;
    }
    while let Some((kind, count)) = left.pop_first() {
        if count < 0 {
            return Some(kind);
        }
        for (piece, each) in fewest(splits.get(&kind)) {
            *left.entry(piece).or_default() += each * count;
        }
    }
    None
}

/// Counts the largest cells with nothing bound in or around them.
fn count_free<'a>(cell: &Cell<'a>, bound: &Bound<'_>, free: &mut BTreeMap<KindKey<'a>, i64>) {
    if bound.contains_key(&cell.id) {
        return;
    }
    let is_touched = cell
        .all()
        .iter()
        .any(|inside| bound.contains_key(&inside.id));
    match cell.kind() {
        Some(kind) if !is_touched => *free.entry(kind).or_default() += 1,
        _ => {
            for child in &cell.children {
                count_free(child, bound, free);
            }
        }
    }
}

/// Returns the minimum number of cells of each kind that a split yields, over all cells of a kind.
fn fewest<'a>(ways: Option<&Vec<BTreeMap<KindKey<'a>, i64>>>) -> BTreeMap<KindKey<'a>, i64> {
    let Some((first, others)) = ways.and_then(|ways| ways.split_first()) else {
        return BTreeMap::new();
    };
    let fewest_of = |(piece, count): (&KindKey<'a>, &i64)| {
        let counts = others
            .iter()
            .map(|way| way.get(piece).copied().unwrap_or(0));
        (*piece, counts.fold(*count, i64::min))
    };
    first.iter().map(fewest_of).collect()
}
