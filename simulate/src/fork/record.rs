//! Record of one job in one future.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{Attempt, Job};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::fork::estimate::EstimateBasis;

/// Maximum number of stops kept per job: an array of many tasks may be stopped many times.
const STOPS_KEPT_MAX: usize = 1_000;

/// A stopped attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) unit: UnitIndex,
    pub(super) at: TimeMs,
    /// Reason, as text for users.
    pub(super) reason: String,
    /// GPUs that it held.
    pub(super) gpus: u64,
    /// Lost run time in milliseconds.
    pub(super) lost_ms: u64,
    /// The preempting job, if it was preempted.
    pub(super) by: Option<JobId>,
    /// Time and place of the unit's next placement.
    pub(super) back: Option<(TimeMs, Placed)>,
}

/// Hosts with the names of their GPUs, in task order; adjacent tasks on one host are one entry.
pub(super) type Placed = Vec<(String, Vec<String>)>;

/// Record of one job.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The job's request: the state may forget it before the horizon.
    pub(super) spec: Arc<JobSpec>,
    /// Units that were waiting when the future began.
    pub(super) waited: u64,
    /// Basis of its run-time estimate.
    pub(super) basis: EstimateBasis,
    /// Time and place of the first placement of a unit that had waited.
    pub(super) first: Option<(TimeMs, Placed)>,
    /// Time of the latest such placement.
    pub(super) last_at: Option<TimeMs>,
    /// Number of units placed that had waited.
    pub(super) started: u64,
    /// End of the job.
    pub(super) finished: Option<TimeMs>,
    /// Stops, oldest first.
    pub(super) stops: Vec<Stop>,
    /// Total number of stops.
    pub(super) stops_total: u64,
    /// Attempts that continued as opportunistic work.
    pub(super) downgrades: u64,
    /// The position in `stops` of each unit's last stop, until it is placed again.
    away: BTreeMap<UnitIndex, usize>,
    /// Reason why its next unit waits, as of the last check.
    pub(super) waits_for: Option<String>,
}

impl Record {
    pub(super) fn new(job: &Job, basis: EstimateBasis) -> Self {
        Self {
            spec: Arc::clone(&job.spec),
            waited: job.counts.waiting,
            basis,
            first: None,
            last_at: None,
            started: 0,
            finished: None,
            stops: Vec::new(),
            stops_total: 0,
            downgrades: 0,
            away: BTreeMap::new(),
            waits_for: None,
        }
    }

    /// Records the placement of a unit.
    pub(super) fn placed(&mut self, unit: UnitIndex, at: TimeMs, placed: impl FnOnce() -> Placed) {
        if let Some(position) = self.away.remove(&unit) {
            if let Some(stop) = self.stops.get_mut(position) {
                stop.back = Some((at, placed()));
            }
            return;
        }
        self.started += 1;
        self.last_at = Some(at);
        if self.first.is_none() {
            self.first = Some((at, placed()));
        }
    }

    /// Records a stop of a unit's attempt.
    pub(super) fn stopped(&mut self, stop: Stop) {
        self.stops_total += 1;
        let unit = stop.unit;
        if self.stops.len() < STOPS_KEPT_MAX {
            self.stops.push(stop);
        }
        self.away.insert(unit, self.stops.len() - 1);
    }
}

/// GPUs that an attempt holds.
pub(super) fn gpus_of(attempt: &Attempt) -> u64 {
    attempt.tasks.iter().map(|run| run.gpus.len() as u64).sum()
}
