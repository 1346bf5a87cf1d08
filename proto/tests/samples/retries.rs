//! Samples of the fourth version: retries in place, the guard of progress, and what counts for jobs that say nothing.

use std::sync::Arc;

use muster_core::command::{Command, JobDefaults};
use muster_core::event::EventKind;
use muster_core::ids::{AttemptEpoch, UnitIndex};
use muster_core::state::State;

use super::{JOB, LEADER};

const DEFAULTS: JobDefaults = JobDefaults {
    attempts_without_progress_max: 3,
};

/// Commands, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    vec![(
        "set_job_defaults",
        Command::SetJobDefaults {
            leader: LEADER,
            defaults: DEFAULTS,
        },
    )]
}

/// One event of every kind.
pub(crate) fn kinds() -> Vec<EventKind> {
    vec![
        EventKind::UnitRetried {
            job: JOB,
            unit: UnitIndex(0),
            epoch: AttemptEpoch(21),
            retry: 2,
            retries_max: 3,
        },
        EventKind::JobDefaultsSet {
            attempts_without_progress_max: 3,
        },
    ]
}

/// The first version's state with defaults, and a unit that was begun again in place.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.job_defaults = Some(DEFAULTS);
    let units = parts.jobs.iter_mut().flat_map(|job| job.units.values_mut());
    for unit in units.map(Arc::make_mut) {
        unit.local_retries = 2;
        unit.without_progress = 1;
    }
    State::restore(parts)
}
