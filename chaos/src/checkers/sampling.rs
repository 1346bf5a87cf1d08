//! Sampling interval for full inspections of a state.

use muster_engine::state::State;

/// Largest state, in jobs, hosts and events, that is inspected at every opportunity. An inspection costs
/// time in proportion to the state; states N times larger are inspected one time in N, or a simulated day
/// of a large cluster would take days.
pub const LOOKED_AT_MAX: usize = 5_000;

/// Sampling interval for `state`: one in this many states is inspected; 1 unless it is large.
#[must_use]
pub fn sampling_interval(state: &State) -> u64 {
    let records = state.jobs.len() + state.hosts.len() + state.events.len();
    1 + (records / LOOKED_AT_MAX) as u64
}
