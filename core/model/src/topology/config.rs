//! Configuration of the topology.

use serde::{Deserialize, Serialize};

/// Name of the level of hosts; it always exists.
pub const HOST_LEVEL: &str = "host";
/// Name of the level of single GPUs; it always exists and is the smallest.
pub const GPU_LEVEL: &str = "gpu";

/// Levels of cells and the locations of hosts.
///
/// The default has hosts and GPUs only. A host that no place lists is in no cell above hosts; a host that
/// matches no shape has no cells inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topology {
    /// Names of the levels above hosts, largest first: `pod`, `rack`.
    pub above: Vec<String>,
    /// Names of the levels between hosts and GPUs, largest first: `socket`, `pcie`.
    pub inside: Vec<String>,
    /// Cells above hosts.
    pub places: Vec<CellPlace>,
    /// Cells inside hosts, by kind of host; the first match applies.
    pub shapes: Vec<HostShape>,
}

/// The hosts of one innermost cell above hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellPlace {
    /// Its name on every level above hosts, largest first: `["pod-1", "rack-07"]`. A name need only be unique
    /// within its parent cell.
    pub cell: Vec<String>,
    /// Names of its hosts.
    pub hosts: Vec<String>,
}

/// The cells inside hosts of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostShape {
    /// GPU model of such hosts; any if empty.
    #[serde(default)]
    pub gpu_model: String,
    /// Number of GPUs of such hosts.
    pub gpus: u32,
    /// Names of such hosts; all with that model and number of GPUs if empty.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Its cells, in any order; uneven ones are allowed, each must be within one of the next larger level
    /// that has any.
    pub groups: Vec<CellGroup>,
}

/// A cell inside a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellGroup {
    /// Level of the cell, one of `Topology::inside`.
    pub level: String,
    /// Its GPUs: positions in the host's list, counted from 0.
    pub gpus: Vec<u32>,
}

/// Depth of a level in the tree of cells: 0 is the largest; ascending is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Level(pub u8);

impl Topology {
    /// Names of all levels, largest first: those above, `host`, those inside, `gpu`.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        let above = self.above.iter().map(String::as_str);
        let inside = self.inside.iter().map(String::as_str);
        above
            .chain(std::iter::once(HOST_LEVEL))
            .chain(inside)
            .chain(std::iter::once(GPU_LEVEL))
    }

    /// The level of this name.
    #[must_use]
    pub fn level(&self, name: &str) -> Option<Level> {
        let depth = self.levels().position(|level| level == name)?;
        u8::try_from(depth).ok().map(Level)
    }

    /// The name of a level.
    #[must_use]
    pub fn name(&self, level: Level) -> Option<&str> {
        self.levels().nth(usize::from(level.0))
    }

    /// The level of hosts.
    #[must_use]
    pub fn host_level(&self) -> Level {
        Level(u8::try_from(self.above.len()).unwrap_or(u8::MAX))
    }

    /// The level of single GPUs.
    #[must_use]
    pub fn gpu_level(&self) -> Level {
        let depth = self.above.len() + 1 + self.inside.len();
        Level(u8::try_from(depth).unwrap_or(u8::MAX))
    }
}
