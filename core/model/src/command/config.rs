//! Commands about the configuration of the cluster.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::JobDefaults;
use crate::ids::{LeadershipEpoch, RequestKey};
use crate::quota::QueueTree;
use crate::topology::Topology;

/// A command about queues, the topology, or the defaults of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigCommand {
    /// Creates or changes a queue.
    SetQueue {
        /// Idempotency key.
        request: RequestKey,
        /// Name of the queue.
        name: String,
        /// Maximum number of unfinished jobs in the queue.
        live_jobs_max: u64,
    },
    /// Replaces the queue tree. No running work is stopped; a removed queue accepts no new jobs and
    /// disappears when its last job has ended.
    ConfigureQueues {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// The queue tree.
        tree: Arc<QueueTree>,
    },
    /// Replaces the topology.
    SetTopology {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// The topology.
        topology: Arc<Topology>,
    },
    /// Sets the cluster defaults for jobs.
    SetJobDefaults {
        /// The leader that found none set.
        leader: LeadershipEpoch,
        /// The new defaults.
        defaults: JobDefaults,
    },
}

impl ConfigCommand {
    /// Epoch of the leader that issues it; `None` for commands of users.
    #[must_use]
    pub const fn leader(&self) -> Option<LeadershipEpoch> {
        match self {
            Self::SetJobDefaults { leader, .. } => Some(*leader),
            Self::SetQueue { .. } | Self::ConfigureQueues { .. } | Self::SetTopology { .. } => None,
        }
    }

    /// Key of the client's request; `None` for commands of the leader.
    pub const fn request_mut(&mut self) -> Option<&mut RequestKey> {
        match self {
            Self::SetQueue { request, .. }
            | Self::ConfigureQueues { request, .. }
            | Self::SetTopology { request, .. } => Some(request),
            Self::SetJobDefaults { .. } => None,
        }
    }
}
