//! State of one simulated worker.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::worker_task_phase::{Kind as Phase, Plain};
use tokio::time::Instant;
use uuid::Uuid;

use crate::fleet::TaskBehavior;

/// Exit code of a process that ended on SIGTERM.
const EXIT_TERMINATED: i32 = 143;

/// A task and its reported state.
struct HostedTask {
    unit: u32,
    epoch: u64,
    phase: Phase,
}

/// A simulated host that starts no processes.
pub(super) struct SimulatedHost {
    number: u32,
    worker_id: Uuid,
    gpus: Vec<String>,
    /// By job and task.
    tasks: BTreeMap<(u64, u32), HostedTask>,
    /// Newest accepted leadership.
    pub(super) leader: u64,
    desired_revision: u64,
    /// Unacknowledged finding, with its time.
    found: Option<(v1::Finding, Instant)>,
    /// Number of findings so far.
    findings: u64,
}

impl SimulatedHost {
    pub(super) fn new(number: u32, gpus: u32) -> Self {
        let gpu = |index| format!("GPU-00000000-0000-{index:04x}-0000-{number:012x}");
        Self {
            number,
            worker_id: Uuid::new_v4(),
            gpus: (0..gpus).map(gpu).collect(),
            tasks: BTreeMap::new(),
            leader: 0,
            desired_revision: 0,
            found: None,
            findings: 0,
        }
    }

    /// Position among all workers.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// Name of the host in the cluster.
    pub(super) fn name(&self) -> String {
        format!("sim{:05}", self.number)
    }

    pub(super) fn hello(&self) -> v1::Hello {
        let gpus = (0..)
            .zip(&self.gpus)
            .map(|(index, uuid)| v1::GpuDescription {
                uuid: uuid.clone(),
                index,
                model: "H100".to_owned(),
                memory_mib: 81_920,
            });
        let registration = v1::HostRegistration {
            name: self.name(),
            address: "127.0.0.1".to_owned(),
            worker_id: self.worker_id.to_string(),
            incarnation: 1,
            boot_id: "simulated".to_owned(),
            gpus: gpus.collect(),
            cpus_milli: 128_000,
            memory_mib: 2_097_152,
            ..v1::HostRegistration::default()
        };
        v1::Hello {
            registration: Some(registration),
            leadership_epoch: self.leader,
            version: "bench".to_owned(),
            can_hold: false,
        }
    }

    /// Takes over the desired state; returns the number of new tasks.
    pub(super) fn apply_desired_state(
        &mut self,
        desired: v1::DesiredState,
        behavior: TaskBehavior,
    ) -> u64 {
        self.desired_revision = desired.revision;
        let mut kept = BTreeMap::new();
        let mut new = 0;
        for task in desired.tasks {
            if is_final(task.acknowledged()) {
                continue;
            }
            let key = (task.job_id, task.task);
            let known = self
                .tasks
                .remove(&key)
                .filter(|held| held.epoch == task.epoch);
            new += u64::from(known.is_none());
            let mut held = known.unwrap_or_else(|| HostedTask {
                unit: task.unit,
                epoch: task.epoch,
                phase: first_phase(behavior),
            });
            if task.stop.is_some() && !matches!(held.phase, Phase::Exited(_)) {
                held.phase = exited(EXIT_TERMINATED);
            }
            kept.insert(key, held);
        }
        self.tasks = kept;
        new
    }

    /// Ends every task successfully.
    pub(super) fn end_tasks(&mut self) {
        for held in self.tasks.values_mut() {
            if !matches!(held.phase, Phase::Exited(_)) {
                held.phase = exited(0);
            }
        }
    }

    /// Reports a double-bit error of its first GPU.
    pub(super) fn report_finding(&mut self) {
        self.findings += 1;
        let gpu = self.gpus.first().cloned().unwrap_or_default();
        let finding = v1::Finding {
            sequence: self.findings,
            rule: "xid".to_owned(),
            component: Some(v1::Component {
                kind: Some(v1::component::Kind::Gpu(gpu)),
            }),
            severity: "fatal".to_owned(),
            metric: "policy".to_owned(),
            measured: 3,
            code: Some(48),
            evidence: "NVRM: Xid (PCI:0000:10:00): 48".to_owned(),
            ..v1::Finding::default()
        };
        self.found = Some((finding, Instant::now()));
    }

    /// Time since the finding that the leader now acknowledges.
    pub(super) fn acknowledged(&mut self, desired: &v1::DesiredState) -> Option<Duration> {
        let acknowledged = desired.health.as_ref().map_or(0, |health| health.heard);
        let (_, at) = self
            .found
            .take_if(|(finding, _)| finding.sequence <= acknowledged)?;
        Some(at.elapsed())
    }

    /// Builds a heartbeat, with the worker's complete state if that changed.
    pub(super) fn heartbeat(
        &self,
        sequence: u64,
        acknowledged: u64,
        has_changed: bool,
    ) -> v1::Heartbeat {
        v1::Heartbeat {
            sequence,
            acknowledged,
            leadership_epoch: self.leader,
            desired_revision: self.desired_revision,
            status: has_changed.then(|| self.status()),
        }
    }

    fn status(&self) -> v1::WorkerStatus {
        let tasks = self.tasks.iter().map(|((job, task), held)| v1::TaskStatus {
            job_id: *job,
            task: *task,
            unit: held.unit,
            epoch: held.epoch,
            phase: Some(v1::WorkerTaskPhase {
                kind: Some(held.phase.clone()),
            }),
            ..v1::TaskStatus::default()
        });
        let gpus = self.gpus.iter().map(|uuid| v1::GpuStatus {
            uuid: uuid.clone(),
            health: Some(v1::GpuHealth { fault: None }),
        });
        v1::WorkerStatus {
            tasks: tasks.collect(),
            gpus: gpus.collect(),
            findings: self
                .found
                .iter()
                .map(|(finding, _)| finding.clone())
                .collect(),
            ..v1::WorkerStatus::default()
        }
    }
}

fn first_phase(behavior: TaskBehavior) -> Phase {
    match behavior {
        TaskBehavior::Run => Phase::Running(Plain {}),
        TaskBehavior::End => exited(0),
    }
}

fn exited(code: i32) -> Phase {
    Phase::Exited(v1::Exit {
        code: Some(code),
        ..v1::Exit::default()
    })
}

fn is_final(phase: v1::TaskPhase) -> bool {
    matches!(
        phase,
        v1::TaskPhase::Exited | v1::TaskPhase::Gone | v1::TaskPhase::Fenced
    )
}
