//! One fact, and what made it true.

use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::ids::Revision;
use crate::time::TimeMs;

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The command that made it true.
    pub revision: Revision,
    /// When, by the leader's stamp.
    pub time: TimeMs,
    /// What.
    pub kind: EventKind,
}
