//! Observer that records what the report needs.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::state::{Attempt, State};
use muster_model::host::Host;
use muster_model::ids::GpuUuid;
use muster_model::time::TimeMs;

use crate::measure::{Gantt, HeadRequest, Hosts, Integrals, JobEnd, JobRecord, Moment, Series};
use crate::policy::queue_named;
use crate::trace::TraceJob;
use crate::workload::Scenario;

/// Time series, and totals over the whole run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) integrals: Integrals,
    /// GPUs held by attempts.
    pub(crate) held: Series,
    /// GPUs that are usable and not held, reserved ones included.
    pub(crate) free: Series,
    /// Number of waiting jobs.
    pub(crate) waiting_jobs: Series,
    /// GPUs that waiting jobs request.
    pub(crate) waiting_gpus: Series,
    /// GPUs held, by queue.
    pub(crate) held_by_queue: Vec<Series>,
    pub(crate) gantt: Gantt,
    /// Time of the last instant, in milliseconds after the first submission.
    pub(crate) end_ms: u64,
}

/// Data for the report.
#[derive(Debug)]
pub(super) struct Observer {
    queues: Vec<String>,
    records: Vec<JobRecord>,
    observed: Observed,
    hosts: Hosts,
    head: Option<HeadRequest>,
    last_submission_ms: u64,
    checkpoint_interval_ms: Option<u64>,
    attempts_ended: u64,
    /// Jobs that are stopped to be moved.
    leaving: BTreeSet<usize>,
}

impl Observer {
    pub(super) fn new(scenario: &Scenario, state: &State) -> Self {
        let names = scenario.jobs.iter().map(queue_named);
        let mut queues: Vec<&str> = names.collect();
        queues.sort_unstable();
        queues.dedup();
        let positions: BTreeMap<&str, usize> = queues.iter().copied().zip(0..).collect();
        let jobs = scenario.jobs.iter();
        let records = jobs
            .map(|job| record(job, positions[queue_named(job)]))
            .collect();
        let mut hosts = Hosts::default();
        state.hosts.values().for_each(|host| hosts.record(host));
        let gpus_of = |host: &Host| host.gpus.iter().map(|gpu| gpu.uuid).collect();
        let gpus: Vec<(String, Vec<GpuUuid>)> = state
            .hosts
            .values()
            .map(|host| (host.name.to_string(), gpus_of(host)))
            .collect();
        let mut observed = Observed {
            held_by_queue: vec![Series::default(); queues.len()],
            gantt: Gantt::new(&gpus),
            ..Observed::default()
        };
        observed.free.set(0, hosts.free());
        Self {
            queues: queues.into_iter().map(str::to_owned).collect(),
            records,
            observed,
            hosts,
            head: None,
            last_submission_ms: scenario.jobs.last().map_or(0, |job| job.submit_ms),
            checkpoint_interval_ms: scenario.settings.checkpoint_interval_ms,
            attempts_ended: 0,
            leaving: BTreeSet::new(),
        }
    }

    /// Advances time over a span without changes.
    pub(super) fn advance(&mut self, now: TimeMs) {
        let observed = &mut self.observed;
        if now.0 <= observed.end_ms {
            return;
        }
        let is_waiting = observed.waiting_jobs.value() > 0;
        let held = observed.held.value();
        let moment = Moment::of(&self.hosts, held, self.head.as_ref(), is_waiting);
        let span_ms = observed.end_ms..now.0;
        observed
            .integrals
            .add(span_ms, moment, self.last_submission_ms);
        observed.end_ms = now.0;
    }

    pub(super) fn submitted(&mut self, job: usize) {
        self.records[job].end = JobEnd::Waiting;
        self.start_waiting(job);
    }

    fn start_waiting(&mut self, job: usize) {
        let (gpus, observed) = (self.records[job].gpus, &mut self.observed);
        observed.waiting_jobs.add(observed.end_ms, 1);
        observed.waiting_gpus.add(observed.end_ms, u64::from(gpus));
    }

    fn stop_waiting(&mut self, job: usize) {
        let (gpus, observed) = (self.records[job].gpus, &mut self.observed);
        observed.waiting_jobs.subtract(observed.end_ms, 1);
        observed
            .waiting_gpus
            .subtract(observed.end_ms, u64::from(gpus));
    }

    /// Run time that a job has done and kept.
    pub(super) fn done_ms(&self, job: usize) -> u64 {
        self.records[job].done_ms
    }

    /// Run time that a job still needs; endless if `None`.
    pub(super) fn left_ms(&self, job: usize) -> Option<u64> {
        let record = &self.records[job];
        Some(record.duration_ms?.saturating_sub(record.done_ms))
    }

    pub(super) fn placed(&mut self, job: usize, attempt: &Attempt) {
        self.stop_waiting(job);
        let now_ms = self.observed.end_ms;
        let record = &mut self.records[job];
        record.first_placed_ms.get_or_insert(now_ms);
        record.end = JobEnd::Running;
        let gpus = u64::from(record.gpus);
        self.observed.held.add(now_ms, gpus);
        self.observed.held_by_queue[record.queue].add(now_ms, gpus);
        let gpus = attempt.tasks.iter().flat_map(|run| &run.gpus);
        self.observed.gantt.begin(job, gpus, now_ms);
    }

    /// Records that an attempt ended after the given run time; its work since the last checkpoint is lost,
    /// unless the job is done.
    pub(super) fn attempt_ended(&mut self, job: usize, ran_ms: u64, is_done: bool) {
        self.attempts_ended += 1;
        let now_ms = self.observed.end_ms;
        let record = &mut self.records[job];
        let reached_ms = record.done_ms + ran_ms;
        let kept_ms = match self.checkpoint_interval_ms {
            _ if is_done => reached_ms,
            Some(interval_ms) if interval_ms > 0 => reached_ms - reached_ms % interval_ms,
            Some(_) => reached_ms,
            None => 0,
        };
        record.done_ms = kept_ms.max(record.done_ms);
        record.lost_ms += reached_ms - record.done_ms;
        let gpus = u64::from(record.gpus);
        self.observed.held.subtract(now_ms, gpus);
        self.observed.held_by_queue[record.queue].subtract(now_ms, gpus);
        self.observed.gantt.end(job, now_ms);
    }

    /// Number of attempts that have ended.
    pub(super) const fn attempts_ended(&self) -> u64 {
        self.attempts_ended
    }

    /// Records that a job is stopped to be moved.
    pub(super) fn moves(&mut self, job: usize) {
        self.leaving.insert(job);
    }

    pub(super) fn requeued(&mut self, job: usize, preempted: bool) {
        let record = &mut self.records[job];
        record.end = JobEnd::Waiting;
        if self.leaving.remove(&job) {
            record.moves += 1;
        } else if preempted {
            record.preemptions += 1;
        } else {
            record.interruptions += 1;
        }
        self.start_waiting(job);
    }

    pub(super) fn ended(&mut self, job: usize, end: JobEnd) {
        self.leaving.remove(&job);
        if self.records[job].end == JobEnd::Waiting {
            self.stop_waiting(job);
        }
        let record = &mut self.records[job];
        record.finished_ms = Some(self.observed.end_ms);
        record.end = end;
    }

    pub(super) fn record_host(&mut self, host: &Host) {
        self.hosts.record(host);
        let observed = &mut self.observed;
        observed.free.set(observed.end_ms, self.hosts.free());
    }

    /// Records the request of the first job that waits for room.
    pub(super) fn record_head(&mut self, head: Option<HeadRequest>) {
        self.head = head;
    }

    /// Returns queues, records and measurements.
    pub(super) fn finish(mut self) -> (Vec<String>, Vec<JobRecord>, Observed) {
        let observed = &mut self.observed;
        let end_ms = observed.end_ms;
        let series = [
            &mut observed.held,
            &mut observed.free,
            &mut observed.waiting_jobs,
            &mut observed.waiting_gpus,
        ];
        let series = series.into_iter().chain(&mut observed.held_by_queue);
        series.for_each(|series| series.advance(end_ms));
        observed.gantt.finish(end_ms);
        (self.queues, self.records, self.observed)
    }
}

/// Record of a job that has not arrived yet.
fn record(job: &TraceJob, queue: usize) -> JobRecord {
    JobRecord {
        queue,
        gpus: job.gpus(),
        submitted_ms: job.submit_ms,
        duration_ms: job.duration_ms,
        first_placed_ms: None,
        finished_ms: None,
        done_ms: 0,
        lost_ms: 0,
        preemptions: 0,
        moves: 0,
        interruptions: 0,
        end: JobEnd::Refused,
    }
}
