//! In which version a state is written.

use muster_core::command::Standing;
use muster_core::state::{Job, State, Unit};
use muster_core::topology::Topology;

use super::{STATE_FORMAT, queue};
use crate::log::command::asks_for_layout;

/// The version before queues had guarantees.
const FLAT_QUEUES: u32 = 1;
/// The version before workers said where their hosts lie.
const CONFIGURED_CELLS: u32 = 2;

/// The oldest version whose readers know all of a state. What they would refuse by themselves (kinds of events and
/// of reasons) is not looked for.
pub(super) fn format_of(state: &State) -> u32 {
    if state.hosts.values().any(|host| !host.learnt.is_empty()) {
        return STATE_FORMAT;
    }
    let has_queues = state.history_half_life_ms.is_some()
        || state.defragment.is_some()
        || *state.configured_topology != Topology::default()
        || state.queues.values().any(|queue| !queue::is_flat(queue))
        || state.jobs.values().any(|job| needs_queues(job));
    if has_queues {
        CONFIGURED_CELLS
    } else {
        FLAT_QUEUES
    }
}

fn needs_queues(job: &Job) -> bool {
    let stands_apart = |unit: &Unit| {
        unit.attempt
            .as_ref()
            .is_some_and(|attempt| attempt.standing != Standing::Share)
    };
    asks_for_layout(&job.spec)
        || job
            .units
            .values()
            .any(|unit| unit.claim.is_some() || unit.moved_at.is_some() || stands_apart(unit))
}
