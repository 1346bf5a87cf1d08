//! Settings of the trials.

use std::path::PathBuf;
use std::time::Duration;

use crate::trials::Trial;
use crate::workload::training::Training;

/// Settings of the trials.
#[derive(Clone, Debug)]
pub struct TrialsOptions {
    /// The `muster` binary of replicas and workers.
    pub binary: PathBuf,
    /// Initial binary of workers whose agent is replaced by [`Self::binary`]; a copy of that if `None`.
    pub previous: Option<PathBuf>,
    /// The example trainer.
    pub trainer: PathBuf,
    /// Trials in the order of execution.
    pub trials: Vec<Trial>,
    /// Keeps the clusters' folders.
    pub keep: bool,
}

/// Hosts with GPUs: the training spans two of them, and one may be lost.
pub(super) const WORKERS: usize = 3;
/// GPUs per host.
pub(super) const GPUS_PER_HOST: u32 = 2;
/// Ranks of the training, one GPU each.
pub(super) const RANKS: u32 = 4;
/// The training.
pub(super) const TRAINING: Training = Training {
    steps: 450,
    checkpoint_seconds: 2,
};
/// Minimum duration of a step: about 11 s for an undisturbed training.
pub(super) const STEP_MS: u64 = 25;
/// Checkpoints before the fault, so that there is one before the newest.
pub(super) const CHECKPOINTS_BEFORE: usize = 2;
/// Time between the newest checkpoint and the fault, so that lost work is comparable.
pub(super) const STRIKE_AFTER: Duration = Duration::from_millis(600);
/// Lease of the training: its supervisors end it 5.2 s after the last acknowledged heartbeat.
pub(super) const PARTITION_GRACE_MS: u64 = 8_000;
/// Duration of a short cut: with the second that broken connections take to recover it is shorter than the
/// lease, and it is long enough for a silent host to become suspect.
pub(super) const SHORT_CUT: Duration = Duration::from_millis(2_500);
/// Time for which the training runs elsewhere before its old host is reconnected.
pub(super) const BEFORE_RETURN: Duration = Duration::from_secs(1);
/// Duration of a full disk: longer than the time between two checkpoints.
pub(super) const DISK_FULL: Duration = Duration::from_secs(4);
/// Size of the filled disk, in MiB.
pub(super) const DISK_MIB: u64 = 64;
/// Run time of the job with a higher priority.
pub(super) const URGENT_MS: u64 = 1_000;
/// Its priority; the training's is lower.
pub(super) const URGENT_PRIORITY: i32 = 10;
/// Maximum time for which processes of two attempts may run concurrently after a frozen host resumes: its
/// supervisors were frozen as well, so no process there could end them before.
pub(super) const THAW_MS_MAX: u64 = 1_000;
/// Maximum time for the training to end after the fault.
pub(super) const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
