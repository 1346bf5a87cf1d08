//! Settings for the location of this host and its GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use muster_model::limits::GPUS_PER_HOST_MAX;
use muster_model::topology::{NamedCell, ReportedTopology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Location of this host and its GPUs, as far as it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TopologyConfig {
    /// Cells around this host, largest first: a pod, then a rack. A name denotes one cell of its level in
    /// the whole cluster, and all hosts must name the same levels.
    #[schemars(with = "Vec<BTreeMap<String, String>>")]
    pub above: Vec<NamedCell>,
    /// Cells formed by the GPUs, larger ones first; they replace those that are detected.
    pub inside: Vec<DeclaredCells>,
    /// Whether to detect which GPUs share a socket and a PCIe switch.
    pub detect: bool,
    /// Path of sysfs.
    pub sysfs_root: PathBuf,
}

impl Default for TopologyConfig {
    fn default() -> Self {
        Self {
            above: Vec::new(),
            inside: Vec::new(),
            detect: true,
            sysfs_root: PathBuf::from("/sys"),
        }
    }
}

/// The cells of one level inside the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredCells {
    /// The level: `socket`.
    pub level: String,
    /// The GPUs of each cell, by their positions in the host's list, counted from 0.
    pub gpus: Vec<Vec<u32>>,
}

impl DeclaredCells {
    /// Consecutive cells of `gpus_each` GPUs; the last one has the rest.
    #[must_use]
    pub fn of_size(level: &str, gpus: u32, gpus_each: u32) -> Self {
        let positions: Vec<u32> = (0..gpus).collect();
        let each = usize::try_from(gpus_each.max(1)).unwrap_or(usize::MAX);
        Self {
            level: level.to_owned(),
            gpus: positions.chunks(each).map(<[u32]>::to_vec).collect(),
        }
    }
}

impl TopologyConfig {
    /// The first broken rule of the settings.
    #[must_use]
    pub fn broken_rule(&self) -> Option<String> {
        let levels = ReportedTopology {
            above: self.above.clone(),
            inside: self
                .inside
                .iter()
                .map(|level| level.level.clone())
                .collect(),
            gpus: Vec::new(),
        };
        if let Some(broken) = levels.broken_rule("topology") {
            return Some(format!("{}: {}", broken.field, broken.rule));
        }
        self.inside.iter().find_map(|level| {
            let mut seen = BTreeSet::new();
            let twice = level.gpus.iter().flatten().find(|gpu| !seen.insert(**gpu));
            let beyond = level.gpus.iter().flatten()
                .find(|gpu| usize::try_from(**gpu).is_ok_and(|gpu| gpu >= GPUS_PER_HOST_MAX));
            let named = &level.level;
            twice
                .map(|gpu| format!("GPU {gpu} is in two cells of level `{named}`"))
                .or_else(|| {
                    beyond.map(|gpu| {
                        format!("GPU {gpu} of level `{named}` is beyond {GPUS_PER_HOST_MAX} (GPUS_PER_HOST_MAX)")
                    })
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_cells_are_named() {
        let declared = |gpus: &[&[u32]]| TopologyConfig {
            inside: vec![DeclaredCells {
                level: "socket".to_owned(),
                gpus: gpus.iter().map(|cell| cell.to_vec()).collect(),
            }],
            ..TopologyConfig::default()
        };
        assert_eq!(declared(&[&[0, 1], &[2]]).broken_rule(), None);
        let twice = declared(&[&[0, 1], &[1]]).broken_rule();
        assert!(twice.is_some_and(|rule| rule.contains("two cells")));
        let beyond = declared(&[&[128]]).broken_rule();
        assert!(beyond.is_some_and(|rule| rule.contains("GPUS_PER_HOST_MAX")));
        let mut host = declared(&[]);
        host.above.push(NamedCell {
            level: "host".to_owned(),
            name: "n".to_owned(),
        });
        assert!(
            host.broken_rule()
                .is_some_and(|rule| rule.contains("two levels"))
        );
    }

    #[test]
    fn cells_of_a_size_cover_all_gpus() {
        assert_eq!(
            DeclaredCells::of_size("switch", 5, 2).gpus,
            [vec![0, 1], vec![2, 3], vec![4]]
        );
    }
}
