//! Orders in which movable units are tried: each suggests another place for the waiting unit.

use std::collections::BTreeMap;

use muster_engine::state::{Job, State};
use muster_model::ids::HostId;
use muster_model::spec::Within;

use crate::defragment::mover::Mover;

/// Path of the cell above hosts; the host itself if its cell is unknown.
type CellOrHost<'s> = (&'s str, HostId);

/// Orders: cheapest unit first; cheapest host first; host with the fewest units first; and if the unit must
/// be in one cell above hosts, the cell that is cheapest to clear first.
pub(super) fn all<'a>(state: &State, job: &Job, movers: &[Mover<'a>]) -> Vec<Vec<Mover<'a>>> {
    let mut orders = vec![
        by_cost(movers),
        by_place(movers, |host| host, |mover| mover.cost_gpu_ms),
        by_place(movers, |host| host, |_| 1),
    ];
    if let Some(within) = cell_asked(job) {
        let cell = |host| cell_of(state, within, host);
        orders.push(by_place(movers, cell, |mover| mover.cost_gpu_ms));
    }
    orders
}

/// The cheapest units first.
pub(super) fn by_cost<'a>(movers: &[Mover<'a>]) -> Vec<Mover<'a>> {
    let mut order = movers.to_vec();
    order.sort_by_key(|mover| (mover.cost_gpu_ms, mover.running.unit_id()));
    order
}

/// Place by place, smallest sum first; a unit spread over several places comes with its first one.
fn by_place<'a, P: Clone + Ord>(
    movers: &[Mover<'a>],
    place_of: impl Fn(HostId) -> P,
    weight: impl Fn(&Mover<'a>) -> u64,
) -> Vec<Mover<'a>> {
    let mut sums: BTreeMap<P, u64> = BTreeMap::new();
    for mover in movers {
        for host in mover.running.attempt.hosts() {
            let sum = sums.entry(place_of(host)).or_default();
            *sum = sum.saturating_add(weight(mover));
        }
    }
    let mut order = movers.to_vec();
    order.sort_by_cached_key(|mover| {
        let hosts = mover.running.attempt.hosts();
        let places = hosts.into_iter().map(|host| {
            let place = place_of(host);
            (sums.get(&place).copied().unwrap_or(u64::MAX), place)
        });
        (places.min(), mover.cost_gpu_ms, mover.running.unit_id())
    });
    order
}

/// The level that all tasks of the unit, or of one of its groups, must share.
fn cell_asked(job: &Job) -> Option<&Within> {
    let groups = job.spec.groups.iter();
    let of_groups = groups.filter_map(|group| group.layout.within.as_ref());
    let of_gang = job.spec.scheduling.within.iter();
    of_gang.chain(of_groups).find(|within| within.required)
}

fn cell_of<'s>(state: &'s State, within: &Within, host: HostId) -> CellOrHost<'s> {
    let level = state.topology.level(&within.level);
    let cells = state.index.host_cells.get(&host);
    let path = level.and_then(|level| cells?.above.get(usize::from(level.0)));
    match path {
        Some(path) => (path, HostId(0)),
        None => ("", host),
    }
}
