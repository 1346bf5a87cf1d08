//! An event with its revision and time.

use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::ids::Revision;
use crate::time::TimeMs;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Revision of the command that caused it.
    pub revision: Revision,
    /// Time stamped by the leader.
    pub time: TimeMs,
    /// Content of the event.
    pub kind: EventKind,
}
