//! What rank 0 leaves behind at the end.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// The result of a whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Steps trained, those before resumes included.
    pub(crate) steps: u64,
    /// Mean loss of the first step.
    pub(crate) loss_first: f32,
    /// Mean loss of the last step; null when this attempt had no step left to do.
    pub(crate) loss_final: Option<f32>,
    /// Fraction of the test samples told right.
    pub(crate) accuracy: f64,
    /// Names the exact bits of the final weights.
    pub(crate) weights_digest: String,
    /// The step that this attempt went on from.
    pub(crate) resumed_from: Option<u64>,
    /// Resumes in the chain of checkpoints that led here.
    pub(crate) restarts: u32,
}

impl Report {
    /// Writes the report; a reader sees all of it or nothing.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let unfinished = path.with_extension("tmp");
        let json = serde_json::to_vec_pretty(self).context("encode the report")?;
        fs::write(&unfinished, json).with_context(|| format!("write {}", unfinished.display()))?;
        fs::rename(&unfinished, path).with_context(|| format!("write {}", path.display()))
    }
}
