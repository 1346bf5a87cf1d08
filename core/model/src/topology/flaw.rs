//! Why a host does not lie where its worker says.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something in what a worker says of its host's place that the cluster cannot follow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TreeFlaw {
    /// The cluster has no such level; the host's other levels count.
    UnknownLevel {
        /// Its name.
        level: String,
        /// The levels on that side of the host that there are, largest first.
        levels: Vec<String>,
    },
    /// The host does not say in which cell of a level it lies: it lies in none above it.
    MissingLevel {
        /// Which level.
        level: String,
    },
    /// Its levels are in another order than the cluster's: they count as nothing.
    LevelOrder {
        /// Its levels, largest first.
        here: Vec<String>,
        /// The cluster's.
        levels: Vec<String>,
    },
    /// Others say that a cell around the host lies elsewhere: the host lies in none above it.
    Elsewhere {
        /// Level of the cell.
        level: String,
        /// Path by this host's word.
        here: String,
        /// Path by the configuration, or by the word of most hosts.
        by_most: String,
    },
    /// A cell inside the host has GPUs in several larger ones: no cell inside counts.
    Straddles {
        /// Level of the cell.
        level: String,
        /// Its name.
        cell: String,
        /// The level on which its GPUs part.
        outer: String,
    },
    /// The configuration places the host elsewhere, and has the last word.
    Overruled {
        /// Path by the host's word.
        here: String,
        /// Path by the configuration.
        configured: String,
    },
}

impl fmt::Display for TreeFlaw {
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
                    "its worker names no `{level}`, so it lies in no cell above hosts"
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
                "its worker says {level} `{here}`, and by the configuration or most hosts it is `{by_most}`"
            ),
            Self::Straddles { level, cell, outer } => write!(
                formatter,
                "{level} `{cell}` has GPUs in more than one {outer}: the cells inside the host count as none"
            ),
            Self::Overruled { here, configured } => write!(
                formatter,
                "its worker says `{here}`, the topology `{configured}`"
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
