//! Jobs of a trial: the training, and one that preempts it.

use std::path::Path;

use muster_proto::v1;

use crate::trials::Trial;
use crate::trials::options::{
    GPUS_PER_HOST, PARTITION_GRACE_MS, RANKS, STEP_MS, TRAINING, URGENT_MS, URGENT_PRIORITY,
};
use crate::workload::jobs::{group, job};

/// Environment variable with the folder of the ranks' run records.
const RECORDS_VARIABLE: &str = "ATTEMPT_LEDGER_DIR";

/// Files of a trial's tasks, in a folder shared by all hosts.
#[derive(Clone, Debug)]
pub(super) struct TaskFiles {
    /// Result of the training.
    pub(super) report: std::path::PathBuf,
    /// GPU ledger: locks of GPUs, and a file of conflicts.
    pub(super) ledger: std::path::PathBuf,
    /// Run records of each rank.
    pub(super) run_records: std::path::PathBuf,
}

impl TaskFiles {
    /// Paths below a folder shared by all hosts.
    pub(super) fn below(shared: &Path) -> Self {
        Self {
            report: shared.join("training-report.json"),
            ledger: shared.join("gpu-ledger"),
            run_records: shared.join("run-records"),
        }
    }
}

/// The training: four ranks on two hosts.
pub(super) fn training(trial: Trial, trainer: &Path, files: &TaskFiles) -> v1::JobSpec {
    let mut command = vec![trainer.display().to_string()];
    command.extend(TRAINING.arguments(STEP_MS, &files.report));
    if trial.is_stubborn() {
        command.push("--stubborn".to_owned());
    }
    let mut ranks = group("ranks", RANKS, 1, command, &files.ledger);
    let records = files.run_records.display().to_string();
    ranks
        .environment
        .insert(RECORDS_VARIABLE.to_owned(), records);
    v1::JobSpec {
        partition_grace_ms: Some(PARTITION_GRACE_MS),
        ..job("training", 0, true, ranks)
    }
}

/// A job that needs more GPUs than the training leaves.
pub(super) fn urgent(trainer: &Path, files: &TaskFiles) -> v1::JobSpec {
    let command = [
        &trainer.display().to_string(),
        "busy",
        "--milliseconds",
        &URGENT_MS.to_string(),
    ];
    let command = command.map(str::to_owned).to_vec();
    let tasks = group("main", 2, GPUS_PER_HOST, command, &files.ledger);
    job("urgent", URGENT_PRIORITY, true, tasks)
}
