//! Samples of the fourth version: lifecycles of jobs, detailed ends, damaged checkpoints.

use std::sync::Arc;

use muster_engine::state::State;
use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, Exit, LastMeasurements, MemoryUsage,
    SignalSender, TaskOutcome, TaskReport,
};
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};
use muster_model::spec::{
    CheckpointPolicy, Condition, CpuBinding, Dependency, Execution, ExitMatch, ExitMeaning,
    ExitRule, JobSpec, Lifecycle, Pipeline, PipelineDependency, PipelineJob, Secret, SecretForm,
    StopWarning, SuspendMode, Ulimit, UlimitKind,
};

use crate::frozen::samples::{JOB, LEADER, REQUEST, exit, spec};

/// A lifecycle with every field.
fn lifecycle() -> Lifecycle {
    let after = |job, when| Dependency {
        job: JobId(job),
        when,
    };
    let rule = |on, then| ExitRule { on, then };
    Lifecycle {
        barrier: None,
        suspend: SuspendMode::Keep,
        tasks_at_once_max: Some(8),
        after: vec![
            after(3, Condition::Succeeded),
            after(4, Condition::Ended),
            after(5, Condition::Failed),
        ],
        rules: vec![
            rule(ExitMatch::Codes { first: 3, last: 9 }, ExitMeaning::Fail),
            rule(ExitMatch::Signal(11), ExitMeaning::RetryFree),
            rule(ExitMatch::OutOfMemory, ExitMeaning::Retry),
            rule(ExitMatch::Codes { first: 2, last: 2 }, ExitMeaning::Succeed),
        ],
        local_retries_max: 2,
        attempts_without_progress_max: Some(3),
        checkpoints: Some(CheckpointPolicy {
            kept_min: 2,
            kept_every: Some(1_000),
            remove: true,
            bad_max: 3,
            restore_window_ms: 600_000,
        }),
        ..Lifecycle::default()
    }
}

/// A lifecycle with a signal before SIGTERM.
fn warned() -> Lifecycle {
    Lifecycle {
        warning: Some(StopWarning {
            signal: 10,
            to_all: true,
            lead_ms: Some(60_000),
        }),
        ..Lifecycle::default()
    }
}

/// Execution options with every field.
fn execution() -> Execution {
    let secret = |name: &str, form| Secret {
        name: name.to_owned(),
        form,
    };
    let limit = |soft, hard| Ulimit { soft, hard };
    Execution {
        ulimits: [
            (UlimitKind::Nofile, limit(Some(4_096), Some(65_536))),
            (UlimitKind::Memlock, limit(None, None)),
        ]
        .into(),
        pids_max: Some(512),
        secrets: vec![
            secret("wandb", SecretForm::Variable("WANDB_API_KEY".to_owned())),
            secret("deploy-key", SecretForm::File("DEPLOY_KEY_FILE".to_owned())),
        ],
        binding: CpuBinding::Numa,
        container: None,
    }
}

/// An exit with every field.
fn detailed() -> Exit {
    Exit {
        memory: Some(MemoryUsage {
            limit_bytes: 1 << 30,
            peak_bytes: (1 << 30) - 1,
        }),
        sender: Some(SignalSender::Kernel),
        evidence: "CUDA out of memory".to_owned(),
        ..exit()
    }
}

/// Commands of the fourth version, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let spec = JobSpec {
        lifecycle: lifecycle(),
        ..super::spec()
    };
    let warned_spec = JobSpec {
        lifecycle: warned(),
        ..super::spec()
    };
    let mut executed = super::spec();
    executed.groups[0].execution = execution();
    vec![
        (
            "submit_job_with_execution",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(executed),
            },
        ),
        (
            "submit_job_with_lifecycle",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(spec),
            },
        ),
        (
            "submit_job_with_warning",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(warned_spec),
            },
        ),
        (
            "report_task_exited_in_detail",
            Command::ReportTask(TaskReport {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                epoch: AttemptEpoch(1_000_001),
                task: TaskIndex(3),
                outcome: TaskOutcome::Exited(detailed()),
            }),
        ),
        (
            "report_task_exited_last_seen",
            Command::ReportTask(TaskReport {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                epoch: AttemptEpoch(1_000_001),
                task: TaskIndex(3),
                outcome: TaskOutcome::Exited(Exit {
                    last_measurements: Some(Box::new(LastMeasurements {
                        busy_permille: Some(0),
                        leftover_mib: Some(440),
                        step: Some(1_200),
                    })),
                    ..exit()
                }),
            }),
        ),
        (
            "commit_checkpoint_with_save_time",
            Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                checkpoint: CheckpointCommit {
                    epoch: AttemptEpoch(1_000_001),
                    step: 4_000,
                    path: "/data/run/step_4000".to_owned(),
                    size_bytes: 14_000_000_000,
                    digest: "xxh3:00ff".to_owned(),
                    save_ms: Some(61_000),
                },
            }),
        ),
        (
            "spoil_checkpoint",
            Command::Checkpoint(CheckpointCommand::MarkCheckpointDamaged {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                reporter: AttemptEpoch(1_000_009),
                epoch: AttemptEpoch(1_000_001),
                step: 4_000,
                reason: "its digest differs".to_owned(),
            }),
        ),
        ("submit_pipeline", pipeline()),
    ]
}

/// Two jobs, of which the second waits for the first.
fn pipeline() -> Command {
    let job = |name: &str, after| PipelineJob {
        spec: Arc::new(JobSpec {
            name: name.to_owned(),
            ..spec()
        }),
        after,
    };
    let when = Condition::Failed;
    let after = vec![PipelineDependency { position: 0, when }];
    Command::SubmitPipeline {
        request: REQUEST,
        pipeline: Arc::new(Pipeline {
            name: "nightly".to_owned(),
            jobs: vec![job("train", Vec::new()), job("alarm", after)],
        }),
    }
}

/// One event of every kind of the fourth version.
pub(crate) fn kinds() -> Vec<EventKind> {
    vec![
        EventKind::JobEligible { job: JOB },
        EventKind::CheckpointDamaged {
            job: JOB,
            unit: UnitIndex(0),
            epoch: AttemptEpoch(21),
            step: 4_000,
            reason: "its digest differs".to_owned(),
        },
    ]
}

/// The first version's state, with a job that has a lifecycle and a damaged checkpoint.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    let job = parts.jobs.iter_mut().find(|job| !job.units.is_empty());
    let job = job.expect("a job of the sample has a unit with a history");
    job.spec = Arc::new(JobSpec {
        lifecycle: Lifecycle {
            after: Vec::new(),
            ..lifecycle()
        },
        ..job.spec.as_ref().clone()
    });
    let keys: Vec<_> = job.units.keys().copied().collect();
    for index in keys {
        let Some(unit) = job.units.get_mut(&index).map(Arc::make_mut) else {
            continue;
        };
        for checkpoint in &mut unit.checkpoints {
            checkpoint.save_ms = Some(61_000);
            checkpoint.damaged = Some("its digest differs".to_owned());
        }
        for past in &mut unit.past {
            past.exit = Some(detailed());
        }
    }
    State::restore(parts)
}
