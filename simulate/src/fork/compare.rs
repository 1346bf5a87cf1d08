//! The difference between two futures of a fork.

use std::collections::BTreeMap;

use muster_core::effects::QueueEffect;
use muster_core::ids::JobId;
use muster_core::time::TimeMs;
use serde::Serialize;

use super::course::Course;
use super::estimate::Ground;
use super::record::{Placed, Record, Stop};
use super::{Fork, ForkSettings, Made};

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

/// Compares two futures.
pub(super) fn compare(
    fork: &Fork,
    settings: ForkSettings,
    (now, then): (Course, Course),
    made: Made,
) -> Difference {
    let Made { submitted, queues } = made;
    let zero = fork.now.max(fork.state.time);
    let comparison = Comparison {
        zero,
        now: &now,
        then: &then,
    };
    let is_submitted = |id: &JobId| submitted.contains(id);
    let others = then.records.keys().filter(|id| !is_submitted(id));
    let (mut affected, mut unaffected) = (Vec::new(), 0);
    for id in others {
        match comparison.job(*id) {
            Some(difference) => affected.push(difference),
            None => unaffected += 1,
        }
    }
    Difference {
        revision: fork.state.revision.get(),
        forked_at_ms: zero.0,
        horizon_ms: settings.horizon_ms,
        assumptions: assumptions(settings, &then),
        submitted: submitted
            .iter()
            .filter_map(|id| comparison.job(*id))
            .collect(),
        affected,
        unaffected,
        stops: comparison.stops(),
        queues,
        now: totals(&now, settings.horizon_ms, zero),
        then: totals(&then, settings.horizon_ms, zero),
    }
}

struct Comparison<'a> {
    zero: TimeMs,
    now: &'a Course,
    then: &'a Course,
}

impl Comparison<'_> {
    /// How a job's course differs; none if it does not.
    fn job(&self, id: JobId) -> Option<JobDifference> {
        let then = self.then.records.get(&id)?;
        let now = self.now.records.get(&id);
        let effect = now.map_or(Some(Effect::Submitted), |now| effect(now, then))?;
        let spec = &then.spec;
        let groups = spec.groups.iter();
        let gpus = groups.map(|group| u64::from(group.count) * u64::from(group.resources.gpus));
        Some(JobDifference {
            id: id.get(),
            name: spec.name.clone(),
            user: spec.user.clone(),
            queue: spec.queue.clone(),
            priority: spec.priority,
            gpus: gpus.sum(),
            estimate: then.ground,
            effect,
            now: now.map(|now| self.fate(now)),
            then: self.fate(then),
        })
    }

    fn fate(&self, record: &Record) -> Fate {
        let after = |at: TimeMs| at.since(self.zero);
        let places = record.first.as_ref().map_or(&[][..], |(_, placed)| placed);
        Fate {
            waited_units: record.waited,
            started_units: record.started,
            start_ms: record.first.as_ref().map(|(at, _)| after(*at)),
            all_started_ms: record
                .last_at
                .filter(|_| record.started >= record.waited)
                .map(after),
            places: places
                .iter()
                .map(|(host, gpus)| Place {
                    host: host.clone(),
                    gpus: gpus.clone(),
                })
                .collect(),
            end_ms: record.finished.map(after),
            stops: record.stops_total,
            waits_for: record.waits_for.clone(),
        }
    }

    /// Stops of the second future that the first one does not have.
    fn stops(&self) -> Vec<StopDifference> {
        let mut stops = Vec::new();
        for (id, then) in &self.then.records {
            let known = self.now.records.get(id).map_or(&[][..], |now| &now.stops);
            let new = then.stops.iter().filter(|stop| !is_known(known, stop));
            stops.extend(new.map(|stop| self.stop(*id, then, stop)));
        }
        stops.sort_by_key(|stop| (stop.at_ms, stop.job, stop.unit));
        stops
    }

    fn stop(&self, id: JobId, record: &Record, stop: &Stop) -> StopDifference {
        let hosts = |placed: &Placed| placed.iter().map(|(host, _)| host.clone()).collect();
        StopDifference {
            job: id.get(),
            name: record.spec.name.clone(),
            unit: stop.unit.get(),
            at_ms: stop.at.since(self.zero),
            reason: stop.reason.to_string(),
            by: stop.by.map(JobId::get),
            gpus: stop.gpus,
            lost_gpu_seconds: stop.gpus * stop.lost_ms / 1_000,
            back_ms: stop.back.as_ref().map(|(at, _)| at.since(self.zero)),
            back_on: stop
                .back
                .as_ref()
                .map(|(_, placed)| hosts(placed))
                .unwrap_or_default(),
        }
    }
}

/// How the second course differs from the first, if it does.
fn effect(now: &Record, then: &Record) -> Option<Effect> {
    let new = || then.stops.iter().filter(|stop| !is_known(&now.stops, stop));
    if new().next().is_some() {
        let away = new().any(|stop| stop.back.is_none());
        return Some(if away && then.finished.is_none() {
            Effect::StoppedForLong
        } else {
            Effect::Stopped
        });
    }
    let start = |record: &Record| {
        let first = record.first.as_ref().map(|(at, _)| *at);
        (first, record.last_at)
    };
    if then.started != now.started {
        return Some(if then.started < now.started {
            Effect::NotStarted
        } else {
            Effect::NowStarted
        });
    }
    match start(then).cmp(&start(now)) {
        std::cmp::Ordering::Greater => return Some(Effect::Later),
        std::cmp::Ordering::Less => return Some(Effect::Sooner),
        std::cmp::Ordering::Equal => {}
    }
    let places = |record: &Record| record.first.as_ref().map(|(_, placed)| placed.clone());
    if places(then) != places(now) {
        return Some(Effect::Elsewhere);
    }
    (then.downgrades > now.downgrades).then_some(Effect::Downgraded)
}

fn is_known(known: &[Stop], stop: &Stop) -> bool {
    let same =
        |other: &&Stop| (other.unit, other.at, &other.reason) == (stop.unit, stop.at, &stop.reason);
    known.iter().any(|other| same(&other))
}

fn assumptions(settings: ForkSettings, course: &Course) -> Assumptions {
    let mut counts: BTreeMap<Ground, u64> = BTreeMap::new();
    for record in course.records.values() {
        *counts.entry(record.ground).or_default() += 1;
    }
    let of = |ground| counts.get(&ground).copied().unwrap_or(0);
    Assumptions {
        assumed_run_ms: settings.estimator.assumed_ms,
        told: of(Ground::Told),
        learnt: of(Ground::Learnt),
        assumed: of(Ground::Assumed),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures for people, of which three digits count"
)]
fn totals(course: &Course, horizon_ms: u64, zero: TimeMs) -> Totals {
    const HOUR_MS: f64 = 3_600_000.0;
    let gpus = course.engine.state.index.totals.gpus;
    let gpu_ms = (u128::from(gpus) * u128::from(horizon_ms)).max(1);
    let waiting: Vec<&Record> = course
        .records
        .values()
        .filter(|record| record.waited > 0)
        .collect();
    let waits = waiting.iter().map(|record| {
        let first = record.first.as_ref().map(|(at, _)| at.since(zero));
        u128::from(first.unwrap_or(horizon_ms))
    });
    let wait_ms: u128 = waits.sum();
    let count = |is_so: &dyn Fn(&Record) -> bool| {
        course
            .records
            .values()
            .filter(|record| is_so(record))
            .count() as u64
    };
    Totals {
        utilisation: course.sums.held as f64 / gpu_ms as f64,
        waiting_job_hours: course.sums.waited as f64 / HOUR_MS,
        mean_wait_seconds: wait_ms as f64 / 1_000.0 / waiting.len().max(1) as f64,
        jobs_started: count(&|record| record.waited > 0 && record.first.is_some()),
        jobs_finished: count(&|record| record.finished.is_some()),
        stops: course.sums.stops,
        lost_gpu_hours: course.sums.lost as f64 / HOUR_MS,
    }
}
