//! What several tests of this crate need.

use std::path::{Path, PathBuf};

use crate::runner::RunnerConfig;
use muster_supervisor::LogLimits;

pub(crate) use muster_supervisor::testing::assignment;

/// A runner that keeps everything below `home` and can start nothing.
pub(crate) fn runner_config(home: &Path) -> RunnerConfig {
    RunnerConfig {
        supervisor: PathBuf::from("/nonexistent/muster"),
        tasks: home.join("tasks"),
        logs: home.join("logs"),
        checkpoints: home.join("checkpoints"),
        checkpoint_scan_ms: 1_000,
        log_limits: LogLimits::default(),
        cgroup_root: None,
        engine: tokio::sync::watch::channel(None).1,
    }
}
