//! Settings of the demo.

use std::path::PathBuf;
use std::time::Duration;

use crate::workload::training::Training;

/// Settings of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The `muster` binary of replicas and workers.
    pub binary: PathBuf,
    /// The example trainer.
    pub trainer: PathBuf,
    /// Philly trace to replay; `None` draws jobs from its published distribution.
    pub trace: Option<PathBuf>,
    /// Number of jobs in the stream beside the training.
    pub jobs: usize,
    /// Keeps the cluster folder.
    pub keep: bool,
}

impl DemoOptions {
    /// Default settings with these binaries.
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
/// Minimum duration of a step, so that the training outlives every fault: about a minute undisturbed.
pub(super) const STEP_MS: u64 = 22;
/// Ranks of the training, one GPU each.
pub(super) const RANKS: u32 = 4;
/// Maximum ranks per host, so that the training spans at least two hosts.
pub(super) const RANKS_PER_HOST_MAX: u32 = 2;
/// Maximum time for the jobs to end after the last fault.
pub(super) const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
