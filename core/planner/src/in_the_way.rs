//! Conflicts of a placement: which running attempts hold the resources that it takes.

use std::collections::BTreeSet;

use muster_engine::state::Running;
use muster_model::command::TaskPlacement;
use muster_model::ids::{GpuUuid, HostId};

/// Resources that a unit takes at its place.
pub(super) struct InTheWay {
    gpus: BTreeSet<GpuUuid>,
    hosts: BTreeSet<HostId>,
}

impl InTheWay {
    pub(super) fn of(tasks: &[TaskPlacement]) -> Self {
        Self {
            gpus: tasks.iter().flat_map(|task| &task.gpus).copied().collect(),
            hosts: tasks.iter().map(|task| task.host).collect(),
        }
    }

    /// Whether an attempt holds one of these GPUs, or runs without GPUs on one of these hosts.
    pub(super) fn holds(&self, running: &Running<'_>) -> bool {
        self.holds_gpu(running)
            || running.attempt.tasks.iter().any(|run| {
                (self.gpus.is_empty() || run.gpus.is_empty()) && self.hosts.contains(&run.host)
            })
    }

    /// Whether an attempt holds one of these GPUs.
    pub(super) fn holds_gpu(&self, running: &Running<'_>) -> bool {
        let mut held = running.attempt.tasks.iter().flat_map(|run| &run.gpus);
        held.any(|gpu| self.gpus.contains(gpu))
    }

    /// Whether an attempt has a task on one of these hosts.
    pub(super) fn is_on_its_hosts(&self, running: &Running<'_>) -> bool {
        let mut runs = running.attempt.tasks.iter();
        runs.any(|run| self.hosts.contains(&run.host))
    }
}
