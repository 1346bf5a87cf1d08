//! Commands about hosts and their GPUs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{GpuHealth, HostHealth, HostRegistration};
use crate::ids::{GpuUuid, HostId, LeadershipEpoch};

/// A command about a host or one of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostCommand {
    /// A worker's agent registers its host.
    RegisterHost {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// Description of the host and its resources.
        registration: Arc<HostRegistration>,
    },
    /// The leader detected that a host fell silent, was lost or came back.
    SetHostHealth {
        /// The leader that detected it.
        leader: LeadershipEpoch,
        /// The host.
        host: HostId,
        /// New health.
        health: HostHealth,
        /// Whether the host is unreachable in one direction only: its heartbeats arrive, but acknowledgements
        /// do not reach it. Since command format 4.
        one_way: bool,
    },
    /// A worker reported a change in a GPU's health.
    SetGpuHealth {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// The host that reported it.
        host: HostId,
        /// The GPU.
        gpu: GpuUuid,
        /// New health.
        health: GpuHealth,
    },
}

impl HostCommand {
    /// Epoch of the leader that issues it.
    #[must_use]
    pub const fn leader(&self) -> LeadershipEpoch {
        match self {
            Self::RegisterHost { leader, .. }
            | Self::SetHostHealth { leader, .. }
            | Self::SetGpuHealth { leader, .. } => *leader,
        }
    }
}
