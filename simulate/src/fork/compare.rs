//! Difference between two futures of a fork.

use std::collections::BTreeMap;

use muster_model::ids::JobId;
use muster_model::time::TimeMs;

use crate::fork::difference::{
    Assumptions, Difference, Effect, HostGpus, JobDifference, JobOutcome, StopDifference, Totals,
};
use crate::fork::estimate::EstimateBasis;
use crate::fork::future::Future;
use crate::fork::record::{Placed, Record, Stop};
use crate::fork::{Effects, Fork, ForkSettings};

/// Compares two futures.
pub(super) fn compare(
    fork: &Fork,
    settings: ForkSettings,
    now: Future,
    then: Future,
    made: Effects,
) -> Difference {
    let Effects { submitted, queues } = made;
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
        now_over_time: now.timeline,
        then_over_time: then.timeline,
    }
}

struct Comparison<'a> {
    zero: TimeMs,
    now: &'a Future,
    then: &'a Future,
}

impl Comparison<'_> {
    /// Difference of a job between the futures; `None` if there is none.
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
            estimate: then.basis,
            effect,
            now: now.map(|now| self.fate(now)),
            then: self.fate(then),
        })
    }

    fn fate(&self, record: &Record) -> JobOutcome {
        let after = |at: TimeMs| at.since(self.zero);
        let places = record.first.as_ref().map_or(&[][..], |(_, placed)| placed);
        JobOutcome {
            waited_units: record.waited,
            started_units: record.started,
            start_ms: record.first.as_ref().map(|(at, _)| after(*at)),
            all_started_ms: record
                .last_at
                .filter(|_| record.started >= record.waited)
                .map(after),
            places: places
                .iter()
                .map(|(host, gpus)| HostGpus {
                    host: host.clone(),
                    gpus: gpus.clone(),
                })
                .collect(),
            end_ms: record.finished.map(after),
            stops: record.stops_total,
            waits_for: record.waits_for.clone(),
        }
    }

    /// Stops of the second future that are absent from the first.
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
            reason: stop.reason.clone(),
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

/// Effect of the changes on a job, if any.
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

fn assumptions(settings: ForkSettings, course: &Future) -> Assumptions {
    let mut counts: BTreeMap<EstimateBasis, u64> = BTreeMap::new();
    for record in course.records.values() {
        *counts.entry(record.basis).or_default() += 1;
    }
    let of = |basis| counts.get(&basis).copied().unwrap_or(0);
    Assumptions {
        assumed_run_ms: settings.estimator.assumed_ms,
        time_limit: of(EstimateBasis::TimeLimit),
        usual: of(EstimateBasis::UsualRunTime),
        assumed: of(EstimateBasis::Assumed),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures for users, shown to three digits"
)]
fn totals(course: &Future, horizon_ms: u64, zero: TimeMs) -> Totals {
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
