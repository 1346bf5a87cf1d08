//! Choice of the version in which a state is written.

use muster_engine::state::{Job, State, Unit};
use muster_model::command::{Exit, Standing};
use muster_model::event::EventKind;
use muster_model::ids::Revision;
use muster_model::topology::Topology;

use crate::log::command::{asks_for_layout, says_how_it_lives};
use crate::log::state::{STATE_FORMAT, queue};

/// The version before jobs had lifecycles.
const LEARNT_CELLS: u32 = 3;
/// The version before queues had guarantees.
const FLAT_QUEUES: u32 = 1;
/// The version before workers reported the topology of their hosts.
const CONFIGURED_CELLS: u32 = 2;

/// The command format that all replicas are proven to read: something in the state came from a command of
/// that format.
#[must_use]
pub fn command_format_shown(state: &State) -> u8 {
    // Commands and states use the same version numbers.
    u8::try_from(format_of(state)).unwrap_or(u8::MAX)
}

/// The oldest version whose readers understand all of a state. Content that they would reject by themselves
/// (kinds of events and of reasons) is not considered.
pub(super) fn format_of(state: &State) -> u32 {
    let has_lives = state.job_defaults.is_some()
        || !state.replicas.is_empty()
        || state.refounding.is_some()
        || state.jobs.values().any(|job| tells_of_lives(job))
        || has_detailed_events(state)
        || state.hosts.values().any(|host| host.one_way)
        || !state.index.planned.is_empty()
        || !state.users.is_empty()
        || !state.join_tokens.is_empty()
        || state.health_rules.revision > Revision::default()
        || state.health_to_keep().next().is_some();
    if has_lives {
        return STATE_FORMAT;
    }
    if state.hosts.values().any(|host| !host.learnt.is_empty()) {
        return LEARNT_CELLS;
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

/// Whether a job has content that readers of version 3 would ignore.
fn tells_of_lives(job: &Job) -> bool {
    let detailed = |exit: Option<&Exit>| exit.is_some_and(Exit::has_details);
    let of_unit = |unit: &Unit| {
        let mut runs = unit.attempt.iter().flat_map(|attempt| &attempt.tasks);
        let waits = unit.attempt.as_ref();
        let swaps = waits.is_some_and(|attempt| attempt.membership.is_some());
        swaps
            || unit.swaps > 0
            || unit.past.iter().any(|past| !past.members.is_empty())
            || waits.is_some_and(|attempt| attempt.barrier.is_some() || !attempt.halts.is_empty())
            || runs.any(|run| detailed(run.exit.as_ref()))
            || unit.past.iter().any(|past| detailed(past.exit.as_ref()))
            || unit
                .checkpoints
                .iter()
                .any(|checkpoint| checkpoint.save_ms.is_some() || checkpoint.spoiled.is_some())
    };
    job.pipeline.is_some()
        || job.suspension.is_some()
        || says_how_it_lives(&job.spec)
        || job.units.values().any(|unit| of_unit(unit))
}

/// Whether an event has details of an end, or of a silent host, that readers of version 3 would ignore.
fn has_detailed_events(state: &State) -> bool {
    let mut events = state.events.iter().flat_map(|(_, events)| events.iter());
    events.any(|event| match &event.kind {
        EventKind::TaskExited { exit, .. } => exit.has_details(),
        EventKind::HostHealthChanged { one_way, .. } => *one_way,
        _ => false,
    })
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
