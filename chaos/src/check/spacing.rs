//! How often a whole state is looked at.

use muster_engine::state::State;

/// Jobs, hosts and events of a state that is looked at whenever it may be. To look at one costs as much as there is in it: of a
/// state that is so many times larger, one in so many is looked at, or a day of a large cluster would take days.
pub const LOOKED_AT_MAX: usize = 5_000;

/// One of so many states is looked at: all of them, unless they are large.
#[must_use]
pub fn looked_at_one_in(state: &State) -> u64 {
    let records = state.jobs.len() + state.hosts.len() + state.events.len();
    1 + (records / LOOKED_AT_MAX) as u64
}
