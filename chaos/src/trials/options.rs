//! Settings of the trials.

use std::path::PathBuf;
use std::time::Duration;

use crate::demo::jobs::Training;
use crate::trials::Trial;

/// What the trials are made from.
#[derive(Clone, Debug)]
pub struct TrialsOptions {
    /// The `muster` binary that replicas and workers run.
    pub binary: PathBuf,
    /// The one that workers begin with where an agent is replaced by [`Self::binary`]; a copy of that takes its place if
    /// none is given.
    pub previous: Option<PathBuf>,
    /// The example trainer.
    pub trainer: PathBuf,
    /// Which trials, in order.
    pub trials: Vec<Trial>,
    /// Leaves the clusters' folders behind.
    pub keep: bool,
}

/// Hosts with GPUs: the training spans two of them, and one may be lost.
pub(super) const WORKERS: usize = 3;
/// GPUs of each.
pub(super) const GPUS_PER_HOST: u32 = 2;
/// Ranks of the training, one GPU each.
pub(super) const RANKS: u32 = 4;
/// The training.
pub(super) const TRAINING: Training = Training {
    steps: 450,
    checkpoint_seconds: 2,
};
/// Least duration of one step: about 11 s for an undisturbed training.
pub(super) const STEP_MS: u64 = 25;
/// Checkpoints before anything is broken, so that there is one before the newest.
pub(super) const CHECKPOINTS_BEFORE: usize = 2;
/// Time between the newest checkpoint and the fault, so that lost work can be compared.
pub(super) const STRIKE_AFTER: Duration = Duration::from_millis(600);
/// Lease of the training: its supervisors end it 5.2 s after the last beat that was acknowledged.
pub(super) const PARTITION_GRACE_MS: u64 = 8_000;
/// A cut that is shorter than that with the second that broken connections take to come back, and longer than a silent host stays above suspicion.
pub(super) const SHORT_CUT: Duration = Duration::from_millis(2_500);
/// How long the training runs elsewhere before its old host is let back.
pub(super) const BEFORE_RETURN: Duration = Duration::from_secs(1);
/// How long a disk stays full: longer than the time between two checkpoints.
pub(super) const DISK_FULL: Duration = Duration::from_secs(4);
/// Size of a disk that is filled.
pub(super) const DISK_MIB: u64 = 64;
/// How long the job of a higher priority runs.
pub(super) const URGENT_MS: u64 = 1_000;
/// Its priority; the training's is lower.
pub(super) const URGENT_PRIORITY: i32 = 10;
/// Longest that processes of two attempts may live at once after a whole host was frozen, their supervisors with them, and
/// wakes up: until then nobody there can have ended them.
pub(super) const THAW_MS_MAX: u64 = 1_000;
/// Longest that anything awaited may take before a trial is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest that the training may take to end after the fault.
pub(super) const FINISH_PATIENCE: Duration = Duration::from_secs(120);
