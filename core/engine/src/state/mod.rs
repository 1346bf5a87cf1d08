//! The replicated state: everything the cluster must remember, as ordered persistent maps.
//!
//! A clone is cheap (the maps share their nodes), which is how snapshots, plans and `what-if` get a
//! consistent picture without stopping `apply`. Only `apply` changes it; `index` is derived from the
//! rest and never stored.

mod events;
mod hash;
mod hosts;
mod index;
mod job;
mod queue;
mod recovery;
mod replicas;
mod requests;
mod restore;
mod rules;
mod running;

use std::sync::Arc;

use imbl::OrdMap;
use muster_model::host::{Gpu, Host};
use serde::{Deserialize, Serialize};

pub use events::{Compacted, EventGaps, EventLog};
pub use hosts::pools::{POOL_LABEL, Pools, pool_of};
pub use hosts::reliability::Reliability;
pub(crate) use index::HostEntries;
pub use index::attempts::{AttemptClass, AttemptKey, Attempts, BasisKind, HeldInCells};
pub use index::cell_index::CellIndex;
pub(crate) use index::cells::guaranteed_levels;
pub use index::claim_overlap::{ExcludedUsage, UsageScope, counted_twice, taken_over};
pub use index::totals::Totals;
pub use index::waiting_class::{WaitingClass, WaitingKey};
pub use index::{BlockChange, ClaimProgress, HostClass, Index, TasksOnHost};
pub use job::dependencies::OpenDependencies;
pub use job::membership::{Joined, Leaving, Membership, Vacancy};
pub use job::pauses::Pause;
pub use job::placement_class::PlacementClass;
pub use job::run_times::RunTimes;
pub use job::{Attempt, Claim, Job, PastAttempt, PipelineMark, Purpose, TaskRun, Unit};
pub use queue::usage::{QueueUsage, Usage, UsageByQueue, amounts_held, amounts_of};
pub use queue::usage::{UsageKind, add as add_usage, remove as remove_usage};
pub use queue::{History, Queue};
pub use recovery::{Recovery, RecoveryHold};
pub use replicas::Replicas;
pub use requests::{Answer, RequestLog, StoredAnswer};
pub use restore::StateParts;
pub use rules::HealthRules;
pub use running::Running;

use muster_health::state::HealthState;
use muster_model::access::{JoinToken, User};
use muster_model::command::JobDefaults;
use muster_model::ids::{
    GpuUuid, HostId, JobId, LeadershipEpoch, PipelineId, ReplicaId, Revision, UnitId,
};
use muster_model::job::Ledger;
use muster_model::quota::Defragment;
use muster_model::time::TimeMs;
use muster_model::topology::Topology;

/// The current leadership, according to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leadership {
    /// The leader's replica id; 0 before the first leader.
    pub replica: ReplicaId,
    /// Fencing token of the leadership.
    pub epoch: LeadershipEpoch,
    /// When the leadership began.
    pub since: TimeMs,
}

/// The whole replicated state.
#[derive(Clone, Debug)]
pub struct State {
    /// Commands applied so far.
    pub revision: Revision,
    /// The newest stamped time; never goes back.
    pub time: TimeMs,
    /// The current leadership.
    pub leadership: Leadership,
    /// Record of a disaster recovery from another group of replicas, if there was one.
    pub recovery: Option<Recovery>,
    /// Current and highest replica ids.
    pub replicas: Arc<Replicas>,
    /// All jobs still kept.
    pub jobs: OrdMap<JobId, Arc<Job>>,
    /// All hosts ever registered.
    pub hosts: OrdMap<HostId, Arc<Host>>,
    /// Host ids by name.
    pub host_names: OrdMap<Arc<str>, HostId>,
    /// The host of every GPU.
    pub gpu_hosts: OrdMap<GpuUuid, HostId>,
    /// All queues.
    pub queues: OrdMap<Arc<str>, Arc<Queue>>,
    /// Half-life of past usage in fair shares, in milliseconds.
    pub history_half_life_ms: Option<u64>,
    /// Settings for moving running work to defragment the cluster; `None`: disabled.
    pub defragment: Option<Defragment>,
    /// Defaults for jobs without settings of their own; none are in force before they are set.
    pub job_defaults: Option<JobDefaults>,
    /// Failure rate of the infrastructure.
    pub reliability: Reliability,
    /// GPU time of all jobs with GPUs, including forgotten ones.
    pub ledger: Ledger,
    /// Health state of hosts and GPUs.
    pub health: HealthState,
    /// The health rules in force.
    pub health_rules: HealthRules,
    /// The topology as configured; hosts not named in it are located as their workers report.
    pub configured_topology: Arc<Topology>,
    /// The configured topology with all levels of cells, including those reported by workers. Derived.
    pub topology: Arc<Topology>,
    /// Users and their roles, by name.
    pub users: OrdMap<Arc<str>, Arc<User>>,
    /// Join tokens of workers, by name.
    pub join_tokens: OrdMap<Arc<str>, Arc<JoinToken>>,
    /// Answers by request id.
    pub requests: RequestLog,
    /// Recent events.
    pub events: EventLog,
    /// Derived look-ups.
    pub index: Index,
}

impl Default for State {
    /// The state before the first command: empty except for the default queue.
    fn default() -> Self {
        let mut queues = OrdMap::new();
        let queue = Queue::new(muster_model::spec::DEFAULT_QUEUE);
        queues.insert(Arc::clone(&queue.name), Arc::new(queue));
        Self {
            revision: Revision::default(),
            time: TimeMs::default(),
            leadership: Leadership::default(),
            recovery: None,
            replicas: Arc::default(),
            jobs: OrdMap::new(),
            hosts: OrdMap::new(),
            host_names: OrdMap::new(),
            gpu_hosts: OrdMap::new(),
            queues,
            history_half_life_ms: None,
            defragment: None,
            job_defaults: None,
            reliability: Reliability::default(),
            ledger: Ledger::default(),
            health: HealthState::default(),
            health_rules: HealthRules::default(),
            configured_topology: Arc::default(),
            topology: Arc::default(),
            users: OrdMap::new(),
            join_tokens: OrdMap::new(),
            requests: RequestLog::default(),
            events: EventLog::default(),
            index: Index::default(),
        }
    }
}

impl State {
    /// Whether the first leader has put the defaults and the health rules into the log. Before that no
    /// finding, no silence and no failed attempt is judged: the rules of a build have no effect on their own.
    #[must_use]
    pub const fn has_defaults(&self) -> bool {
        self.job_defaults.is_some()
    }

    /// Returns the job with this id.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(Arc::as_ref)
    }

    /// Returns the record of a unit; `None` for a unit without a history, although it exists.
    #[must_use]
    pub fn unit(&self, id: UnitId) -> Option<&Unit> {
        self.job(id.job)?.unit(id.unit)
    }

    /// Returns the current attempt of a unit.
    #[must_use]
    pub fn attempt(&self, id: UnitId) -> Option<&Attempt> {
        self.unit(id)?.attempt.as_deref()
    }

    /// Returns the jobs of a pipeline that are still kept, in its order; empty if it does not exist.
    pub fn jobs_of(&self, pipeline: PipelineId) -> impl Iterator<Item = &Job> {
        let jobs = self.index.pipelines.get(&pipeline);
        jobs.into_iter().flatten().filter_map(|job| self.job(*job))
    }

    /// Returns the host with this id.
    #[must_use]
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.get(&id).map(Arc::as_ref)
    }

    /// Returns the host with this name.
    #[must_use]
    pub fn host_by_name(&self, name: &str) -> Option<&Host> {
        self.host_names.get(name).and_then(|id| self.host(*id))
    }

    /// Returns the job with this id for update.
    pub(crate) fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id).map(Arc::make_mut)
    }

    /// Returns the GPU with this UUID and its host.
    #[must_use]
    pub fn gpu(&self, uuid: GpuUuid) -> Option<(&Host, &Gpu)> {
        let host = self.host(*self.gpu_hosts.get(&uuid)?)?;
        host.gpus
            .iter()
            .find(|gpu| gpu.uuid == uuid)
            .map(|gpu| (host, gpu))
    }
}
