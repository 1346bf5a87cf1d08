//! The training of the tests, and an undisturbed reference run of it as plain processes, without a scheduler.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fs, io};

use muster_ports::ReservedAddresses;
use tokio::process::Command;

/// A training with bit-identical results with and without a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Training {
    /// Total steps.
    pub(crate) steps: u64,
    /// Minimum seconds between two checkpoints.
    pub(crate) checkpoint_seconds: u64,
}

impl Training {
    /// Arguments of the trainer; a step takes at least `step_ms`.
    pub(crate) fn arguments(&self, step_ms: u64, report: &Path) -> Vec<String> {
        [
            ("--steps", self.steps.to_string()),
            ("--step-ms", step_ms.to_string()),
            ("--checkpoint-seconds", self.checkpoint_seconds.to_string()),
            ("--peer-timeout-seconds", "5".to_owned()),
            ("--report", report.display().to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }
}

/// Failure of the undisturbed run.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// I/O error or a process that could not be started.
    #[error("the undisturbed run: {operation}")]
    Io {
        /// The failed operation.
        operation: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A rank failed.
    #[error("rank {rank} of the undisturbed run ended with {status}; its output is in {output}")]
    Rank {
        /// The rank.
        rank: u32,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Path of its output.
        output: PathBuf,
    },
    /// A report that the trainer did not write.
    #[error("reading the training's report {path}")]
    Report {
        /// Path of the report.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
}

fn failed(operation: String) -> impl FnOnce(io::Error) -> ReferenceError {
    move |source| ReferenceError::Io { operation, source }
}

/// Trains with `ranks` ranks at full speed without faults; returns the digest of the final weights.
///
/// # Errors
/// [`ReferenceError`] names the rank and its output.
pub(crate) async fn train_undisturbed(
    training: &Training,
    ranks: u32,
    trainer: &Path,
    folder: &Path,
) -> Result<String, ReferenceError> {
    fs::create_dir_all(folder).map_err(failed(format!("creating {}", folder.display())))?;
    let reserved = ReservedAddresses::draw(1).map_err(failed("choosing a free port".to_owned()))?;
    let master = reserved.addresses()[0];
    let report = folder.join("report.json");
    let mut children = Vec::new();
    for rank in 0..ranks {
        let output = folder.join(format!("rank-{rank}.log"));
        let file =
            fs::File::create(&output).map_err(failed(format!("creating {}", output.display())))?;
        let copy = file
            .try_clone()
            .map_err(failed("sharing a log".to_owned()))?;
        let child = Command::new(trainer)
            .args(training.arguments(0, &report))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("MASTER_ADDR", master.ip().to_string())
            .env("MASTER_PORT", master.port().to_string())
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed(format!("starting {}", trainer.display())))?;
        children.push((rank, output, child));
    }
    for (rank, output, mut child) in children {
        let status = child
            .wait()
            .await
            .map_err(failed(format!("waiting for rank {rank}")))?;
        if !status.success() {
            return Err(ReferenceError::Rank {
                rank,
                status,
                output,
            });
        }
    }
    read_digest(&report)
}

/// Reads the digest from a report of the trainer.
///
/// # Errors
/// If the file is missing or damaged.
pub(crate) fn read_digest(report: &Path) -> Result<String, ReferenceError> {
    #[derive(serde::Deserialize)]
    struct Report {
        weights_digest: String,
    }
    let bytes = fs::read(report).map_err(failed(format!("reading {}", report.display())))?;
    let parsed: Report =
        serde_json::from_slice(&bytes).map_err(|source| ReferenceError::Report {
            path: report.to_owned(),
            source,
        })?;
    Ok(parsed.weights_digest)
}
