//! What a worker's report says that the state does not say yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::beat::{TaskStatus, WorkerTaskPhase};
use crate::command::{CheckpointCommit, Command, TaskOutcome, TaskReport};
use crate::desired;
use crate::ids::{AttemptEpoch, JobId, LeadershipEpoch, UnitIndex};
use crate::lifecycle::TaskPhase;
use crate::reactor::contact::Report;
use crate::state::{Attempt, Host, Job, State, TaskRun};

/// The commands that bring the state to what the worker of `host` reports; none if it says the same.
///
/// Only tasks count that the state has on this very host in this very attempt: whatever else a worker
/// claims changes nothing.
pub(super) fn commands(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    let mut commands = checkpoints(state, leader, host, report);
    commands.extend(reported_tasks(state, leader, host, report));
    commands.extend(missing_tasks(state, leader, host, report));
    commands.extend(gpus(leader, host, report));
    commands
}

/// Checkpoints that are not committed yet; before the ends of tasks, which may end their attempts.
fn checkpoints(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    // Several tasks of a unit may report the same checkpoint: one commit is enough.
    let mut newest: BTreeMap<(JobId, UnitIndex), CheckpointCommit> = BTreeMap::new();
    for told in &report.status.tasks {
        let (Some(reported), Some((job, attempt, _))) =
            (&told.checkpoint, held_here(state, host, told))
        else {
            continue;
        };
        let commit = CheckpointCommit {
            epoch: attempt.epoch,
            step: reported.step,
            path: reported.path.clone(),
            size_bytes: reported.size_bytes,
            digest: reported.digest.clone(),
        };
        let known = newest_step(job, told.unit, attempt.epoch);
        let pending = newest.get(&(job.id, told.unit)).map(|commit| commit.step);
        if known.max(pending).is_none_or(|known| commit.step > known) {
            newest.insert((job.id, told.unit), commit);
        }
    }
    newest
        .into_iter()
        .map(|((job, unit), checkpoint)| Command::CommitCheckpoint {
            leader,
            job,
            unit,
            checkpoint,
        })
        .collect()
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

/// What became of the tasks that the report names.
fn reported_tasks(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    let told = report.status.tasks.iter();
    told.filter_map(|told| {
        let (job, attempt, run) = held_here(state, host, told)?;
        Some(Command::ReportTask(TaskReport {
            leader,
            job: job.id,
            unit: told.unit,
            epoch: attempt.epoch,
            task: run.task,
            outcome: outcome(run.phase, &told.phase)?,
        }))
    })
    .collect()
}

/// What a worker's phase says that the state's phase does not.
fn outcome(known: TaskPhase, told: &WorkerTaskPhase) -> Option<TaskOutcome> {
    if known.is_terminal() {
        return None;
    }
    match told {
        WorkerTaskPhase::Running if known == TaskPhase::Assigned => Some(TaskOutcome::Started),
        // One that was stopped may never have run: its end will tell.
        WorkerTaskPhase::Running | WorkerTaskPhase::Starting | WorkerTaskPhase::Stopping => None,
        WorkerTaskPhase::Exited(exit) => Some(TaskOutcome::Exited(exit.clone())),
        WorkerTaskPhase::Gone { detail } => Some(TaskOutcome::Gone {
            detail: detail.clone(),
        }),
    }
}

/// The task as the state has it, if it has it in this attempt and on this host.
fn held_here<'a>(
    state: &'a State,
    host: &Host,
    told: &TaskStatus,
) -> Option<(&'a Job, &'a Attempt, &'a TaskRun)> {
    let job = state.job(told.key.job)?;
    let attempt = job.unit(told.unit)?.attempt.as_deref()?;
    let run = attempt.task(told.key.task)?;
    let is_held = attempt.epoch == told.epoch && run.host == host.id;
    is_held.then_some((job, attempt, run))
}

/// Tasks that the worker does not hold although it knew when it reported that it should.
fn missing_tasks(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    let told: BTreeSet<_> = report
        .status
        .tasks
        .iter()
        .map(|task| (task.key.job, task.key.task, task.epoch))
        .collect();
    let mut commands = Vec::new();
    for (job, unit, attempt) in desired::units_on(state, host.id) {
        // The epoch is the revision of the placement: an older desired state does not hold it.
        if attempt.epoch.get() > report.desired_revision.get() {
            continue;
        }
        let missing = attempt.tasks.iter().filter(|run| {
            run.host == host.id
                && !run.phase.is_terminal()
                && !told.contains(&(job.id, run.task, attempt.epoch))
        });
        commands.extend(missing.map(|run| {
            Command::ReportTask(TaskReport {
                leader,
                job: job.id,
                unit,
                epoch: attempt.epoch,
                task: run.task,
                outcome: TaskOutcome::Gone {
                    detail: "its worker does not hold it".to_owned(),
                },
            })
        }));
    }
    commands
}

/// GPUs of the host whose health is another one than the state's.
fn gpus(leader: LeadershipEpoch, host: &Host, report: &Report) -> Vec<Command> {
    let told = report.status.gpus.iter();
    told.filter(|(uuid, health)| {
        let known = host.gpus.iter().find(|gpu| gpu.uuid == *uuid);
        known.is_some_and(|gpu| gpu.health != *health)
    })
    .map(|(gpu, health)| Command::SetGpuHealth {
        leader,
        host: host.id,
        gpu: *gpu,
        health: health.clone(),
    })
    .collect()
}
