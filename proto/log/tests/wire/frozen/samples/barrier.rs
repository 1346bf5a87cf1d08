//! Samples of the fourth version: gangs with a start barrier.

use std::sync::Arc;

use muster_engine::state::State;
use muster_model::command::{Command, Placement, TaskOutcome, TaskReport};
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, HostId, TaskIndex, UnitIndex};
use muster_model::job::Barrier;
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::{JobSpec, Lifecycle};
use muster_model::time::TimeMs;

use crate::frozen::samples::{JOB, LEADER, REQUEST, spec};

const EPOCH: AttemptEpoch = AttemptEpoch(1_000_001);

/// Commands of gangs with a barrier, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let spec = JobSpec {
        lifecycle: Lifecycle {
            barrier: Some(false),
            ..Lifecycle::default()
        },
        ..spec()
    };
    let placement = Placement {
        barrier: true,
        ..super::placement()
    };
    vec![
        (
            "submit_job_without_barrier",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(spec),
            },
        ),
        ("place_with_barrier", Command::Place(placement)),
        ("report_task_prepared", prepared(0, Some(23_456))),
        ("report_task_prepared_without_port", prepared(1, None)),
        (
            "release_gang",
            Command::ReleaseGang {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                epoch: EPOCH,
            },
        ),
    ]
}

fn prepared(task: u32, master_port: Option<u16>) -> Command {
    Command::ReportTask(TaskReport {
        leader: LEADER,
        job: JOB,
        unit: UnitIndex(0),
        epoch: EPOCH,
        task: TaskIndex(task),
        outcome: TaskOutcome::Prepared { master_port },
    })
}

/// One event of every kind about barriers.
pub(crate) fn kinds() -> Vec<EventKind> {
    let (job, unit, epoch) = (JOB, UnitIndex(0), EPOCH);
    vec![
        EventKind::TaskPrepared {
            job,
            unit,
            epoch,
            task: TaskIndex(1),
            host: HostId(2),
        },
        EventKind::GangReleased {
            job,
            unit,
            epoch,
            hosts: vec![HostId(1), HostId(2)],
            master_port: 23_456,
        },
    ]
}

/// The first version's state, with an attempt that was released and a member that has not started.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    for job in &mut parts.jobs {
        for index in job.units.keys().copied().collect::<Vec<_>>() {
            let unit = job.units.get_mut(&index).map(Arc::make_mut);
            let attempt = unit
                .and_then(|unit| unit.attempt.as_mut())
                .map(Arc::make_mut);
            if let Some(attempt) = attempt {
                attempt.barrier = Some(Barrier {
                    master_port: Some(23_456),
                    released_at: Some(TimeMs(3_050)),
                });
                attempt.tasks[0].phase = TaskPhase::Prepared;
            }
        }
    }
    State::restore(parts)
}
