//! The answer to a what-if, for people and programs.

use muster_engine::effects::QueueEffect;
use serde::Serialize;

use crate::fork::estimate::Ground;
use crate::fork::timeline::Timeline;

/// The answer to a what-if. Instants are milliseconds after the fork.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Revision of the state that was forked.
    pub revision: u64,
    /// When it was forked, in milliseconds since the Unix epoch by the cluster's clock.
    pub forked_at_ms: u64,
    /// Virtual time that was played, in milliseconds.
    pub horizon_ms: u64,
    /// What the estimates stand on.
    pub assumptions: Assumptions,
    /// Jobs that the changes submit, in order.
    pub submitted: Vec<JobDifference>,
    /// Other jobs whose course differs, by id.
    pub affected: Vec<JobDifference>,
    /// Jobs whose course does not differ.
    pub unaffected: u64,
    /// Attempts that are stopped only with the changes, by instant.
    pub stops: Vec<StopDifference>,
    /// What a change of the queues means for them at once, by name.
    pub queues: Vec<QueueEffect>,
    /// Sums without the changes.
    pub now: Totals,
    /// Sums with them.
    pub then: Totals,
    /// What is drawn without the changes.
    #[serde(skip)]
    pub(super) now_over_time: Timeline,
    /// What is drawn with them.
    #[serde(skip)]
    pub(super) then_over_time: Timeline,
}

/// How many jobs' running times are estimated on which ground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Assumptions {
    /// Running time of work of which nothing is known, in milliseconds; none: it never ends.
    pub assumed_run_ms: Option<u64>,
    /// Jobs with a time limit of their own.
    pub told: u64,
    /// Jobs of a kind that has run before.
    pub learnt: u64,
    /// Jobs of which nothing is known.
    pub assumed: u64,
}

/// How a job's course differs; the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It exists only with the changes.
    Submitted,
    /// It is stopped, and comes back within the horizon.
    Stopped,
    /// It is stopped, and does not come back within the horizon.
    StoppedForLong,
    /// It would have started, and does not within the horizon.
    NotStarted,
    /// It starts later.
    Later,
    /// It starts although it would not have within the horizon.
    NowStarted,
    /// It starts sooner.
    Sooner,
    /// It starts at the same time on other hosts.
    Elsewhere,
    /// It goes on as opportunistic work, which goes first when others need its resources.
    Downgraded,
}

impl Effect {
    /// Its words in tables.
    #[must_use]
    pub const fn words(self) -> &'static str {
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

/// One job in both futures.
#[derive(Clone, Debug, Serialize)]
pub struct JobDifference {
    /// Its id; of a job that is only submitted in the fork, the id that it has there.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// GPUs that it asks for in all.
    pub gpus: u64,
    /// What the estimate of its running time stands on.
    pub estimate: Ground,
    /// How its course differs.
    pub effect: Effect,
    /// Without the changes; none if it does not exist then.
    pub now: Option<Fate>,
    /// With them.
    pub then: Fate,
}

impl JobDifference {
    /// Which job it is, as the first columns of every table say it: number, name, user, queue, priority, GPUs.
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

/// What becomes of a job in one future.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fate {
    /// Its units that waited at the fork.
    pub waited_units: u64,
    /// Of those, how many start within the horizon.
    pub started_units: u64,
    /// When the first of them starts.
    pub start_ms: Option<u64>,
    /// When the last of them does.
    pub all_started_ms: Option<u64>,
    /// Where the first of them starts.
    pub places: Vec<Place>,
    /// When the job is over.
    pub end_ms: Option<u64>,
    /// How often attempts of it are stopped.
    pub stops: u64,
    /// Why it waits, if it has to.
    pub waits_for: Option<String>,
}

impl Fate {
    /// When its waiting units start; `later` words a time after the fork, in milliseconds.
    #[must_use]
    pub fn start_in_words(&self, later: impl Fn(u64) -> String) -> String {
        match (self.waited_units, self.start_ms) {
            (0, _) => "runs".to_owned(),
            (_, None) => "not".to_owned(),
            (_, Some(0)) => "at once".to_owned(),
            (_, Some(start_ms)) => later(start_ms),
        }
    }
}

/// Where tasks run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The host's name.
    pub host: String,
    /// UUIDs of the GPUs.
    pub gpus: Vec<String>,
}

/// An attempt that is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopDifference {
    /// Whose.
    pub job: u64,
    /// The job's name.
    pub name: String,
    /// Which unit.
    pub unit: u32,
    /// When.
    pub at_ms: u64,
    /// Why.
    pub reason: String,
    /// For which job, if it is preempted.
    pub by: Option<u64>,
    /// GPUs that it holds.
    pub gpus: u64,
    /// GPU-seconds of work that are lost.
    pub lost_gpu_seconds: u64,
    /// When its unit starts again.
    pub back_ms: Option<u64>,
    /// Where.
    pub back_on: Vec<String>,
}

/// Sums over the horizon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Share of GPU-time held, of all GPUs.
    pub utilisation: f64,
    /// Hours that jobs wait, all together.
    pub waiting_job_hours: f64,
    /// Mean seconds from the fork until they start, of jobs that wait at the fork (or are submitted then); those that
    /// do not start count with the horizon.
    pub mean_wait_seconds: f64,
    /// Jobs that waited and start within the horizon.
    pub jobs_started: u64,
    /// Jobs that end within the horizon.
    pub jobs_finished: u64,
    /// Attempts that are stopped.
    pub stops: u64,
    /// GPU-hours of work that are lost with them.
    pub lost_gpu_hours: f64,
}
