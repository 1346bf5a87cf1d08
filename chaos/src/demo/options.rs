//! Settings of the demo.

use std::path::PathBuf;
use std::time::Duration;

use crate::demo::jobs::Training;

/// What the demo is made from.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The `muster` binary that replicas and workers run.
    pub binary: PathBuf,
    /// The example trainer.
    pub trainer: PathBuf,
    /// A Philly trace to replay; its published distribution if none.
    pub trace: Option<PathBuf>,
    /// Jobs of the stream beside the training.
    pub jobs: usize,
    /// Leaves the cluster's folder behind.
    pub keep: bool,
}

impl DemoOptions {
    /// The demo with these binaries.
    #[must_use]
    pub fn new(binary: PathBuf, trainer: PathBuf) -> Self {
        Self {
            binary,
            trainer,
            trace: None,
            jobs: 150,
            keep: false,
        }
    }
}

/// The training.
pub(super) const TRAINING: Training = Training {
    steps: 3_000,
    checkpoint_seconds: 3,
};
/// Least duration of one step, so that the training outlives every fault: about a minute undisturbed.
pub(super) const STEP_MS: u64 = 22;
/// Ranks of the training, one GPU each.
pub(super) const RANKS: u32 = 4;
/// Ranks on one host at most, so that the training spans at least two.
pub(super) const RANKS_PER_HOST_MAX: u32 = 2;
/// Lease of every job of the demo: the demo's hosts count as lost after 5 s.
pub(crate) const PARTITION_GRACE_MS: u64 = 6_500;
/// Between asking and killing.
pub(super) const STOP_GRACE_MS: u64 = 2_000;
/// Longest that anything awaited may take before the demo gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest that the jobs may take to end after the last fault.
pub(super) const FINISH_PATIENCE: Duration = Duration::from_secs(120);
