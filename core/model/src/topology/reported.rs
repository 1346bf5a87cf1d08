//! Topology reported by a worker: the cells around its host from its settings, and the cells of its GPUs as
//! detected on the machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::GpuUuid;
use crate::limits;
use crate::spec::Violation;
use crate::topology::{GPU_LEVEL, HOST_LEVEL, usable_name};

/// The cells around and inside one host as reported by its worker. The default is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTopology {
    /// Cells around the host, largest first: a pod, then a rack. A name identifies one cell of its level in
    /// the whole cluster.
    pub above: Vec<NamedCell>,
    /// Names of the levels between the host and its GPUs, largest first: `socket`, `switch`.
    pub inside: Vec<String>,
    /// GPUs with a known location, ascending by UUID.
    pub gpus: Vec<ReportedGpu>,
}

/// A cell around a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedCell {
    /// Level of the cell: `rack`.
    pub level: String,
    /// Name of the cell, unique on its level.
    pub name: String,
}

/// Location of a GPU in its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedGpu {
    /// The GPU.
    pub uuid: GpuUuid,
    /// Its PCI address (`0000:17:00.0`); empty if unknown.
    pub pci_address: String,
    /// Name of its cell on every level of `ReportedTopology::inside`, unique on the host; empty if it is in none.
    pub cells: Vec<String>,
}

impl ReportedTopology {
    /// Whether nothing is reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.above.is_empty() && self.inside.is_empty() && self.gpus.is_empty()
    }

    /// Levels of the cells around the host, largest first.
    #[must_use]
    pub fn above_levels(&self) -> Vec<String> {
        self.above.iter().map(|cell| cell.level.clone()).collect()
    }

    /// Location of a GPU, if reported.
    #[must_use]
    pub fn gpu(&self, uuid: GpuUuid) -> Option<&ReportedGpu> {
        let position = self.gpus.binary_search_by_key(&uuid, |gpu| gpu.uuid).ok()?;
        self.gpus.get(position)
    }

    /// Keeps the earlier location of GPUs that are no longer reported but are still kept: the cells that
    /// contain them must not shrink because of that.
    #[must_use]
    pub fn with_absent(mut self, before: &Self, absent: impl Iterator<Item = GpuUuid>) -> Self {
        if self.inside != before.inside {
            return self;
        }
        for uuid in absent {
            if let (Some(known), Err(position)) = (
                before.gpu(uuid),
                self.gpus.binary_search_by_key(&uuid, |gpu| gpu.uuid),
            ) {
                self.gpus.insert(position, known.clone());
            }
        }
        self
    }

    /// The first violated rule, if any; `field` is the path of the tree.
    #[must_use]
    pub fn broken_rule(&self, field: &str) -> Option<Violation> {
        self.broken_levels()
            .or_else(|| self.broken_gpus())
            .map(|(part, rule)| Violation {
                field: format!("{field}.{part}"),
                rule,
            })
    }

    fn broken_levels(&self) -> Option<(&'static str, String)> {
        let count = self.above.len() + self.inside.len() + 2;
        if count > limits::CELL_LEVELS_MAX {
            let limit = limits::CELL_LEVELS_MAX;
            let rule = format!(
                "{count} levels, `{HOST_LEVEL}` and `{GPU_LEVEL}` included, \
                 are over the limit of {limit} (CELL_LEVELS_MAX)"
            );
            return Some(("above", rule));
        }
        let above = self.above.iter();
        let names = above.clone().map(|cell| ("above.name", &cell.name));
        let levels_above = above.map(|cell| ("above.level", &cell.level));
        let levels_inside = self.inside.iter().map(|level| ("inside", level));
        let mut levels = levels_above.chain(levels_inside);
        let mut all = names.chain(levels.clone());
        if let Some((part, name)) = all.find(|(_, name)| !usable_name(name)) {
            let limit = limits::NAME_BYTES_MAX;
            let rule = format!(
                "`{name}` is not a valid name: 1 to {limit} bytes (NAME_BYTES_MAX), without `/` and control characters"
            );
            return Some((part, rule));
        }
        let mut seen = BTreeSet::from([HOST_LEVEL, GPU_LEVEL]);
        let twice = levels.find(|(_, level)| !seen.insert(level));
        twice.map(|(part, level)| {
            let rule = format!(
                "`{level}` names two levels (`{HOST_LEVEL}` and `{GPU_LEVEL}` always exist)"
            );
            (part, rule)
        })
    }

    fn broken_gpus(&self) -> Option<(&'static str, String)> {
        if self.gpus.len() > limits::GPUS_PER_HOST_MAX {
            let rule = format!(
                "{} are over the limit of {} (GPUS_PER_HOST_MAX)",
                self.gpus.len(),
                limits::GPUS_PER_HOST_MAX
            );
            return Some(("gpus", rule));
        }
        if !self.gpus.is_sorted_by(|one, next| one.uuid < next.uuid) {
            return Some(("gpus", "must ascend by UUID, each once".to_owned()));
        }
        let short = self
            .gpus
            .iter()
            .find(|gpu| gpu.cells.len() != self.inside.len());
        if let Some(gpu) = short {
            let rule = format!(
                "{} has {} names, and there are {} levels inside the host",
                gpu.uuid,
                gpu.cells.len(),
                self.inside.len()
            );
            return Some(("gpus.cells", rule));
        }
        let names = self.gpus.iter().flat_map(|gpu| &gpu.cells);
        let addresses = self.gpus.iter().map(|gpu| &gpu.pci_address);
        let mut all = names.chain(addresses);
        let bad = all.find(|name| !name.is_empty() && !usable_name(name));
        bad.map(|name| ("gpus.cells", format!("`{name}` is not a valid name")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> ReportedTopology {
        ReportedTopology {
            above: vec![NamedCell {
                level: "rack".to_owned(),
                name: "r1".to_owned(),
            }],
            inside: vec!["socket".to_owned()],
            gpus: [1, 2].map(gpu).to_vec(),
        }
    }

    fn gpu(number: u128) -> ReportedGpu {
        ReportedGpu {
            uuid: GpuUuid(number),
            pci_address: String::new(),
            cells: vec![format!("s{number}")],
        }
    }

    #[test]
    fn the_field_that_breaks_a_rule_is_named() {
        let field = |tree: &ReportedTopology| tree.broken_rule("tree").map(|broken| broken.field);
        assert_eq!(field(&tree()), None);
        let mut twice = tree();
        twice.inside.push("rack".to_owned());
        assert_eq!(field(&twice).as_deref(), Some("tree.inside"));
        let mut bad = tree();
        bad.above[0].name = "a/b".to_owned();
        assert_eq!(field(&bad).as_deref(), Some("tree.above.name"));
        let mut host = tree();
        host.above[0].level = "host".to_owned();
        assert_eq!(field(&host).as_deref(), Some("tree.above.level"));
        let mut unsorted = tree();
        unsorted.gpus.reverse();
        assert_eq!(field(&unsorted).as_deref(), Some("tree.gpus"));
        let mut short = tree();
        short.gpus[1].cells.clear();
        assert_eq!(field(&short).as_deref(), Some("tree.gpus.cells"));
        let mut deep = tree();
        deep.inside = (0..limits::CELL_LEVELS_MAX)
            .map(|level| level.to_string())
            .collect();
        assert_eq!(field(&deep).as_deref(), Some("tree.above"));
    }

    #[test]
    fn an_absent_gpu_that_is_kept_keeps_its_location() {
        let mut now = tree();
        now.gpus.remove(0);
        let kept = now
            .clone()
            .with_absent(&tree(), [GpuUuid(1), GpuUuid(9)].into_iter());
        assert_eq!(kept, tree());
        now.inside[0] = "numa".to_owned();
        let other = now.clone().with_absent(&tree(), [GpuUuid(1)].into_iter());
        assert_eq!(other, now);
    }
}
