//! Locations of hosts and their GPUs, recomputed from the configuration and from workers' reports.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::host::Host;
use muster_model::ids::HostId;
use muster_model::limits;
use muster_model::topology::{CellPlace, HostShape, Topology};

use crate::audit::{Report, Rule};
use crate::state::State;

/// Location of a host, and the cells that its GPUs form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HostLocation {
    /// Names of the cells around it, largest first.
    pub(super) path: Vec<String>,
    /// Cells inside: their level's depth below the host's, from 0, and the positions of their GPUs.
    pub(super) inside: BTreeSet<(usize, BTreeSet<usize>)>,
}

/// Checks that the index locates every host correctly and that the levels are those in use.
pub(super) fn check(state: &State, report: &mut Report) {
    check_levels(state, report);
    let places = all(state);
    let host_level = state.topology.above.len();
    for host in state.hosts.values() {
        let cells = state.index.host_cells.get(&host.id);
        let kept = cells.map(|cells| HostLocation {
            path: cells.above.last().map_or_else(Vec::new, |path| {
                path.split('/').map(ToOwned::to_owned).collect()
            }),
            inside: cells
                .inside
                .iter()
                .map(|cell| {
                    let depth = usize::from(cell.level.0) - host_level - 1;
                    (depth, cell.gpus.positions().collect())
                })
                .collect(),
        });
        let expected = places.get(&host.id);
        report.require(
            kept.as_ref() == expected,
            Rule::Locations,
            &format!("host {}", host.name),
            || format!("it is indexed as {kept:?} and lies in {expected:?}"),
        );
    }
}

fn check_levels(state: &State, report: &mut Report) {
    let (configured, now) = (&state.configured_topology, &state.topology);
    let mut lists: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for host in state.hosts.values() {
        let levels = host
            .reported_topology
            .above
            .iter()
            .map(|cell| cell.level.as_str());
        *lists.entry(levels.collect()).or_default() += 1;
    }
    let fits = |list: &[&str]| {
        list.len() + configured.inside.len() + 2 <= limits::CELL_LEVELS_MAX
            && !configured
                .inside
                .iter()
                .any(|level| list.contains(&level.as_str()))
    };
    let mut by_hosts: Vec<(usize, Vec<&str>)> = lists
        .into_iter()
        .filter(|(list, _)| !list.is_empty() && fits(list))
        .map(|(list, hosts)| (hosts, list))
        .collect();
    // Sorts the path of most hosts last, and among equals the first by name last.
    by_hosts.sort_by(|one, other| one.0.cmp(&other.0).then_with(|| other.1.cmp(&one.1)));
    let by_most = by_hosts.pop().map_or_else(Vec::new, |(_, list)| list);
    let above: Vec<&str> = if configured.above.is_empty() {
        by_most
    } else {
        configured.above.iter().map(String::as_str).collect()
    };
    report.require(now.above == above, Rule::Locations, &"levels", || {
        format!(
            "above hosts they are {:?} and should be {above:?}",
            now.above
        )
    });
    let mut rest = now.inside.iter();
    let keeps_order = configured
        .inside
        .iter()
        .all(|level| rest.any(|other| other == level));
    let rest_is_configured = configured.places == now.places && configured.shapes == now.shapes;
    report.require(
        keeps_order && rest_is_configured,
        Rule::Locations,
        &"levels",
        || format!("{now:?} does not hold what is configured"),
    );
}

/// Hosts by the path that they report for a cell.
type ReportsByPath<'a> = BTreeMap<Vec<&'a str>, Vec<HostId>>;

/// Returns the location of every host.
pub(super) fn all(state: &State) -> BTreeMap<HostId, HostLocation> {
    let reported = reported_names(state);
    let mut reports_by_cell: BTreeMap<(usize, &str), ReportsByPath<'_>> = BTreeMap::new();
    for (host, path) in &reported {
        for depth in 0..path.len() {
            let reports = reports_by_cell.entry((depth, path[depth])).or_default();
            reports
                .entry(path[..=depth].to_vec())
                .or_default()
                .push(*host);
        }
    }
    let is_accepted = |path: &[&str]| {
        let (depth, name) = (path.len() - 1, path[path.len() - 1]);
        let configured = state
            .configured_topology
            .places
            .iter()
            .filter_map(|place| place.cell.get(..=depth))
            .filter(|cell| cell[depth] == name);
        let configured: Vec<&[String]> = configured.collect();
        if !configured.is_empty() {
            return configured.iter().any(|cell| cell.iter().eq(path));
        }
        let reports = &reports_by_cell[&(depth, name)];
        let weight =
            |hosts: &[HostId]| (hosts.len(), std::cmp::Reverse(hosts.iter().min().copied()));
        reports
            .values()
            .all(|hosts| weight(hosts) <= weight(&reports[path]))
    };
    let place = |host: &Host| {
        let path = match (configured(state, host), reported.get(&host.id)) {
            (Some(place), _) => place.cell.clone(),
            (None, Some(path)) if (1..=path.len()).all(|length| is_accepted(&path[..length])) => {
                path.iter().map(|name| (*name).to_owned()).collect()
            }
            (None, _) => Vec::new(),
        };
        let inside = inside(&state.topology, host);
        HostLocation { path, inside }
    };
    let hosts = state.hosts.values();
    hosts.map(|host| (host.id, place(host))).collect()
}

/// Returns the configured location of a host.
fn configured<'a>(state: &'a State, host: &Host) -> Option<&'a CellPlace> {
    let mut places = state.configured_topology.places.iter();
    places
        .find(|place| !place.cell.is_empty() && place.hosts.iter().any(|name| *name == *host.name))
}

/// Returns the names of the cells around hosts without a configured place whose workers report one on every
/// level.
fn reported_names(state: &State) -> BTreeMap<HostId, Vec<&str>> {
    let levels = &state.topology.above;
    let mut reported = BTreeMap::new();
    for host in state.hosts.values() {
        if levels.is_empty() || configured(state, host).is_some() {
            continue;
        }
        let known = host
            .reported_topology
            .above
            .iter()
            .filter(|cell| levels.contains(&cell.level));
        let (known, names): (Vec<&String>, Vec<&str>) =
            known.map(|cell| (&cell.level, cell.name.as_str())).unzip();
        if known == levels.iter().collect::<Vec<_>>() {
            reported.insert(host.id, names);
        }
    }
    reported
}

fn inside(topology: &Topology, host: &Host) -> BTreeSet<(usize, BTreeSet<usize>)> {
    let depth = |level: &String| topology.inside.iter().position(|known| known == level);
    let mut shapes = topology.shapes.iter();
    if let Some(shape) = shapes.find(|shape| is_of_shape(host, shape)) {
        let groups = shape.groups.iter().filter_map(|group| {
            let gpus = group.gpus.iter().map(|gpu| *gpu as usize);
            Some((depth(&group.level)?, gpus.collect()))
        });
        return groups.collect();
    }
    let levels: Vec<usize> = host
        .reported_topology
        .inside
        .iter()
        .filter_map(depth)
        .collect();
    if !levels.is_sorted() {
        return BTreeSet::new();
    }
    // Names of the cells around every GPU, by depth.
    let names: Vec<BTreeMap<usize, &str>> = host
        .gpus
        .iter()
        .map(|gpu| {
            let mut known = host.reported_topology.gpus.iter();
            let cells = known
                .find(|known| known.uuid == gpu.uuid)
                .map(|known| &known.cells);
            let named = host
                .reported_topology
                .inside
                .iter()
                .zip(cells.into_iter().flatten());
            let named = named.filter(|(_, name)| !name.is_empty());
            named
                .filter_map(|(level, name)| Some((depth(level)?, name.as_str())))
                .collect()
        })
        .collect();
    let mut cells: BTreeMap<(usize, &str), BTreeSet<usize>> = BTreeMap::new();
    for (position, around) in names.iter().enumerate() {
        for (depth, name) in around {
            cells.entry((*depth, name)).or_default().insert(position);
        }
    }
    let nests = cells.iter().all(|((depth, _), gpus)| {
        let outer = |gpu: &usize| -> Vec<(usize, &str)> {
            names[*gpu]
                .range(..depth)
                .map(|(depth, name)| (*depth, *name))
                .collect()
        };
        gpus.iter().map(outer).collect::<BTreeSet<_>>().len() == 1
    });
    if !nests {
        return BTreeSet::new();
    }
    cells
        .into_iter()
        .map(|((depth, _), gpus)| (depth, gpus))
        .collect()
}

fn is_of_shape(host: &Host, shape: &HostShape) -> bool {
    let mut models = host.gpus.iter().map(|gpu| gpu.model.as_ref());
    let is_named = shape.hosts.is_empty() || shape.hosts.iter().any(|name| *name == *host.name);
    let is_of_model = shape.gpu_model.is_empty() || models.all(|model| model == shape.gpu_model);
    is_named && is_of_model && host.gpus.len() == shape.gpus as usize
}
