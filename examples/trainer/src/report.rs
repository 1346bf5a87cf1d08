//! Final report of rank 0.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// The result of a whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Trained steps, including those before resumes.
    pub(crate) steps: u64,
    /// Mean loss of the first step.
    pub(crate) loss_first: f32,
    /// Mean loss of the last step; null if this attempt had no step left to do.
    pub(crate) loss_final: Option<f32>,
    /// Fraction of the test samples classified correctly.
    pub(crate) accuracy: f64,
    /// Digest of the exact bits of the final weights.
    pub(crate) weights_digest: String,
    /// The step from which this attempt resumed.
    pub(crate) resumed_from: Option<u64>,
    /// Resumes in the chain of checkpoints that led here.
    pub(crate) restarts: u32,
}

impl Report {
    /// Writes the report atomically.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let unfinished = path.with_extension("tmp");
        let json = serde_json::to_vec_pretty(self).context("encode the report")?;
        fs::write(&unfinished, json).with_context(|| format!("write {}", unfinished.display()))?;
        fs::rename(&unfinished, path).with_context(|| format!("write {}", path.display()))
    }
}
