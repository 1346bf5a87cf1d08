//! Effect of the events since the last check on the leader: hosts to notify, and whether to plan.

use std::collections::BTreeSet;

use muster_engine::state::State;
use muster_model::command::{BlockTarget, GpuHealth, HostHealth, StopReason};
use muster_model::event::{EventKind, HealthNote};
use muster_model::health::{Charge, Class, Component, ComponentKind, Step};
use muster_model::ids::{HostId, JobId, Revision, UnitIndex};

use crate::metrics::outermost_queue;

/// Summary of the events of several revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Hosts whose desired state may have changed.
    pub(super) hosts: BTreeSet<HostId>,
    /// True if the events are no longer kept: every host may have changed.
    pub(super) all_hosts: bool,
    /// True if an event may let waiting work be placed.
    pub(super) plan: bool,
    /// Units placed.
    pub(super) placed: u64,
    /// The outermost queue of each unit that was placed and still holds its placement, with the milliseconds
    /// that it waited.
    pub(super) waits_ms: Vec<(String, u64)>,
    /// Gangs released from their barrier.
    pub(super) released: u64,
    /// Milliseconds from placement to running, for each gang that now runs.
    pub(super) gang_starts_ms: Vec<u64>,
    /// Units restarted in place.
    pub(super) retried: u64,
    /// Claims made.
    pub(super) claimed: u64,
    /// Claims dropped.
    pub(super) claims_dropped: u64,
    /// Attempts preempted.
    pub(super) preempted: u64,
    /// Attempts moved for defragmentation.
    pub(super) moved: u64,
    /// GPU-milliseconds lost by moves.
    pub(super) moves_lost_gpu_ms: u64,
    /// Failed attempts with known or presumed attribution: class, payer, and the deciding step.
    pub(super) attributed: Vec<(Class, Charge, Step)>,
    /// Components that rules took out of placement: kind and rule.
    pub(super) blocked: Vec<(ComponentKind, String)>,
    /// Components that returned to placement, and whether an operator returned them or an operator's block
    /// ended.
    pub(super) unblocked: Vec<(Component, bool)>,
    /// Health notifications to operators.
    pub(super) noted: Vec<HealthNote>,
}

impl Changes {
    /// Summarizes the events after `revision`.
    pub(super) fn since(state: &State, revision: Revision) -> Self {
        let mut changes = Self::default();
        match state.events.after(revision) {
            Ok(revisions) => {
                for event in revisions.flat_map(|(_, events)| events.iter()) {
                    changes.add(state, &event.kind);
                }
            }
            Err(_) => {
                changes.all_hosts = true;
                changes.plan = true;
            }
        }
        changes
    }

    fn add(&mut self, state: &State, kind: &EventKind) {
        match kind {
            EventKind::CheckpointsForgotten {
                job,
                unit,
                removed: true,
                ..
            } => self.add_attempt(state, *job, *unit),
            EventKind::UnitRetried { .. } => self.retried += 1,
            EventKind::MemberLeaving { .. }
            | EventKind::MemberVacated { .. }
            | EventKind::MemberSwapped { .. }
            | EventKind::TaskPrepared { .. } => self.add_member_fact(state, kind),
            EventKind::AttemptPlaced { .. }
            | EventKind::GangReleased { .. }
            | EventKind::AttemptRunning { .. }
            | EventKind::AttemptStopping { .. }
            | EventKind::AttemptEnded { .. } => self.add_attempt_fact(state, kind),
            EventKind::UnitClaimed { .. }
            | EventKind::UnitsMoved { .. }
            | EventKind::ClaimDropped { .. } => self.add_claim_fact(kind),
            EventKind::TaskExited { host, .. } | EventKind::TaskLost { host, .. } => {
                self.hosts.insert(*host);
            }
            EventKind::HealthChanged { .. } | EventKind::HealthNoted { .. } => {
                self.add_health_fact(kind);
            }
            EventKind::HostRegistered { host, .. } => {
                self.plan = true;
                self.hosts.insert(*host);
            }
            EventKind::Unblocked { target, .. } => self.add_unblocked(state, target),
            EventKind::JobSuspended { job, .. } | EventKind::JobResumed { job, .. } => {
                self.plan |= matches!(kind, EventKind::JobResumed { .. });
                self.add_job(state, *job);
            }
            EventKind::JobSubmitted { .. }
            | EventKind::JobFinished { .. }
            | EventKind::UnitRequeued { .. }
            | EventKind::BlockPlanned { .. }
            | EventKind::QueueSet { .. }
            | EventKind::QueuesConfigured { .. }
            | EventKind::TopologySet { .. }
            | EventKind::LevelsChanged { .. }
            | EventKind::HostCellsDoubted { .. }
            | EventKind::HostHealthChanged {
                health: HostHealth::Up,
                ..
            }
            | EventKind::GpuHealthChanged {
                health: GpuHealth::Healthy,
                ..
            }
            | EventKind::JobEligible { .. } => self.plan = true,
            EventKind::LeadershipStarted { .. }
            | EventKind::JobCancelRequested { .. }
            | EventKind::JobPruned { .. }
            | EventKind::JobDefaultsSet { .. }
            | EventKind::ReplicaChanged { .. }
            | EventKind::AccessChanged { .. }
            | EventKind::TaskStarted { .. }
            | EventKind::HostHealthChanged { .. }
            | EventKind::GpuHealthChanged { .. }
            | EventKind::Blocked { .. }
            | EventKind::CheckpointCommitted { .. }
            | EventKind::CheckpointDamaged { .. }
            | EventKind::CheckpointsForgotten { .. }
            | EventKind::AllocationBasisChanged { .. } => {}
        }
    }

    fn add_claim_fact(&mut self, kind: &EventKind) {
        match kind {
            EventKind::UnitClaimed { .. } => self.claimed += 1,
            EventKind::UnitsMoved {
                moved, cost_gpu_ms, ..
            } => {
                self.moved += moved.len() as u64;
                self.moves_lost_gpu_ms = self.moves_lost_gpu_ms.saturating_add(*cost_gpu_ms);
            }
            EventKind::ClaimDropped { .. } => {
                self.claims_dropped += 1;
                self.plan = true;
            }
            _ => {}
        }
    }

    fn add_attempt_fact(&mut self, state: &State, kind: &EventKind) {
        match kind {
            EventKind::AttemptPlaced {
                job, unit, hosts, ..
            } => {
                self.placed += 1;
                self.waits_ms.extend(wait_ms(state, *job, *unit));
                self.hosts.extend(hosts);
            }
            EventKind::GangReleased { hosts, .. } => {
                self.released += 1;
                self.hosts.extend(hosts);
            }
            EventKind::AttemptRunning { job, unit, .. } => {
                self.gang_starts_ms
                    .extend(gang_start_ms(state, *job, *unit));
            }
            EventKind::AttemptEnded {
                hosts, attribution, ..
            } => {
                self.plan = true;
                self.hosts.extend(hosts);
                let attribution = attribution.as_deref();
                self.attributed.extend(
                    attribution.map(|attribution| {
                        (attribution.class, attribution.charge, attribution.step)
                    }),
                );
            }
            EventKind::AttemptStopping {
                job, unit, cause, ..
            } => {
                self.preempted += u64::from(cause.reason == StopReason::Preempted);
                self.add_attempt(state, *job, *unit);
            }
            _ => {}
        }
    }

    fn add_health_fact(&mut self, kind: &EventKind) {
        match kind {
            EventKind::HealthChanged {
                component,
                host,
                from,
                to,
                rule,
                ..
            } => {
                self.plan |= to.accepts_work();
                self.hosts.insert(*host);
                if from.accepts_work() && !to.accepts_work() && !rule.is_empty() {
                    self.blocked.push((component.kind(), rule.clone()));
                }
                if !from.accepts_work() && to.accepts_work() {
                    self.unblocked.push((component.clone(), false));
                }
            }
            EventKind::HealthNoted { note, .. } => self.noted.push(*note),
            _ => {}
        }
    }

    /// An operator returned a component, or an operator's block ended. Blocks by rules are counted by their
    /// own events.
    fn add_unblocked(&mut self, state: &State, target: &BlockTarget) {
        self.plan = true;
        let component = match target {
            BlockTarget::Gpu(gpu) => Some(Component::Gpu(*gpu)),
            BlockTarget::Host(name) => {
                let id = state.host_names.get(name.as_str());
                id.map(|id| Component::Host(*id))
            }
        };
        let Some(component) = component else { return };
        match self.unblocked.last_mut() {
            Some((last, by_admin)) if *last == component => *by_admin = true,
            _ => self.unblocked.push((component, true)),
        }
    }

    fn add_member_fact(&mut self, state: &State, kind: &EventKind) {
        match kind {
            EventKind::MemberLeaving { host, .. } => {
                self.hosts.insert(*host);
            }
            EventKind::MemberVacated { host, .. } => {
                // The lost member's resources are free, and its place is to be filled.
                self.plan = true;
                self.hosts.insert(*host);
            }
            // The other members must learn the location of the new one.
            EventKind::MemberSwapped { job, unit, .. } => self.add_attempt(state, *job, *unit),
            EventKind::TaskPrepared {
                job,
                unit,
                task,
                host,
                ..
            } => {
                let unit = state.job(*job).and_then(|job| job.unit(*unit));
                let attempt = unit.and_then(|unit| unit.attempt.as_deref());
                // Its gang was released earlier: it may begin.
                if attempt.is_some_and(|attempt| attempt.joined(*task).is_some()) {
                    self.hosts.insert(*host);
                }
            }
            _ => {}
        }
    }

    /// Adds all hosts that run a part of a job.
    fn add_job(&mut self, state: &State, job: JobId) {
        let units = state.job(job).map(|job| job.units.values());
        let attempts = units
            .into_iter()
            .flatten()
            .filter_map(|unit| unit.attempt.as_deref());
        for attempt in attempts {
            self.hosts
                .extend(attempt.tasks.iter().map(|task| task.host));
        }
    }

    /// Adds the hosts of an attempt. One that has ended meanwhile has its own event that names its hosts.
    fn add_attempt(&mut self, state: &State, job: JobId, unit: UnitIndex) {
        let attempt = state
            .job(job)
            .and_then(|job| job.unit(unit))
            .and_then(|unit| unit.attempt.as_deref());
        if let Some(attempt) = attempt {
            self.hosts
                .extend(attempt.tasks.iter().map(|task| task.host));
        }
    }
}

/// The outermost queue of a unit, and the milliseconds from its submission, or from the end of the previous
/// attempt, to its placement; `None` if the attempt has ended meanwhile.
fn wait_ms(state: &State, job: JobId, unit: UnitIndex) -> Option<(String, u64)> {
    let job = state.job(job)?;
    let unit = job.unit(unit)?;
    let placed_at = unit.attempt.as_deref()?.placed_at;
    let since = unit
        .past
        .last()
        .map_or(job.submitted_at, |past| past.ended_at);
    let queue = outermost_queue(state, &job.spec.queue).to_owned();
    Some((queue, placed_at.since(since)))
}

/// Milliseconds from a gang's placement until it ran; `None` for other units, and if the attempt has ended
/// meanwhile.
fn gang_start_ms(state: &State, job: JobId, unit: UnitIndex) -> Option<u64> {
    let job = state.job(job).filter(|job| job.spec.gang)?;
    let attempt = job.unit(unit)?.attempt.as_deref()?;
    Some(attempt.running_at?.since(attempt.placed_at))
}
