//! The cluster's tree of cells, from the configuration where it lists a host, otherwise from the reports of
//! workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::host::Host;
use crate::ids::HostId;
use crate::topology::cells::{configured_inside, models, paths};
use crate::topology::levels::{LevelVotes, Levels, in_order};
use crate::topology::{
    CellPaths, CellSource, GpuMask, HostCells, IgnoredReport, InsideCell, ReportedTopology,
    Topology,
};

/// Paths of the cells around a host, largest first.
type Around = Arc<[Arc<str>]>;
/// A cell's level, counted from the largest, and name.
type CellName = (usize, Arc<str>);

/// Location of every host, and the existing levels.
///
/// It is a function of the configuration, the hosts and the levels with guaranteed cells; the order in which
/// they arrived does not matter. Reports of workers are weighed:
///
/// - A cell above hosts for which several hosts report different locations is where the configuration says,
///   or else where most of them say (among equals, the host registered first). The others are in no cell
///   above hosts.
/// - Cells inside a host are used if they nest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTree {
    topology: Arc<Topology>,
    places: Arc<CellPaths>,
    above: LevelVotes,
    inside: LevelVotes,
    /// Hosts that report a path for a cell.
    paths: OrdMap<CellName, OrdMap<Arc<str>, OrdSet<HostId>>>,
}

/// Reach of a change of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeScope {
    /// The host only.
    Host,
    /// Other hosts too: the tree must be rebuilt.
    Cluster,
}

impl ClusterTree {
    /// Builds the tree of a cluster. `guaranteed` are the levels of which virtual clusters have cells.
    #[must_use]
    pub fn of(
        configured: &Topology,
        hosts: &OrdMap<HostId, Arc<Host>>,
        guaranteed: &BTreeSet<&str>,
    ) -> Self {
        let mut tree = Self {
            places: Arc::new(CellPaths::of(configured)),
            ..Self::default()
        };
        for host in hosts
            .values()
            .filter(|host| !host.reported_topology.is_empty())
        {
            tree.above.add(host.reported_topology.above_levels());
            tree.inside.add(host.reported_topology.inside.clone());
        }
        let mut levels = Levels::of(configured, &tree.above, &tree.inside);
        levels.keep(guaranteed);
        tree.topology = Arc::new(Topology {
            above: levels.above,
            inside: levels.inside,
            ..configured.clone()
        });
        for host in hosts
            .values()
            .filter(|host| !host.reported_topology.above.is_empty())
        {
            tree.vote(host, &host.reported_topology);
        }
        tree
    }

    /// The configuration extended by all existing levels.
    #[must_use]
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Whether a level exists by a configuration and the reports of hosts, without regard to guarantees.
    #[must_use]
    pub fn has_level_without_guarantees(&self, configured: &Topology, level: &str) -> bool {
        Levels::of(configured, &self.above, &self.inside).has(level)
    }

    /// Replaces `before`, the previous report of a host's worker, by the host's present one. If the change
    /// reaches other hosts, the tree is invalid and must be rebuilt.
    #[must_use]
    pub fn replace(
        &mut self,
        host: &Host,
        before: &ReportedTopology,
        configured: &Topology,
        guaranteed: &BTreeSet<&str>,
    ) -> ChangeScope {
        let after = &*host.reported_topology;
        if before.above == after.above && before.inside == after.inside {
            return ChangeScope::Host;
        }
        self.above.remove(&before.above_levels());
        self.inside.remove(&before.inside);
        self.above.add(after.above_levels());
        self.inside.add(after.inside.clone());
        let mut levels = Levels::of(configured, &self.above, &self.inside);
        levels.keep(guaranteed);
        if levels.above != self.topology.above || levels.inside != self.topology.inside {
            return ChangeScope::Cluster;
        }
        let touched: Vec<CellName> = [before, after]
            .into_iter()
            .filter_map(|tree| self.reported_paths(&host.name, tree).ok())
            .flat_map(|place| named(&place))
            .collect();
        let known: Vec<Option<Arc<str>>> =
            touched.iter().map(|cell| self.path_by_most(cell)).collect();
        self.withdraw(host, before);
        self.vote(host, after);
        let reaches_others = touched
            .iter()
            .zip(known)
            .any(|(cell, known)| known != self.path_by_most(cell) && !self.is_alone(cell, host.id));
        match reaches_others {
            true => ChangeScope::Cluster,
            false => ChangeScope::Host,
        }
    }

    /// Whether this host is the only one that names a cell.
    fn is_alone(&self, cell: &CellName, id: HostId) -> bool {
        self.paths.get(cell).is_none_or(|paths| {
            paths
                .values()
                .all(|hosts| hosts.len() == 1 && hosts.contains(&id))
        })
    }

    fn vote(&mut self, host: &Host, tree: &ReportedTopology) {
        let Ok(place) = self.reported_paths(&host.name, tree) else {
            return;
        };
        for (cell, path) in named(&place).into_iter().zip(place.iter()) {
            let paths = self.paths.entry(cell).or_default();
            paths.entry(Arc::clone(path)).or_default().insert(host.id);
        }
    }

    fn withdraw(&mut self, host: &Host, tree: &ReportedTopology) {
        let Ok(place) = self.reported_paths(&host.name, tree) else {
            return;
        };
        for (cell, path) in named(&place).into_iter().zip(place.iter()) {
            let Some(paths) = self.paths.get_mut(&cell) else {
                continue;
            };
            if let Some(hosts) = paths.get_mut(path) {
                hosts.remove(&host.id);
                if hosts.is_empty() {
                    paths.remove(path);
                }
            }
            if paths.is_empty() {
                self.paths.remove(&cell);
            }
        }
    }

    /// Path of a cell as reported by most hosts; among equals, by the host registered first.
    fn path_by_most(&self, cell: &CellName) -> Option<Arc<str>> {
        let paths = self.paths.get(cell)?.iter();
        let most = paths
            .max_by_key(|(_, hosts)| (hosts.len(), std::cmp::Reverse(hosts.get_min().copied())));
        most.map(|(path, _)| Arc::clone(path))
    }

    /// Paths around a host as reported by its worker, without regard to others; `Err` if a level is missing,
    /// or if the configuration places the host.
    fn reported_paths(
        &self,
        name: &str,
        tree: &ReportedTopology,
    ) -> Result<Around, Option<IgnoredReport>> {
        if tree.above.is_empty()
            || self.topology.above.is_empty()
            || !self.places.around(name).is_empty()
        {
            return Err(None);
        }
        paths_from_report(&self.topology.above, tree).map_err(Some)
    }

    /// The cells around and inside a host.
    #[must_use]
    pub fn cells(&self, host: &Host) -> HostCells {
        let mut flaws = Vec::new();
        let (above, above_by) = self.place(host, &mut flaws);
        let (inside, inside_by) = match configured_inside(&self.topology, host) {
            Some(inside) => (inside, CellSource::Configuration),
            None => self.reported_inside(host, &mut flaws),
        };
        HostCells {
            above,
            inside: inside.into(),
            models: models(host),
            above_by,
            inside_by,
            flaws: flaws.into(),
        }
    }

    fn place(&self, host: &Host, flaws: &mut Vec<IgnoredReport>) -> (Around, CellSource) {
        let nowhere = (Around::default(), CellSource::None);
        let tree = &host.reported_topology;
        flaws.extend(unknown(&tree.above_levels(), &self.topology.above));
        let configured = self.places.around(&host.name);
        if let Some(innermost) = configured.last() {
            let here = paths_from_report(&self.topology.above, tree).unwrap_or_default();
            if let Some(here) = here.last().filter(|here| *here != innermost) {
                flaws.push(IgnoredReport::Overruled {
                    here: here.to_string(),
                    configured: innermost.to_string(),
                });
            }
            return (configured, CellSource::Configuration);
        }
        let place = match self.reported_paths(&host.name, tree) {
            Ok(place) => place,
            Err(flaw) => {
                flaws.extend(flaw);
                return nowhere;
            }
        };
        let contradicted = named(&place)
            .into_iter()
            .zip(place.iter())
            .find_map(|(cell, here)| {
                let by_most = self.contradiction(&cell, here)?;
                Some(IgnoredReport::Elsewhere {
                    level: self.topology.above[cell.0].clone(),
                    here: here.to_string(),
                    by_most,
                })
            });
        match contradicted {
            Some(flaw) => {
                flaws.push(flaw);
                nowhere
            }
            None => (self.shared(&place), CellSource::Worker),
        }
    }

    /// Location of a cell, if it differs from what a host reports.
    fn contradiction(&self, cell: &CellName, here: &Arc<str>) -> Option<String> {
        let configured = self.places.named(cell.0, &cell.1);
        if !configured.is_empty() {
            return (!configured.contains(here)).then(|| configured[0].to_string());
        }
        let by_most = self.path_by_most(cell)?;
        (by_most != *here).then(|| by_most.to_string())
    }

    /// The same paths with texts shared among hosts.
    fn shared(&self, place: &Around) -> Around {
        let cells = named(place).into_iter().zip(place.iter());
        cells
            .map(|(cell, path)| {
                let paths = self.paths.get(&cell);
                let known = paths.and_then(|paths| paths.get_key_value(path));
                Arc::clone(known.map_or(path, |(known, _)| known))
            })
            .collect()
    }

    fn reported_inside(
        &self,
        host: &Host,
        flaws: &mut Vec<IgnoredReport>,
    ) -> (Vec<InsideCell>, CellSource) {
        let tree = &host.reported_topology;
        let levels = &self.topology.inside;
        flaws.extend(unknown(&tree.inside, levels));
        let Some(known) = in_order(levels, &tree.inside) else {
            flaws.push(IgnoredReport::LevelOrder {
                here: tree.inside.clone(),
                levels: levels.clone(),
            });
            return (Vec::new(), CellSource::None);
        };
        let mut cells: Vec<InsideCell> = Vec::new();
        for (position, (there, here)) in known.iter().enumerate() {
            let outer: Vec<usize> = known[..position].iter().map(|(_, here)| *here).collect();
            for (name, gpus) in groups(host, *here) {
                if let Some(outer) = first_split_level(host, gpus, &outer) {
                    flaws.push(IgnoredReport::Straddles {
                        level: tree.inside[*here].clone(),
                        cell: name.to_owned(),
                        outer: tree.inside[outer].clone(),
                    });
                    return (Vec::new(), CellSource::None);
                }
                let depth = self.topology.above.len() + 1 + there;
                let level = crate::topology::Level(u8::try_from(depth).unwrap_or(u8::MAX));
                cells.push(InsideCell { level, gpus });
            }
        }
        cells.sort_unstable_by_key(|cell| (cell.level, cell.gpus.0.trailing_zeros()));
        let source = if cells.is_empty() {
            CellSource::None
        } else {
            CellSource::Worker
        };
        (cells, source)
    }
}

/// The cells along a path, with their names.
fn named(place: &Around) -> Vec<CellName> {
    let names = place.iter().map(|path| {
        let name = path.rsplit_once('/').map_or(&**path, |(_, name)| name);
        Arc::from(name)
    });
    names.enumerate().collect()
}

/// Paths around a host as reported by its worker.
fn paths_from_report(levels: &[String], tree: &ReportedTopology) -> Result<Around, IgnoredReport> {
    let here = tree.above_levels();
    let Some(known) = in_order(levels, &here) else {
        let levels = levels.to_vec();
        return Err(IgnoredReport::LevelOrder { here, levels });
    };
    let missing = |depth: &usize| !known.iter().any(|(there, _)| there == depth);
    if let Some(depth) = (0..levels.len()).find(missing) {
        let level = levels[depth].clone();
        return Err(IgnoredReport::MissingLevel { level });
    }
    let names: Vec<String> = known
        .iter()
        .map(|(_, here)| tree.above[*here].name.clone())
        .collect();
    Ok(paths(&names).map(Arc::from).collect())
}

/// Levels of a host that the cluster does not have.
fn unknown(here: &[String], levels: &[String]) -> impl Iterator<Item = IgnoredReport> {
    let unknown = here.iter().filter(|level| !levels.contains(level));
    unknown.map(|level| IgnoredReport::UnknownLevel {
        level: level.clone(),
        levels: levels.to_vec(),
    })
}

/// The cells of one of a host's levels by name, in the order of their first GPUs.
fn groups(host: &Host, level: usize) -> Vec<(&str, GpuMask)> {
    let mut groups: Vec<(&str, GpuMask)> = Vec::new();
    for (position, gpu) in host.gpus.iter().enumerate() {
        let name = cell_name(host, gpu.uuid, level);
        if name.is_empty() {
            continue;
        }
        let known = groups.iter_mut().find(|(known, _)| *known == name);
        match known {
            Some((_, gpus)) => *gpus = gpus.or(GpuMask::one(position)),
            None => groups.push((name, GpuMask::one(position))),
        }
    }
    groups
}

fn cell_name(host: &Host, uuid: crate::ids::GpuUuid, level: usize) -> &str {
    let gpu = host.reported_topology.gpu(uuid);
    gpu.and_then(|gpu| gpu.cells.get(level))
        .map_or("", String::as_str)
}

/// The first of these levels on which the given GPUs are neither all in one cell nor all in none.
fn first_split_level(host: &Host, gpus: GpuMask, levels: &[usize]) -> Option<usize> {
    let parts = |level: &&usize| {
        let mut names = gpus
            .positions()
            .filter_map(|position| host.gpus.get(position))
            .map(|gpu| cell_name(host, gpu.uuid, **level));
        let first = names.next();
        names.any(|name| Some(name) != first)
    };
    levels.iter().find(parts).copied()
}
