//! Simulated future of a fork: virtual time jumps from one event to the next.
//!
//! At every instant, work ends and timers expire first, then the planner runs. Its steps are applied as the
//! batch that a leader proposes, and only then do the workers act on them: tasks start and stop at once.

use std::collections::BTreeMap;

use muster_engine::effects::queue_effects;
use muster_engine::state::{Answer, Attempt, Job, State};
use muster_harness::{Agenda, Environment};
use muster_model::command::{AllocationBasis, Command, StopReason, Victim};
use muster_model::event::EventKind;
use muster_model::ids::{JobId, RequestId, RequestKey};
use muster_model::time::TimeMs;
use muster_planner::{Blocker, Plan, blocker};

use crate::fork::blocker_text::describe;
use crate::fork::estimate::{Estimator, Running};
use crate::fork::happening::{AttemptKey, Event};
use crate::fork::record::{Placed, Record, Stop, gpus_of};
use crate::fork::timeline::Timeline;
use crate::fork::{Change, Effects, Fork, ForkError, ForkSettings, reports};
use crate::world::SimulateError;
use crate::world::engine::{Engine, PendingEvents};

/// Sums over the whole future.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// GPU-milliseconds held.
    pub(super) held: u128,
    /// Job-milliseconds of waiting.
    pub(super) waited: u128,
    /// GPU-milliseconds of work lost with stopped attempts.
    pub(super) lost: u128,
    /// Number of stopped attempts.
    pub(super) stops: u64,
}

/// A future being simulated.
#[derive(Debug)]
pub(super) struct Future {
    pub(super) engine: Engine,
    agenda: Agenda<Event>,
    estimator: Estimator,
    /// Record of every job that was not finished when the future began, and of those submitted in it.
    pub(super) records: BTreeMap<JobId, Record>,
    submitted: Vec<JobId>,
    /// Jobs that the last planning round examined and did not place.
    blocked: Vec<(JobId, Blocker)>,
    /// Units for which attempts were stopped.
    claimants: BTreeMap<Victim, JobId>,
    pub(super) sums: Sums,
    pub(super) timeline: Timeline,
    pub(super) audit_every: Option<u64>,
    began: TimeMs,
    ends: TimeMs,
}

impl Environment for Future {
    type Observer = PendingEvents;
    type Error = SimulateError;

    const REACTS_TO_EACH_STEP: bool = false;

    fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// While nothing waits, attempts that run outside their cells stay there.
    fn is_idle(&self) -> bool {
        let index = &self.engine.state.index;
        index.waiting.is_empty() && index.vacant.is_empty()
    }

    fn react(&mut self) -> Result<bool, SimulateError> {
        self.follow()
    }

    fn planned(&mut self, plan: &Plan) -> Result<(), SimulateError> {
        if let Some(at) = plan.again_at.filter(|at| *at > self.engine.now) {
            self.agenda.add(at, Event::Plan);
        }
        Ok(())
    }
}

impl Future {
    pub(super) fn new(fork: &Fork, settings: ForkSettings) -> Self {
        let engine = Engine::at(fork.state.clone(), fork.now, PendingEvents::default());
        let estimator = settings.estimator;
        let live = fork.state.jobs.values().filter(|job| is_live(job));
        let records = live.map(|job| {
            let basis = estimator.basis(&fork.state, job);
            (job.id, Record::new(job, basis))
        });
        Self {
            records: records.collect(),
            began: engine.now,
            ends: engine.now.after(settings.horizon_ms),
            engine,
            agenda: Agenda::default(),
            estimator,
            submitted: Vec::new(),
            blocked: Vec::new(),
            claimants: BTreeMap::new(),
            sums: Sums::default(),
            timeline: Timeline::default(),
            audit_every: settings.audit_every,
        }
    }

    /// Applies the changes; returns their immediate effects.
    pub(super) fn change(&mut self, changes: &[Change]) -> Result<Effects, ForkError> {
        let mut made = Effects::default();
        for (change, number) in changes.iter().zip(0u128..) {
            // Request ids of the cluster's users are random, and the fork has forgotten them anyway.
            let request = RequestKey::of(RequestId(u128::MAX - number));
            let command = change.command(request, self.engine.now);
            let before = self.engine.state.clone();
            let result = self.engine.apply(&command).result;
            let answer = result.map_err(|rejection| ForkError::Refused {
                change: change.describe(),
                rejection: Box::new(rejection),
            })?;
            if matches!(change, Change::Queues(_)) {
                made.queues
                    .extend(queue_effects(&before, &self.engine.state));
            }
            if let Answer::Job(id) = answer
                && let Some(job) = self.engine.state.job(id)
            {
                let basis = self.estimator.basis(&self.engine.state, job);
                self.records.insert(id, Record::new(job, basis));
                self.submitted.push(id);
                made.submitted.push(id);
            }
        }
        Ok(made)
    }

    /// Takes over running work, and runs the planner once for what can be decided immediately.
    pub(super) fn begin(&mut self) -> Result<(), SimulateError> {
        self.follow()?;
        let running = muster_harness::reports::attempts(&self.engine.state)
            .filter(|(job, ..)| is_live(job))
            .map(|(job, unit, _, attempt)| AttemptKey {
                job: job.id,
                unit,
                epoch: attempt.epoch,
            });
        for key in running.collect::<Vec<_>>() {
            self.take_over(key)?;
            self.follow()?;
        }
        self.decide()?;
        self.explain();
        Ok(())
    }

    /// Simulates the next instant; false if nothing more can happen before the horizon.
    pub(super) fn step(&mut self) -> Result<bool, SimulateError> {
        let Some(now) = self.next_instant().filter(|at| *at < self.ends) else {
            self.advance_to(self.ends);
            self.timeline.end(self.passed_ms());
            self.explain();
            return Ok(false);
        };
        self.advance_to(now);
        while let Some(happening) = self.agenda.due(now) {
            self.happen(happening)?;
            self.follow()?;
        }
        self.run_timers()?;
        self.decide()?;
        self.engine.prune()?;
        self.engine.observer.clear();
        Ok(true)
    }

    /// Virtual time since the fork, in milliseconds.
    pub(super) const fn passed_ms(&self) -> u64 {
        self.engine.now.since(self.began)
    }

    fn next_instant(&self) -> Option<TimeMs> {
        let next = [self.agenda.next_at(), self.engine.next_due()];
        let next = next.into_iter().flatten().min()?;
        Some(next.max(self.engine.now.after(1)))
    }

    /// Advances time over a span without changes.
    fn advance_to(&mut self, now: TimeMs) {
        let span_ms = u128::from(now.since(self.engine.now));
        let index = &self.engine.state.index;
        let tops = index.usage.iter().filter(|(name, _)| !name.contains('/'));
        let held: u64 = tops.map(|(_, usage)| usage.total.held.gpus).sum();
        let waiting: usize = index.waiting.values().map(|jobs| jobs.len()).sum();
        self.sums.held += u128::from(held) * span_ms;
        self.sums.waited += waiting as u128 * span_ms;
        self.timeline.set(self.passed_ms(), held, waiting as u64);
        self.engine.now = now;
    }

    fn take_over(&mut self, key: AttemptKey) -> Result<(), SimulateError> {
        let state = &self.engine.state;
        let stop = reports::current(state, key).and_then(|(_, attempt)| attempt.stop.as_ref());
        if let Some(stop) = stop {
            let checkpoint = reports::checkpoint(state, key, &stop.reason);
            self.report(checkpoint.as_slice())?;
            self.report(&reports::stops(&self.engine.state, key))?;
        } else {
            self.report(&reports::starts(&self.engine.state, key))?;
            self.expect_end(key);
        }
        let state = &self.engine.state;
        if let Some((_, attempt)) = reports::current(state, key)
            && reports::has_lost(state, attempt)
        {
            let silent = attempt.tasks.iter().filter_map(|run| state.host(run.host));
            let since = silent.map(|host| host.health_since).max();
            let lease_ms = state.job(key.job).map(|job| job.spec.partition_grace_ms);
            let over = since.unwrap_or(self.began).after(lease_ms.unwrap_or(0));
            self.agenda.add(over, Event::LeaseOver(key));
        }
        Ok(())
    }

    fn expect_end(&mut self, key: AttemptKey) {
        let state = &self.engine.state;
        let Some(job) = state.job(key.job) else {
            return;
        };
        let Some((unit, attempt)) = reports::current(state, key) else {
            return;
        };
        let running = Running { job, unit, attempt };
        let (end, basis) = self.estimator.end(state, running, self.engine.now);
        if let Some(end) = end {
            self.agenda.add(end, Event::WorkDone(key));
        }
        if let Some(record) = self.records.get_mut(&key.job) {
            record.basis = basis;
        }
    }

    fn happen(&mut self, happening: Event) -> Result<(), SimulateError> {
        let state = &self.engine.state;
        let commands = match happening {
            Event::WorkDone(key) => reports::ends(state, key),
            Event::LeaseOver(key) => reports::fences(state, key),
            Event::Plan => Vec::new(),
        };
        self.report(&commands)
    }

    fn report(&mut self, commands: &[Command]) -> Result<(), SimulateError> {
        for command in commands {
            self.engine.carry_out(command)?;
        }
        Ok(())
    }

    /// Plans until nothing is left to decide at this instant.
    fn decide(&mut self) -> Result<(), SimulateError> {
        let plan = self.plan_until_settled()?;
        self.blocked = plan.map_or_else(Vec::new, |plan| plan.blocked);
        Ok(())
    }

    /// Lets workers act on their desired state until there are no more reports; returns whether anything
    /// was released.
    fn follow(&mut self) -> Result<bool, SimulateError> {
        let mut freed = false;
        while let Some(event) = self.engine.observer.pop() {
            freed |= matches!(
                event,
                EventKind::AttemptEnded { .. } | EventKind::MemberVacated { .. }
            );
            self.take(&event)?;
        }
        Ok(freed)
    }

    fn take(&mut self, event: &EventKind) -> Result<(), SimulateError> {
        match event {
            EventKind::AttemptPlaced {
                job, unit, epoch, ..
            } => self.placed(AttemptKey {
                job: *job,
                unit: *unit,
                epoch: *epoch,
            })?,
            EventKind::AttemptStopping {
                job,
                unit,
                epoch,
                cause,
            } => {
                let key = AttemptKey {
                    job: *job,
                    unit: *unit,
                    epoch: *epoch,
                };
                self.stopping(key, &cause.reason)?;
            }
            EventKind::MemberLeaving {
                job,
                unit,
                epoch,
                task,
                ..
            } => {
                let key = AttemptKey {
                    job: *job,
                    unit: *unit,
                    epoch: *epoch,
                };
                self.report(&reports::leaves(&self.engine.state, key, *task))?;
            }
            EventKind::MemberSwapped {
                job, unit, epoch, ..
            } => {
                let key = AttemptKey {
                    job: *job,
                    unit: *unit,
                    epoch: *epoch,
                };
                self.report(&reports::starts(&self.engine.state, key))?;
            }
            EventKind::UnitClaimed { job, victims, .. } => {
                let claims = victims.iter().map(|victim| (*victim, *job));
                self.claimants.extend(claims);
            }
            EventKind::AllocationBasisChanged {
                job,
                allocation_basis: AllocationBasis::Opportunistic,
                ..
            } => {
                if let Some(record) = self.records.get_mut(job) {
                    record.downgrades += 1;
                }
            }
            EventKind::JobFinished { job, .. } => {
                if let Some(record) = self.records.get_mut(job) {
                    record.finished = Some(self.engine.now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn placed(&mut self, key: AttemptKey) -> Result<(), SimulateError> {
        let state = &self.engine.state;
        if let Some((_, attempt)) = reports::current(state, key)
            && let Some(record) = self.records.get_mut(&key.job)
        {
            let placed = || placement(state, attempt);
            record.placed(key.unit, self.engine.now, placed);
        }
        self.report(&reports::starts(&self.engine.state, key))?;
        self.expect_end(key);
        Ok(())
    }

    fn stopping(&mut self, key: AttemptKey, reason: &StopReason) -> Result<(), SimulateError> {
        let checkpoint = reports::checkpoint(&self.engine.state, key, reason);
        if let Some((_, attempt)) = reports::current(&self.engine.state, key) {
            let gpus = gpus_of(attempt);
            let ran_ms = attempt.running_at.map_or(0, |at| self.engine.now.since(at));
            let lost_ms = if checkpoint.is_some() { 0 } else { ran_ms };
            let victim = Victim {
                job: key.job,
                unit: key.unit,
                epoch: key.epoch,
            };
            self.sums.stops += 1;
            self.sums.lost += u128::from(lost_ms) * u128::from(gpus);
            if let Some(record) = self.records.get_mut(&key.job) {
                record.stopped(Stop {
                    unit: key.unit,
                    at: self.engine.now,
                    reason: stop_reason(&self.engine.state, reason),
                    gpus,
                    lost_ms,
                    by: self.claimants.get(&victim).copied(),
                    back: None,
                });
            }
        }
        self.report(checkpoint.as_slice())?;
        self.report(&reports::stops(&self.engine.state, key))
    }

    /// Records why jobs wait: those that the last planning round examined, and the submitted ones.
    fn explain(&mut self) {
        let now = self.engine.now;
        for (id, blocker) in std::mem::take(&mut self.blocked) {
            if let Some(record) = self.records.get_mut(&id) {
                record.waits_for = Some(describe(&blocker, now));
            }
        }
        for id in &self.submitted {
            let record = self.records.get_mut(id);
            let Some(record) = record.filter(|record| record.waits_for.is_none()) else {
                continue;
            };
            let blocker = blocker(&self.engine.state, *id, now);
            record.waits_for = blocker.map(|blocker| describe(&blocker, now));
        }
    }
}

fn is_live(job: &Job) -> bool {
    job.finished_at.is_none()
}

/// Text of a stop reason, with the host's name.
fn stop_reason(state: &State, reason: &StopReason) -> String {
    match reason {
        StopReason::Drain { host } => {
            let name = state.host(*host).map(|host| host.name.to_string());
            format!(
                "host {} is drained",
                name.unwrap_or_else(|| host.to_string())
            )
        }
        reason => reason.to_string(),
    }
}

fn placement(state: &State, attempt: &Attempt) -> Placed {
    let mut placed = Placed::new();
    for run in &attempt.tasks {
        let host = state.host(run.host).map(|host| host.name.to_string());
        let host = host.unwrap_or_else(|| run.host.to_string());
        let gpus = run.gpus.iter().map(ToString::to_string);
        // Tasks on one host are adjacent.
        match placed.last_mut().filter(|(known, _)| *known == host) {
            Some((_, known)) => known.extend(gpus),
            None => placed.push((host, gpus.collect())),
        }
    }
    placed
}
