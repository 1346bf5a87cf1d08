//! Answer to a what-if, for users and programs.

use muster_engine::effects::QueueEffect;
use serde::Serialize;

use crate::fork::estimate::EstimateBasis;
use crate::fork::timeline::Timeline;

/// The answer to a what-if. Instants are milliseconds after the fork.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Revision of the state that was forked.
    pub revision: u64,
    /// Time of the fork, in milliseconds since the Unix epoch by the cluster's clock.
    pub forked_at_ms: u64,
    /// Simulated virtual time in milliseconds.
    pub horizon_ms: u64,
    /// Basis of the estimates.
    pub assumptions: Assumptions,
    /// Jobs that the changes submit, in order.
    pub submitted: Vec<JobDifference>,
    /// Other jobs that the changes affect, by id.
    pub affected: Vec<JobDifference>,
    /// Number of jobs that the changes do not affect.
    pub unaffected: u64,
    /// Attempts that are stopped only with the changes, by instant.
    pub stops: Vec<StopDifference>,
    /// Immediate effects of a queue change, by queue name.
    pub queues: Vec<QueueEffect>,
    /// Totals without the changes.
    pub now: Totals,
    /// Totals with the changes.
    pub then: Totals,
    /// Time series without the changes.
    #[serde(skip)]
    pub(super) now_over_time: Timeline,
    /// Time series with the changes.
    #[serde(skip)]
    pub(super) then_over_time: Timeline,
}

/// Number of jobs by the basis of their run-time estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Assumptions {
    /// Assumed run time of work without any information, in milliseconds; `None`: it never ends.
    pub assumed_run_ms: Option<u64>,
    /// Jobs with a time limit of their own.
    pub time_limit: u64,
    /// Jobs of a kind with finished runs.
    pub usual: u64,
    /// Jobs without any information.
    pub assumed: u64,
}

/// Effect of the changes on a job; the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It exists only with the changes.
    Submitted,
    /// It is stopped, and restarts within the horizon.
    Stopped,
    /// It is stopped, and does not restart within the horizon.
    StoppedForLong,
    /// It would have started, but no longer does within the horizon.
    NotStarted,
    /// It starts later.
    Later,
    /// It starts although it would not have within the horizon.
    NowStarted,
    /// It starts sooner.
    Sooner,
    /// It starts at the same time on other hosts.
    Elsewhere,
    /// It continues as opportunistic work, which is preempted first.
    Downgraded,
}

impl Effect {
    /// Text in tables.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Stopped => "stopped, comes back",
            Self::StoppedForLong => "stopped, does not come back",
            Self::NotStarted => "does not start",
            Self::Later => "later",
            Self::NowStarted => "starts at all",
            Self::Sooner => "sooner",
            Self::Elsewhere => "elsewhere",
            Self::Downgraded => "opportunistic",
        }
    }
}

/// A job in both futures.
#[derive(Clone, Debug, Serialize)]
pub struct JobDifference {
    /// Job id; for a job that exists only in the fork, its id there.
    pub id: u64,
    /// Job name.
    pub name: String,
    /// Job owner.
    pub user: String,
    /// Queue of the job.
    pub queue: String,
    /// Job priority.
    pub priority: i32,
    /// Total GPUs that the job requests.
    pub gpus: u64,
    /// Basis of its run-time estimate.
    pub estimate: EstimateBasis,
    /// Effect of the changes.
    pub effect: Effect,
    /// Outcome without the changes; `None` if the job does not exist then.
    pub now: Option<JobOutcome>,
    /// Outcome with the changes.
    pub then: JobOutcome,
}

impl JobDifference {
    /// First columns of every table: number, name, user, queue, priority, GPUs.
    pub(super) fn labels(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.user.clone(),
            self.queue.clone(),
            self.priority.to_string(),
            self.gpus.to_string(),
        ]
    }
}

/// Outcome of a job in one future.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobOutcome {
    /// Units that were waiting at the fork.
    pub waited_units: u64,
    /// Number of those that start within the horizon.
    pub started_units: u64,
    /// Start of the first of them.
    pub start_ms: Option<u64>,
    /// Start of the last of them.
    pub all_started_ms: Option<u64>,
    /// Placement of the first of them.
    pub places: Vec<HostGpus>,
    /// End of the job.
    pub end_ms: Option<u64>,
    /// Number of stops of its attempts.
    pub stops: u64,
    /// Reason why it waits, if it has to.
    pub waits_for: Option<String>,
}

impl JobOutcome {
    /// Start of its waiting units as text; `later` formats a time after the fork, in milliseconds.
    #[must_use]
    pub fn start_text(&self, later: impl Fn(u64) -> String) -> String {
        match (self.waited_units, self.start_ms) {
            (0, _) => "runs".to_owned(),
            (_, None) => "not".to_owned(),
            (_, Some(0)) => "at once".to_owned(),
            (_, Some(start_ms)) => later(start_ms),
        }
    }
}

/// Placement of tasks on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostGpus {
    /// Host name.
    pub host: String,
    /// UUIDs of the GPUs.
    pub gpus: Vec<String>,
}

/// A stopped attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopDifference {
    /// The owning job.
    pub job: u64,
    /// Job name.
    pub name: String,
    /// Index of the unit.
    pub unit: u32,
    /// Time of the stop.
    pub at_ms: u64,
    /// Reason for the stop.
    pub reason: String,
    /// The preempting job, if it is preempted.
    pub by: Option<u64>,
    /// GPUs that the attempt holds.
    pub gpus: u64,
    /// GPU-seconds of lost work.
    pub lost_gpu_seconds: u64,
    /// Time at which its unit starts again.
    pub back_ms: Option<u64>,
    /// Hosts on which it starts again.
    pub back_on: Vec<String>,
}

/// Totals over the horizon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Fraction of the total GPU time that is held.
    pub utilisation: f64,
    /// Total waiting time of all jobs in hours.
    pub waiting_job_hours: f64,
    /// Mean seconds from the fork to the start, over jobs that wait at the fork or are submitted then;
    /// those that do not start count with the horizon.
    pub mean_wait_seconds: f64,
    /// Jobs that waited and start within the horizon.
    pub jobs_started: u64,
    /// Jobs that end within the horizon.
    pub jobs_finished: u64,
    /// Number of stopped attempts.
    pub stops: u64,
    /// GPU-hours of work lost with them.
    pub lost_gpu_hours: f64,
}
