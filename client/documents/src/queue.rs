//! Queues, and the effect of a change of the queue tree and of the topology.

use muster_model::quota::{Amounts, Guarantee, QueueConfig};
use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::FromWire as _;

/// A queue with its configuration and its usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    pub name: String,
    pub live_jobs: u64,
    pub live_jobs_max: u64,
    /// Whether it takes no new jobs.
    pub retired: bool,
    #[serde(flatten)]
    pub usage: Usage,
    pub history_gpu_ms: u64,
    pub users: Vec<UserUsage>,
    /// Null if it has settings that this version does not know.
    pub config: Option<QueueConfig>,
}

documents! {
    /// Used amounts.
    pub struct Usage from v1::Usage {
        held: Amounts,
        /// A part of `held`.
        opportunistic: Amounts,
        claimed: Amounts,
    }

    /// A user over its limit.
    pub struct UserOverLimit from v1::UserOverLimit {
        user: String,
        over: Amounts,
    }

    /// Counted jobs.
    pub struct NamedJobs from v1::NamedJobs {
        total: u64,
        /// The first of them by id.
        first: Vec<u64> = job_ids,
    }
}

/// Usage of a user in a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserUsage {
    pub user: String,
    #[serde(flatten)]
    pub usage: Usage,
}

impl From<v1::UserUsage> for UserUsage {
    fn from(user: v1::UserUsage) -> Self {
        Self {
            user: user.user,
            usage: Usage::from_wire(user.usage),
        }
    }
}

impl From<v1::Queue> for Queue {
    fn from(queue: v1::Queue) -> Self {
        Self {
            name: queue.name,
            live_jobs: queue.live_jobs,
            live_jobs_max: queue.live_jobs_max,
            retired: queue.retired,
            usage: Usage::from_wire(queue.usage),
            history_gpu_ms: queue.history_gpu_ms,
            users: queue.users.into_iter().map(UserUsage::from).collect(),
            config: queue
                .config
                .and_then(|config| QueueConfig::try_from(config).ok()),
        }
    }
}

/// Effect of applying a queue tree, or of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueChanges {
    pub revision: u64,
    pub dry_run: bool,
    pub changes: Vec<QueueChange>,
}

string_enum! {
    /// What becomes of a queue.
    pub enum QueueChangeKind from v1::queue_change::Kind {
        Added "added",
        Changed "changed",
        Retired "retired",
    }
}

/// Change of one queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueChange {
    pub name: String,
    pub change: QueueChangeKind,
    pub live_jobs: u64,
    pub held: Amounts,
    pub guarantee: Option<Guarantee>,
    pub reclaimable: Option<Amounts>,
    pub guarantee_before: Option<Guarantee>,
    pub guarantee_lost: Option<Amounts>,
    pub cells_lost: u64,
    pub over_limit: Option<Amounts>,
    pub users_over_limit: Vec<UserOverLimit>,
    pub jobs_over_limit: NamedJobs,
    pub jobs_too_large: NamedJobs,
    /// Jobs that lose their cells and continue as opportunistic work.
    pub downgraded: NamedJobs,
}

impl QueueChanges {
    /// The cluster's answer.
    #[must_use]
    pub fn new(dry_run: bool, answer: v1::ConfigureQueuesResponse) -> Self {
        Self {
            revision: answer.revision,
            dry_run,
            changes: answer.changes.into_iter().map(QueueChange::from).collect(),
        }
    }
}

impl From<v1::QueueChange> for QueueChange {
    fn from(change: v1::QueueChange) -> Self {
        let guarantee = |wire: Option<v1::Guarantee>| Guarantee::try_from(wire?).ok();
        let users = change.users_over_limit.into_iter();
        Self {
            guarantee_before: guarantee(change.guarantee_before),
            guarantee_lost: change.guarantee_lost.map(Amounts::from),
            cells_lost: change.cells_lost,
            over_limit: change.over_limit.map(Amounts::from),
            users_over_limit: users.map(UserOverLimit::from).collect(),
            jobs_over_limit: NamedJobs::from_wire(change.jobs_over_limit),
            jobs_too_large: NamedJobs::from_wire(change.jobs_too_large),
            downgraded: NamedJobs::from_wire(change.downgraded),
            change: QueueChangeKind::from_wire(change.kind),
            name: change.name,
            live_jobs: change.live_jobs,
            held: Amounts::from_wire(change.usage),
            guarantee: guarantee(change.guarantee),
            reclaimable: change.reclaimable.map(Amounts::from),
        }
    }
}

/// Effect of applying a topology, or of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyEffect {
    pub revision: u64,
    pub dry_run: bool,
    pub hosts_placed: u32,
    pub hosts_unplaced: u32,
    /// Hosts with cells between them and their GPUs.
    pub hosts_with_cells: u32,
    /// Named, and not registered.
    pub hosts_unknown: Vec<String>,
    pub hosts_changed: Vec<String>,
    pub hosts_changed_total: u32,
}

impl TopologyEffect {
    /// The cluster's answer, with the hosts in order.
    #[must_use]
    pub fn new(dry_run: bool, mut answer: v1::SetTopologyResponse) -> Self {
        answer.hosts_unknown.sort_unstable();
        answer.hosts_changed.sort_unstable();
        Self {
            revision: answer.revision,
            dry_run,
            hosts_placed: answer.hosts_placed,
            hosts_unplaced: answer.hosts_unplaced,
            hosts_with_cells: answer.hosts_shaped,
            hosts_unknown: answer.hosts_unknown,
            hosts_changed: answer.hosts_changed,
            hosts_changed_total: answer.hosts_changed_total,
        }
    }
}
