//! User-visible state with names instead of ids: as text lines and as data.
//!
//! Nothing in it depends on revisions or epochs, so two histories with the same outcome give the same
//! picture.

mod blocker;
mod hosts;
mod jobs;
mod lines;
mod names;
mod queues;

use muster_engine::state::State;
use muster_model::time::TimeMs;
use serde::Serialize;

pub(crate) use blocker::instant_text;
pub use hosts::{GpuPicture, HostPicture};
pub(crate) use jobs::phase_text;
pub use jobs::{ClaimPicture, JobPicture, PlacePicture, UnitPicture, WaitPicture};
pub(crate) use lines::{Line, difference};
pub(crate) use names::{duration_text, unit_name};
pub use queues::{CellsPicture, QueuePicture};

/// The visible state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// Milliseconds since the start of the scenario.
    pub at_ms: u64,
    /// The leading replica.
    pub leader: u64,
    /// All hosts.
    pub hosts: Vec<HostPicture>,
    /// All queues, once a queue tree was configured.
    pub queues: Vec<QueuePicture>,
    /// All jobs, in order of submission.
    pub jobs: Vec<JobPicture>,
}

impl Picture {
    /// The picture of a state at `now`, in a scenario that began at `begin`.
    pub(crate) fn of(state: &State, begin: TimeMs, now: TimeMs) -> Self {
        let jobs = state.jobs.values();
        Self {
            at_ms: now.since(begin),
            leader: state.leadership.replica.get(),
            hosts: state
                .hosts
                .values()
                .map(|host| hosts::picture(state, host))
                .collect(),
            queues: queues::pictures(state),
            jobs: jobs.map(|job| jobs::picture(state, job, now)).collect(),
        }
    }

    /// Lines in order: the leader, hosts and GPUs in unusual states, queues, jobs.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new(
            0,
            "leader",
            format!("leader: replica {}", self.leader),
        )];
        lines.extend(self.hosts.iter().flat_map(HostPicture::lines));
        lines.extend(self.queues.iter().map(QueuePicture::line));
        lines.extend(self.jobs.iter().flat_map(JobPicture::lines));
        lines
    }
}
