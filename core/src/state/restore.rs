//! The way from a snapshot's parts to a state: everything derived is derived again.

use std::sync::Arc;

use crate::command::JobDefaults;
use crate::ids::{RequestId, Revision};
use crate::quota::Defragment;
use crate::state::{
    EventLog, Host, Index, Job, Leadership, Ledger, Queue, Reliability, RequestLog, State,
    StoredAnswer,
};
use crate::time::TimeMs;
use crate::topology::Topology;

/// Everything a snapshot holds; what is not here follows from it.
#[derive(Clone, Debug, Default)]
pub struct StateParts {
    /// Commands applied so far.
    pub revision: Revision,
    /// The newest stamped time.
    pub time: TimeMs,
    /// Who leads.
    pub leadership: Leadership,
    /// All jobs, in any order.
    pub jobs: Vec<Job>,
    /// All hosts, in any order.
    pub hosts: Vec<Host>,
    /// All queues, in any order.
    pub queues: Vec<Queue>,
    /// Milliseconds in which past usage comes to count half in fair shares.
    pub history_half_life_ms: Option<u64>,
    /// How running work may be moved to make room in one piece.
    pub defragment: Option<Defragment>,
    /// What counts for jobs that say nothing themselves.
    pub job_defaults: Option<JobDefaults>,
    /// How often the infrastructure fails.
    pub reliability: Reliability,
    /// Where the time of all jobs with GPUs went.
    pub ledger: Ledger,
    /// The topology as it was configured.
    pub configured_topology: Arc<Topology>,
    /// Answers by request id, in any order.
    pub requests: Vec<(RequestId, StoredAnswer)>,
    /// Recent events.
    pub events: EventLog,
}

impl State {
    /// Builds the state of which a snapshot holds the parts.
    #[must_use]
    pub fn restore(parts: StateParts) -> Self {
        let hosts = parts.hosts;
        let mut state = Self {
            revision: parts.revision,
            time: parts.time,
            leadership: parts.leadership,
            host_names: hosts
                .iter()
                .map(|host| (Arc::clone(&host.name), host.id))
                .collect(),
            gpu_hosts: hosts
                .iter()
                .flat_map(|host| host.gpus.iter().map(|gpu| (gpu.uuid, host.id)))
                .collect(),
            jobs: parts
                .jobs
                .into_iter()
                .map(|job| (job.id, Arc::new(job)))
                .collect(),
            hosts: hosts
                .into_iter()
                .map(|host| (host.id, Arc::new(host)))
                .collect(),
            queues: parts
                .queues
                .into_iter()
                .map(|queue| (Arc::clone(&queue.name), Arc::new(queue)))
                .collect(),
            history_half_life_ms: parts.history_half_life_ms,
            defragment: parts.defragment,
            job_defaults: parts.job_defaults,
            reliability: parts.reliability,
            ledger: parts.ledger,
            configured_topology: parts.configured_topology,
            topology: Arc::default(),
            requests: RequestLog::restore(parts.requests),
            events: parts.events,
            index: Index::default(),
        };
        state.index = Index::rebuild(&state);
        state.topology = Arc::clone(state.index.tree.topology());
        state
    }
}
