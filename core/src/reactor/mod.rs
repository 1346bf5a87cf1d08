//! The leader's decisions that are not about placement: who is silent, whose lease is over, whose report
//! changes the state, what has expired. Pure: beats and time in, commands out.
//!
//! Its memory is only what a new leader can do without: every timer of a new leader starts no later than
//! it knows.

mod contact;

use std::collections::BTreeMap;

pub use contact::Contact;

use crate::beat::Beat;
use crate::command::Command;
use crate::ids::{HostId, LeadershipEpoch};
use crate::time::{MonotonicMs, TimeMs};
use crate::timings::Timings;

/// What can happen to a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A worker's beat arrived on its registered stream.
    Beat {
        /// Whose.
        host: HostId,
        /// What.
        beat: Beat,
    },
    /// Time passed.
    Tick,
}

/// The leader's memory of its workers; made anew by every leader.
#[derive(Clone, Debug)]
pub struct Reactor {
    /// This leadership.
    pub epoch: LeadershipEpoch,
    /// Periods of the heartbeat protocol.
    pub timings: Timings,
    /// When this leadership began.
    pub began_at: MonotonicMs,
    /// Every worker heard of.
    pub contacts: BTreeMap<HostId, Contact>,
}

/// What the reactor wants done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// Commands to propose, in order, in one batch.
    pub commands: Vec<Command>,
    /// Hosts whose worker works on an outdated desired state and must be sent the current one.
    pub outdated: Vec<HostId>,
    /// When to tick again, on the leader's monotonic clock, if nothing happens before.
    pub wake_at: Option<MonotonicMs>,
    /// When to plan again, in stamped time, because a back-off ends then.
    pub plan_at: Option<TimeMs>,
}
