//! Helpers shared by several tests of this crate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_monitor::gpu::{GpuBackend, GpuUsage, Handover, SimulatedBackend, Timeline};
use muster_monitor::reports::report_channel;
use muster_supervisor::LogLimits;
use muster_supervisor::lease::clock::LeaseClock;

use crate::inbox::Outbox;
use crate::tasks::accounts::Accounts;
use crate::tasks::runner::{Hardware, Runner, RunnerConfig};

pub(crate) use muster_supervisor::testing::assignment;

/// A runner with these settings on a host whose GPUs are free.
pub(crate) fn runner(config: RunnerConfig, outbox: Outbox) -> Runner {
    let gpus = SimulatedBackend::new("host-1", 0, "", 0, Timeline::default());
    let (reports, _) = report_channel();
    let handover = Handover::new(gpus.memory(), Duration::ZERO, reports, GpuUsage::default());
    Runner::new(config, handover, LeaseClock::start(), outbox)
}

/// Settings of a runner that keeps all files below `home` and cannot start any task.
pub(crate) fn runner_config(home: &Path) -> RunnerConfig {
    RunnerConfig {
        supervisor: PathBuf::from("/nonexistent/muster"),
        tasks: home.join("tasks"),
        logs: home.join("logs"),
        checkpoints: home.join("checkpoints"),
        checkpoints_are_local: true,
        checkpoint_scan_ms: 1_000,
        log_limits: LogLimits::default(),
        accounts: Accounts::agents(),
        engine: tokio::sync::watch::channel(None).1,
        cgroups: None,
        shared_memory: None,
        shared_memory_folder: Some(home.join("shared")),
        cpu_quota: false,
        hardware: Hardware::default(),
        rebooted: false,
        secrets: None,
        run: home.join("run"),
    }
}
