//! Differences between a worker's report and the state, as commands.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::desired;
use muster_engine::state::{Attempt, Job, Running, State, TaskRun};
use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, HostCommand, TaskOutcome, TaskReport,
};
use muster_model::heartbeat::{TaskStatus, WorkerTaskPhase};
use muster_model::host::Host;
use muster_model::ids::{AttemptEpoch, LeadershipEpoch, TaskKey, UnitId, UnitIndex};
use muster_model::job::Checkpoint;
use muster_model::lifecycle::TaskPhase;
use muster_model::limits;
use muster_model::time::TimeMs;

use crate::reactor::contact::Report;
use crate::reactor::{health, unreadable_checkpoints};

/// Commands that bring the state in line with the report of the worker of `host`; empty if they agree.
///
/// Only tasks that the state has on this host in this attempt count: other claims of a worker have no effect.
pub(super) fn commands(
    state: &State,
    leader: LeadershipEpoch,
    now: TimeMs,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    let mut commands = prepared_tasks(state, leader, host, report);
    commands.extend(started_tasks(state, leader, host, report));
    // All of these before the ends of tasks, which may end their attempts.
    commands.extend(checkpoints(state, leader, host, report));
    commands.extend(damaged(state, leader, host, report));
    commands.extend(unreadable_checkpoints::commands(
        state, leader, host, report,
    ));
    // GPU health first: the end of a task that died of its GPU is attributed by it.
    commands.extend(gpus(leader, host, report));
    commands.extend(health::findings(leader, state, host, report));
    commands.extend(health::ended(leader, state, report, now));
    commands.extend(ended_tasks(state, leader, host, report));
    commands.extend(missing_tasks(state, leader, host, report));
    commands
}

/// Checkpoints that are not committed yet, in the order of their steps.
fn checkpoints(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    // Several tasks of a unit may report the same checkpoint: one commit is enough.
    let mut news: BTreeMap<(UnitId, u64), CheckpointCommit> = BTreeMap::new();
    for task in &report.status.tasks {
        if task.checkpoints.is_empty() {
            continue;
        }
        let Some((job, attempt, _)) = held_here(state, host, task) else {
            continue;
        };
        let known = newest_step(job, task.unit, attempt.epoch);
        let unknown = task
            .checkpoints
            .iter()
            .filter(|reported| known.is_none_or(|known| reported.step > known));
        for reported in unknown {
            news.entry((UnitId::new(job.id, task.unit), reported.step))
                .or_insert_with(|| CheckpointCommit {
                    epoch: task.epoch,
                    step: reported.step,
                    path: reported.path.clone(),
                    size_bytes: reported.size_bytes,
                    digest: reported.digest.clone(),
                    save_ms: reported.save_ms,
                });
        }
    }
    news.into_iter()
        .map(|((unit, _), checkpoint)| {
            Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader,
                job: unit.job,
                unit: unit.unit,
                checkpoint,
            })
        })
        .collect()
}

/// Checkpoints that tasks could not read and that are not marked damaged. A task names a step, which means
/// the newest checkpoint of that step written by an earlier attempt: a later commit of the current attempt
/// under the same step is a different checkpoint.
fn damaged(state: &State, leader: LeadershipEpoch, host: &Host, report: &Report) -> Vec<Command> {
    // Several tasks of a unit may report the same checkpoint: one command is enough.
    let mut news: BTreeMap<(UnitId, u64), Command> = BTreeMap::new();
    for task in &report.status.tasks {
        if task.damaged.is_empty() {
            continue;
        }
        let Some((job, attempt, run)) = held_here(state, host, task) else {
            continue;
        };
        let joined_at = attempt.joined(run.task).map(|joined| joined.placed_at);
        let known = job
            .unit(task.unit)
            .map_or(&[][..], |unit| &unit.checkpoints);
        for damage in &task.damaged {
            let is_earlier = |it: &Checkpoint| {
                // A member that joined later may restore a checkpoint of its own gang.
                it.epoch < attempt.epoch || joined_at.is_some_and(|at| it.committed_at <= at)
            };
            let is_meant = |it: &&Checkpoint| it.step == damage.step && is_earlier(it);
            let meant = known.iter().rev().find(is_meant);
            let Some(checkpoint) = meant.filter(|checkpoint| checkpoint.damaged.is_none()) else {
                continue;
            };
            let command = Command::Checkpoint(CheckpointCommand::MarkCheckpointDamaged {
                leader,
                job: job.id,
                unit: task.unit,
                reporter: attempt.epoch,
                epoch: checkpoint.epoch,
                step: damage.step,
                reason: limits::shortened(&damage.reason).to_owned(),
            });
            news.entry((UnitId::new(job.id, task.unit), damage.step))
                .or_insert(command);
        }
    }
    news.into_values().collect()
}

/// Step of the newest checkpoint that this attempt has committed.
fn newest_step(job: &Job, unit: UnitIndex, epoch: AttemptEpoch) -> Option<u64> {
    let checkpoints = &job.unit(unit)?.checkpoints;
    let of_attempt = checkpoints
        .iter()
        .rev()
        .find(|checkpoint| checkpoint.epoch == epoch);
    of_attempt.map(|checkpoint| checkpoint.step)
}

/// Tasks of the report that were prepared since the last report.
fn prepared_tasks(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    outcomes(
        state,
        leader,
        host,
        report,
        |known, reported| match reported {
            WorkerTaskPhase::Prepared { master_port } if known == TaskPhase::Assigned => {
                Some(TaskOutcome::Prepared {
                    master_port: *master_port,
                })
            }
            _ => None,
        },
    )
}

/// Tasks of the report that started since the last report. A task reported only as ended was running in
/// between, unless it could not be started: it ended within one heartbeat period.
fn started_tasks(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    outcomes(state, leader, host, report, |known, reported| {
        let ran = match reported {
            WorkerTaskPhase::Running => true,
            WorkerTaskPhase::Exited(exit) => exit.start_error.is_none(),
            // A stopped task may never have run: its exit decides.
            WorkerTaskPhase::Starting
            | WorkerTaskPhase::Prepared { .. }
            | WorkerTaskPhase::Stopping
            | WorkerTaskPhase::Gone { .. } => false,
        };
        (ran && !known.has_begun()).then_some(TaskOutcome::Started)
    })
}

/// Tasks of the report that ended since the last report.
fn ended_tasks(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    outcomes(state, leader, host, report, |known, reported| {
        if known.is_terminal() {
            return None;
        }
        match reported {
            WorkerTaskPhase::Starting
            | WorkerTaskPhase::Prepared { .. }
            | WorkerTaskPhase::Running
            | WorkerTaskPhase::Stopping => None,
            WorkerTaskPhase::Exited(exit) => Some(TaskOutcome::Exited(exit.clone())),
            WorkerTaskPhase::Gone { detail } => Some(TaskOutcome::Gone {
                detail: detail.clone(),
            }),
        }
    })
}

/// Outcomes of the reported tasks, from the phase in the state and the phase reported by the worker.
fn outcomes(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
    outcome: impl Fn(TaskPhase, &WorkerTaskPhase) -> Option<TaskOutcome>,
) -> Vec<Command> {
    let tasks = report.status.tasks.iter();
    tasks
        .filter_map(|task| {
            let (job, attempt, run) = held_here(state, host, task)?;
            Some(Command::ReportTask(TaskReport {
                leader,
                job: job.id,
                unit: task.unit,
                epoch: attempt.epoch_of(run.task),
                task: run.task,
                outcome: outcome(run.phase, &task.phase)?,
            }))
        })
        .collect()
}

/// The task in the state, if it has this attempt and this host.
pub(super) fn held_here<'a>(
    state: &'a State,
    host: &Host,
    task: &TaskStatus,
) -> Option<(&'a Job, &'a Attempt, &'a TaskRun)> {
    let job = state.job(task.key.job)?;
    let attempt = job.unit(task.unit)?.attempt.as_deref()?;
    let run = attempt.task(task.key.task)?;
    let is_held = attempt.epoch_of(run.task) == task.epoch && run.host == host.id;
    is_held.then_some((job, attempt, run))
}

/// Tasks that the worker does not hold although the desired state it had when it reported contains them.
fn missing_tasks(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    let reported: BTreeSet<_> = report
        .status
        .tasks
        .iter()
        .map(|task| (task.key, task.epoch))
        .collect();
    let mut commands = Vec::new();
    for running in desired::units_on(state, host.id) {
        let Running {
            job,
            index: unit,
            attempt,
            ..
        } = running;
        // The epoch is the revision of the placement: an older desired state does not contain it.
        let is_known = |epoch: AttemptEpoch| epoch.get() <= report.desired_revision.get();
        if !is_known(attempt.epoch) {
            continue;
        }
        let missing = attempt.tasks.iter().filter(|run| {
            let epoch = attempt.epoch_of(run.task);
            let key = TaskKey {
                job: job.id,
                task: run.task,
            };
            run.host == host.id
                && !run.phase.is_terminal()
                && is_known(epoch)
                && !reported.contains(&(key, epoch))
        });
        commands.extend(missing.map(|run| {
            Command::ReportTask(TaskReport {
                leader,
                job: job.id,
                unit,
                epoch: attempt.epoch_of(run.task),
                task: run.task,
                outcome: TaskOutcome::Gone {
                    detail: "its worker does not hold it".to_owned(),
                },
            })
        }));
    }
    commands
}

/// GPUs of the host whose reported health differs from the state.
fn gpus(leader: LeadershipEpoch, host: &Host, report: &Report) -> Vec<Command> {
    let reported = report.status.gpus.iter();
    reported
        .filter(|(uuid, health)| {
            let known = host.gpus.iter().find(|gpu| gpu.uuid == *uuid);
            known.is_some_and(|gpu| gpu.health != *health)
        })
        .map(|(gpu, health)| {
            Command::Host(HostCommand::SetGpuHealth {
                leader,
                host: host.id,
                gpu: *gpu,
                health: health.clone(),
            })
        })
        .collect()
}
