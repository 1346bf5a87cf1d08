//! Samples of the fourth version: retries in place, the progress guard, and job defaults.

use std::sync::Arc;

use muster_engine::state::{Reliability, State, StateParts, Unit};
use muster_model::command::{Command, ConfigCommand, JobDefaults};
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, HostId, UnitIndex};
use muster_model::job::{Ledger, Loss, Removal};

use crate::frozen::samples::{JOB, LEADER};

pub(crate) const DEFAULTS: JobDefaults = JobDefaults {
    attempts_without_progress_max: 3,
    bad_checkpoints_max: 2,
    restore_window_ms: 600_000,
};

/// Commands, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    vec![(
        "set_job_defaults",
        Command::Config(ConfigCommand::SetJobDefaults {
            leader: LEADER,
            defaults: DEFAULTS,
        }),
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
        EventKind::JobDefaultsSet(JobDefaults {
            attempts_without_progress_max: 3,
            bad_checkpoints_max: 2,
            restore_window_ms: 600_000,
        }),
        EventKind::CheckpointsForgotten {
            job: JOB,
            unit: UnitIndex(0),
            steps: vec![1_000, 2_000],
            removed: true,
        },
    ]
}

/// A ledger in which all amounts differ; paused time has its own sample.
fn ledger() -> Ledger {
    let loss = |first: u64| Loss {
        queue_gpu_ms: first,
        restart_gpu_ms: first + 1,
        work_gpu_ms: first + 2,
    };
    Ledger {
        kept_gpu_ms: 90_000_000,
        first: loss(10),
        preempt: loss(20),
        infra: loss(30),
        user: loss(40),
        admin: loss(50),
        paused_gpu_ms: 0,
    }
}

/// The first version's state with defaults and accounting, and a unit that was retried in place.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.job_defaults = Some(DEFAULTS);
    parts.reliability = Reliability {
        host_ms: 86_400_000,
        failures: 2,
    };
    parts.ledger = ledger();
    for job in &mut parts.jobs {
        job.ledger = ledger();
    }
    change_units(&mut parts, begun_again);
    State::restore(parts)
}

/// The state with retries, in which the end of every past attempt is attributed to a host.
pub(crate) fn state_with_culprits() -> State {
    let mut parts = super::state::parts();
    parts.job_defaults = Some(DEFAULTS);
    change_units(&mut parts, |unit| {
        for past in &mut unit.past {
            past.culprit = Some(HostId(2));
            past.gpus = vec![0b1010; past.hosts.len()];
        }
    });
    State::restore(parts)
}

pub(crate) fn change_units(parts: &mut StateParts, change: impl Fn(&mut Unit)) {
    for job in &mut parts.jobs {
        let indexes: Vec<UnitIndex> = job.units.keys().copied().collect();
        for index in indexes {
            let unit = job.units.get_mut(&index).map(Arc::make_mut);
            change(unit.expect("it was found above"));
        }
    }
}

fn begun_again(unit: &mut Unit) {
    unit.local_retries = 2;
    unit.without_progress = 1;
    unit.removals = vec![Removal {
        epoch: AttemptEpoch(21),
        step: 1_000,
        path: "/data/run/step_1000".to_owned(),
    }];
    for checkpoint in &mut unit.checkpoints {
        checkpoint.damaged = Some("its digest differs".to_owned());
        checkpoint.damaged_by = Some(AttemptEpoch(22));
    }
}
