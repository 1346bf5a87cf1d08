//! Samples of the fourth version: suspended and resumed jobs.

use std::sync::Arc;

use muster_engine::state::{Pause, State};
use muster_model::command::{Command, StopReason};
use muster_model::event::EventKind;
use muster_model::job::Suspension;
use muster_model::spec::{JobSpec, Lifecycle, SuspendMode};
use muster_model::time::TimeMs;

use crate::frozen::samples::retries::change_units;
use crate::frozen::samples::{JOB, REQUEST, spec};

/// Commands that suspend and resume jobs, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let spec = JobSpec {
        lifecycle: released(),
        ..spec()
    };
    let (author, reason) = ("grace".to_owned(), "another one's turn".to_owned());
    vec![
        (
            "submit_job_released_when_suspended",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(spec),
            },
        ),
        (
            "suspend_job",
            Command::SuspendJob {
                request: REQUEST,
                job: JOB,
                author: author.clone(),
                reason: reason.clone(),
            },
        ),
        (
            "resume_job",
            Command::ResumeJob {
                request: REQUEST,
                job: JOB,
                author,
                reason,
            },
        ),
        ("stop_attempt_suspended", super::stop(StopReason::Suspended)),
    ]
}

fn released() -> Lifecycle {
    Lifecycle {
        suspend: SuspendMode::Release,
        ..Lifecycle::default()
    }
}

/// One event of every kind about suspensions.
pub(crate) fn kinds() -> Vec<EventKind> {
    let (author, reason) = ("grace".to_owned(), "another one's turn".to_owned());
    vec![
        EventKind::JobSuspended {
            job: JOB,
            author: author.clone(),
            reason: reason.clone(),
            mode: SuspendMode::Release,
        },
        EventKind::JobResumed {
            job: JOB,
            author,
            reason,
        },
    ]
}

/// The first version's state with a job that was paused before, and its ledger.
pub(crate) fn state_with_pauses() -> State {
    let mut parts = super::state::parts();
    parts.ledger.paused_gpu_ms = 1_600;
    change_units(&mut parts, |unit| {
        if let Some(attempt) = &mut unit.attempt {
            Arc::make_mut(attempt).pauses = vec![pause(4_000, 4_100), pause(4_200, 4_300)];
        }
    });
    State::restore(parts)
}

const fn pause(from: u64, until: u64) -> Pause {
    Pause {
        from: TimeMs(from),
        until: TimeMs(until),
    }
}

/// The first version's state, with a suspended job.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    let job = parts.jobs.iter_mut().find(|job| !job.units.is_empty());
    let job = job.expect("a job of the sample has a unit with a history");
    job.suspension = Some(Suspension {
        author: "grace".to_owned(),
        reason: "another one's turn".to_owned(),
        at: TimeMs(4_500),
    });
    State::restore(parts)
}
