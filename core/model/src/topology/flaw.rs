//! Ignored parts of a worker's topology report.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of a worker's topology report that the cluster cannot accept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum IgnoredReport {
    /// The cluster has no such level; the host's other levels are used.
    UnknownLevel {
        /// Name of the level.
        level: String,
        /// The existing levels on that side of the host, largest first.
        levels: Vec<String>,
    },
    /// The host names no cell of a level: it is in no cell above hosts.
    MissingLevel {
        /// Name of the level.
        level: String,
    },
    /// The order of its levels differs from the cluster's: they are ignored.
    LevelOrder {
        /// Its levels, largest first.
        here: Vec<String>,
        /// The cluster's levels, largest first.
        levels: Vec<String>,
    },
    /// Other hosts report another location for a cell around the host: the host is in no cell above hosts.
    Elsewhere {
        /// Level of the cell.
        level: String,
        /// Path reported by this host.
        here: String,
        /// Path by the configuration, or reported by most hosts.
        by_most: String,
    },
    /// A cell inside the host has GPUs in several larger ones: no cell inside is used.
    Straddles {
        /// Level of the cell.
        level: String,
        /// Name of the cell.
        cell: String,
        /// The level of the larger cells.
        outer: String,
    },
    /// The configuration places the host elsewhere and takes precedence.
    Overruled {
        /// Path reported by the host.
        here: String,
        /// Path by the configuration.
        configured: String,
    },
}

impl fmt::Display for IgnoredReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLevel { level, levels } => write!(
                formatter,
                "the cluster has no level `{level}` there (it has {})",
                named(levels)
            ),
            Self::MissingLevel { level } => {
                write!(
                    formatter,
                    "its worker names no `{level}`, so it is in no cell above hosts"
                )
            }
            Self::LevelOrder { here, levels } => write!(
                formatter,
                "its levels ({}) are in another order than the cluster's ({})",
                named(here),
                named(levels)
            ),
            Self::Elsewhere {
                level,
                here,
                by_most,
            } => write!(
                formatter,
                "its worker reports {level} `{here}`, but the configuration or most hosts say `{by_most}`"
            ),
            Self::Straddles { level, cell, outer } => write!(
                formatter,
                "{level} `{cell}` has GPUs in more than one {outer}: the cells inside the host are ignored"
            ),
            Self::Overruled { here, configured } => write!(
                formatter,
                "its worker reports `{here}`, but the topology says `{configured}`"
            ),
        }
    }
}

fn named(levels: &[String]) -> String {
    if levels.is_empty() {
        "none".to_owned()
    } else {
        levels.join(", ")
    }
}
