//! Validation of a topology.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::limits;
use crate::spec::Violation;
use crate::topology::{CellGroup, GPU_LEVEL, GpuMask, HOST_LEVEL, HostShape, Topology};

/// All rules that a topology violates, each with its position; empty if it is valid.
#[must_use]
pub fn validate(topology: &Topology) -> Vec<Violation> {
    let mut found = Findings::default();
    found.levels(topology);
    if !found.0.is_empty() {
        // The checks below use the levels repeatedly.
        return found.0;
    }
    found.places(topology);
    for (position, shape) in topology.shapes.iter().enumerate() {
        found.shape(topology, &format!("shapes[{position}]"), shape);
    }
    found.0
}

/// Whether a name of a level or a cell is valid.
pub fn usable_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= limits::NAME_BYTES_MAX
        && !name.contains('/')
        && !name.chars().any(char::is_control)
}

#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, field: &str, rule: String) {
        self.0.push(Violation {
            field: field.to_owned(),
            rule,
        });
    }

    fn levels(&mut self, topology: &Topology) {
        let count = topology.levels().count();
        if count > limits::CELL_LEVELS_MAX {
            self.add(
                "above",
                format!(
                    "{count} levels, `host` and `gpu` included, are over the limit of {} (CELL_LEVELS_MAX)",
                    limits::CELL_LEVELS_MAX
                ),
            );
        }
        let mut names = BTreeSet::from([HOST_LEVEL, GPU_LEVEL]);
        let lists = [("above", &topology.above), ("inside", &topology.inside)];
        for (list, name) in lists
            .into_iter()
            .flat_map(|(list, names)| names.iter().map(move |name| (list, name)))
        {
            self.name(list, name);
            if !names.insert(name) {
                self.add(
                    list,
                    format!("`{name}` names two levels (`host` and `gpu` always exist)"),
                );
            }
        }
    }

    fn name(&mut self, field: &str, name: &str) {
        if !usable_name(name) {
            self.add(
                field,
                format!(
                    "`{name}` is not a valid name: 1 to {} bytes (NAME_BYTES_MAX), without `/` and control characters",
                    limits::NAME_BYTES_MAX
                ),
            );
        }
    }

    fn places(&mut self, topology: &Topology) {
        let mut place_of = BTreeMap::new();
        let mut cells = BTreeMap::new();
        for (position, place) in topology.places.iter().enumerate() {
            let at = format!("places[{position}]");
            if place.cell.len() != topology.above.len() {
                self.add(
                    &format!("{at}.cell"),
                    format!(
                        "has {} names, and there are {} levels above hosts ({})",
                        place.cell.len(),
                        topology.above.len(),
                        topology.above.join(", ")
                    ),
                );
            }
            for name in &place.cell {
                self.name(&format!("{at}.cell"), name);
            }
            if let Some(earlier) = cells.insert(&place.cell, position) {
                self.add(
                    &format!("{at}.cell"),
                    format!(
                        "`{}` is the cell of places[{earlier}] already",
                        place.cell.join("/")
                    ),
                );
            }
            for host in &place.hosts {
                if let Some(earlier) = place_of.insert(host, position) {
                    self.add(
                        &format!("{at}.hosts"),
                        format!("`{host}` lies in places[{earlier}] already"),
                    );
                }
            }
        }
        if place_of.len() > limits::HOSTS_MAX {
            self.add(
                "places",
                format!(
                    "{} hosts are over the limit of {} (HOSTS_MAX)",
                    place_of.len(),
                    limits::HOSTS_MAX
                ),
            );
        }
    }

    fn shape(&mut self, topology: &Topology, at: &str, shape: &HostShape) {
        if shape.gpus as usize > limits::GPUS_PER_HOST_MAX {
            self.add(
                &format!("{at}.gpus"),
                format!(
                    "{} is over the limit of {} (GPUS_PER_HOST_MAX)",
                    shape.gpus,
                    limits::GPUS_PER_HOST_MAX
                ),
            );
            return;
        }
        // Cells of one level are disjoint, so there cannot be more; and they are compared pairwise.
        let groups_max = limits::CELL_LEVELS_MAX * limits::GPUS_PER_HOST_MAX;
        if shape.groups.len() > groups_max {
            let count = shape.groups.len();
            let rule =
                format!("{count} exceed the maximum for these levels and GPUs ({groups_max})");
            self.add(&format!("{at}.groups"), rule);
            return;
        }
        let mut masks: Vec<Option<GpuMask>> = Vec::new();
        for (position, group) in shape.groups.iter().enumerate() {
            let at = format!("{at}.groups[{position}]");
            let known = topology.inside.contains(&group.level);
            if !known {
                self.add(
                    &format!("{at}.level"),
                    format!(
                        "`{}` is not a level inside hosts ({})",
                        group.level,
                        topology.inside.join(", ")
                    ),
                );
            }
            let mask = self.group(&at, shape, group);
            masks.push(mask.filter(|_| known));
        }
        self.nesting(topology, at, shape, &masks);
    }

    fn group(&mut self, at: &str, shape: &HostShape, group: &CellGroup) -> Option<GpuMask> {
        let mut mask = GpuMask::default();
        for position in &group.gpus {
            if *position >= shape.gpus {
                self.add(
                    &format!("{at}.gpus"),
                    format!("{position} is over the last of {} GPUs", shape.gpus),
                );
                return None;
            }
            mask = mask.or(GpuMask::one(*position as usize));
        }
        if mask.is_empty() || mask.count() as usize != group.gpus.len() {
            self.add(
                &format!("{at}.gpus"),
                "must name at least one GPU, and each once".to_owned(),
            );
            return None;
        }
        Some(mask)
    }

    /// Cells of one level are disjoint, those of different levels disjoint or nested, the smaller level inside.
    fn nesting(
        &mut self,
        topology: &Topology,
        at: &str,
        shape: &HostShape,
        masks: &[Option<GpuMask>],
    ) {
        for later in 0..masks.len() {
            let clash = (0..later).find(|earlier| {
                let (Some(gpus), Some(other_gpus)) = (masks[later], masks[*earlier]) else {
                    return false;
                };
                let level = |group: usize| topology.level(&shape.groups[group].level);
                let nested = match level(*earlier).cmp(&level(later)) {
                    Ordering::Less => other_gpus.covers(gpus),
                    Ordering::Greater => gpus.covers(other_gpus),
                    Ordering::Equal => false,
                };
                !nested && !gpus.and(other_gpus).is_empty()
            });
            if let Some(earlier) = clash {
                self.add(
                    &format!("{at}.groups[{later}].gpus"),
                    format!(
                        "overlap those of groups[{earlier}]: cells are disjoint, \
                         or the smaller level lies inside the larger"
                    ),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::CellPlace;

    #[test]
    fn a_topology_of_too_many_levels_is_rejected_with_a_single_error() {
        let many = Topology {
            above: (0..10_000).map(|level| format!("level{level}")).collect(),
            places: vec![CellPlace::default(); 10_000],
            ..Topology::default()
        };
        let found = validate(&many);
        assert_eq!(found.len(), 1, "{:?}", found.get(1));
        assert!(found[0].rule.contains("CELL_LEVELS_MAX"), "{}", found[0]);
    }

    #[test]
    fn a_host_shape_with_too_many_cells_is_refused_quickly() {
        let group = CellGroup {
            level: "pair".to_owned(),
            gpus: vec![0, 1],
        };
        let shape = HostShape {
            gpu_model: "H100".to_owned(),
            gpus: 8,
            hosts: Vec::new(),
            groups: vec![group; 500_000],
        };
        let many = Topology {
            inside: vec!["pair".to_owned()],
            shapes: vec![shape],
            ..Topology::default()
        };
        let found = validate(&many);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field, "shapes[0].groups");
    }
}
