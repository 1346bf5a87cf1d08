//! Default settings of jobs.

use muster_model::command::JobDefaults;

use crate::v1;

pub(super) fn to_wire(defaults: JobDefaults) -> v1::JobDefaults {
    v1::JobDefaults {
        attempts_without_progress_max: defaults.attempts_without_progress_max,
        bad_checkpoints_max: defaults.bad_checkpoints_max,
        restore_window_ms: defaults.restore_window_ms,
    }
}

pub(super) fn from_wire(wire: v1::JobDefaults) -> JobDefaults {
    JobDefaults {
        attempts_without_progress_max: wire.attempts_without_progress_max,
        bad_checkpoints_max: wire.bad_checkpoints_max,
        restore_window_ms: wire.restore_window_ms,
    }
}
