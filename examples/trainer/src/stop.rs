//! Stop request: SIGTERM, or the agent's preempt flag.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// Name of the agent's flag in the control folder.
const FLAG: &str = "preempt";

/// Whether this rank was asked to stop. Once set, it stays set.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal {
    terminated: Arc<AtomicBool>,
    flag: Option<PathBuf>,
    is_heeded: bool,
}

impl StopSignal {
    /// Starts to listen for SIGTERM and to watch for the flag in `control_dir`; both are ignored unless
    /// `is_heeded`.
    pub(crate) fn install(control_dir: Option<&Path>, is_heeded: bool) -> Result<Self> {
        let terminated = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&terminated))
            .context("listen for SIGTERM")?;
        Ok(Self {
            terminated,
            flag: control_dir.map(|folder| folder.join(FLAG)),
            is_heeded,
        })
    }

    /// Whether this rank is asked to stop.
    pub(crate) fn is_raised(&self) -> bool {
        let is_asked = self.terminated.load(Ordering::Relaxed)
            || self.flag.as_ref().is_some_and(|flag| flag.exists());
        is_asked && self.is_heeded
    }
}
