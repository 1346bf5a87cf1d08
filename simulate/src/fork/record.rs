//! What becomes of one job in one future.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{Attempt, Job};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::fork::estimate::Ground;

/// Stops remembered of one job: an array of many tasks may be stopped many times.
const STOPS_KEPT_MAX: usize = 1_000;

/// An attempt that was told to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) unit: UnitIndex,
    pub(super) at: TimeMs,
    /// Why, for people.
    pub(super) reason: String,
    /// GPUs that it held.
    pub(super) gpus: u64,
    /// Running time that is lost, in milliseconds.
    pub(super) lost_ms: u64,
    /// For whom, if it was preempted.
    pub(super) by: Option<JobId>,
    /// When the unit was placed again, and where.
    pub(super) back: Option<(TimeMs, Placed)>,
}

/// Hosts and how their GPUs are named, in task order; neighbours on one host are one entry.
pub(super) type Placed = Vec<(String, Vec<String>)>;

/// What becomes of one job.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// What it asks for: the state may forget it before the horizon.
    pub(super) spec: Arc<JobSpec>,
    /// Units that waited when the future began.
    pub(super) waited: u64,
    /// What its estimates stand on.
    pub(super) ground: Ground,
    /// When the first unit was placed that had waited, and where.
    pub(super) first: Option<(TimeMs, Placed)>,
    /// When the last one was so far.
    pub(super) last_at: Option<TimeMs>,
    /// Units placed that had waited.
    pub(super) started: u64,
    /// When the job was over.
    pub(super) finished: Option<TimeMs>,
    /// Stops, oldest first.
    pub(super) stops: Vec<Stop>,
    /// Stops in all.
    pub(super) stops_total: u64,
    /// Attempts that went on as opportunistic work.
    pub(super) downgrades: u64,
    /// The position in `stops` of each unit's last stop, while it is not placed again.
    away: BTreeMap<UnitIndex, usize>,
    /// Why its next unit waits, when it was last asked.
    pub(super) waits_for: Option<String>,
}

impl Record {
    pub(super) fn new(job: &Job, ground: Ground) -> Self {
        Self {
            spec: Arc::clone(&job.spec),
            waited: job.counts.waiting,
            ground,
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

    /// A unit was placed.
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

    /// A unit's attempt was told to stop.
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
