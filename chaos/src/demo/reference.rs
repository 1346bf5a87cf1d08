//! The undisturbed run: the same training as plain processes, without any scheduler.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fs, io};

use tokio::process::Command;

use crate::cluster::free_addresses;
use crate::demo::jobs::Training;

/// An undisturbed run that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// A process or file cannot be made.
    #[error("the undisturbed run: {operation}")]
    Io {
        /// What was tried.
        operation: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A rank failed.
    #[error("rank {rank} of the undisturbed run ended with {status}; its output is in {output}")]
    Rank {
        /// Which.
        rank: u32,
        /// How.
        status: std::process::ExitStatus,
        /// Where its output is.
        output: PathBuf,
    },
    /// A report is not what the trainer writes.
    #[error("reading the training's report {path}")]
    Report {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

fn failed(operation: String) -> impl FnOnce(io::Error) -> ReferenceError {
    move |source| ReferenceError::Io { operation, source }
}

/// Trains without any fault and at full speed, with so many ranks; returns the digest of the final weights.
///
/// # Errors
/// [`ReferenceError`] names the rank and its output.
pub(crate) async fn train_undisturbed(
    training: &Training,
    ranks: u32,
    trainer: &Path,
    folder: &Path,
) -> Result<String, ReferenceError> {
    fs::create_dir_all(folder).map_err(failed(format!("making {}", folder.display())))?;
    let master = free_addresses(1).map_err(failed("drawing a free port".to_owned()))?[0];
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
            .map_err(failed(format!("awaiting rank {rank}")))?;
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

/// The digest in a report of the trainer.
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
