//! Jobs of the demo: one training, and a stream of small ones from the trace.

use std::path::Path;
use std::time::Duration;

use muster_proto::v1;

use crate::demo::options::{RANKS, RANKS_PER_HOST_MAX, STEP_MS, TRAINING};
use crate::workload::TraceJob;
use crate::workload::jobs::{group, job};

/// Minimum and maximum run time of the stream's jobs: days are cut even in a fast replay.
const RUN_MIN: Duration = Duration::from_millis(50);
const RUN_MAX: Duration = Duration::from_secs(12);
/// Largest job of the stream, in GPUs: the cluster must fit it with one host missing.
const GPUS_MAX: u32 = 16;
/// Largest task of the stream, in GPUs: the queue is strict, so a task that needs a whole host would block
/// all others as long as the training and a lost GPU leave no host whole.
const GPUS_PER_TASK_MAX: u32 = 4;

/// The training job.
pub(super) fn training(trainer: &Path, report: &Path, ledger: &Path) -> v1::JobSpec {
    let mut command = vec![trainer.display().to_string()];
    command.extend(TRAINING.arguments(STEP_MS, report));
    let group = v1::TaskGroup {
        tasks_per_host_max: Some(RANKS_PER_HOST_MAX),
        ..group("ranks", RANKS, 1, command, ledger)
    };
    job("training", 10, true, group)
}

/// A job of the stream: a stand-in process that runs for the time in the trace, scaled down.
pub(super) fn stand_in(
    trace: &TraceJob,
    run_for: Duration,
    trainer: &Path,
    ledger: &Path,
) -> v1::JobSpec {
    let run_for = run_for.clamp(RUN_MIN, RUN_MAX);
    let command = vec![
        trainer.display().to_string(),
        "busy".to_owned(),
        "--milliseconds".to_owned(),
        run_for.as_millis().to_string(),
    ];
    let gpus = trace.gpus_per_task.clamp(1, GPUS_PER_TASK_MAX);
    let tasks = (trace.gpus().min(GPUS_MAX) / gpus).max(1);
    let group = group("main", tasks, gpus, command, ledger);
    // Large jobs first, or the small ones would never leave them enough room.
    job(&trace.name, i32::from(trace.gpus() >= 8), tasks > 1, group)
}

/// A trivial job that tests whether writes are acknowledged.
pub(super) fn probe(trainer: &Path) -> v1::JobSpec {
    let command = ["busy", "--milliseconds", "10"].map(str::to_owned);
    let command = std::iter::once(trainer.display().to_string())
        .chain(command)
        .collect();
    job(
        "probe",
        5,
        false,
        v1::TaskGroup {
            command,
            count: Some(1),
            name: Some("main".to_owned()),
            ..v1::TaskGroup::default()
        },
    )
}
