//! Parts of a state that a snapshot holds, and restore from them: all derived data is computed again.

use std::sync::Arc;

use muster_health::state::{HealthState, Part};
use muster_model::access::{JoinToken, User};
use muster_model::command::{Block, JobDefaults};
use muster_model::health::Component;
use muster_model::host::Host;
use muster_model::ids::{HostId, RequestId, Revision};
use muster_model::job::Ledger;
use muster_model::quota::Defragment;
use muster_model::time::TimeMs;
use muster_model::topology::Topology;

use crate::apply::limits_of;
use crate::state::{
    EventLog, HealthRules, Index, Job, Leadership, Queue, Recovery, Reliability, Replicas,
    RequestLog, State, StoredAnswer,
};

/// Contents of a snapshot; everything else is derived.
#[derive(Clone, Debug, Default)]
pub struct StateParts {
    /// Commands applied so far.
    pub revision: Revision,
    /// The newest stamped time.
    pub time: TimeMs,
    /// The current leadership.
    pub leadership: Leadership,
    /// Record of a disaster recovery from another group of replicas.
    pub recovery: Option<Recovery>,
    /// Current and highest replica ids.
    pub replicas: Arc<Replicas>,
    /// All jobs, in any order.
    pub jobs: Vec<Job>,
    /// All hosts, in any order.
    pub hosts: Vec<Host>,
    /// All queues, in any order.
    pub queues: Vec<Queue>,
    /// Half-life of past usage in fair shares, in milliseconds.
    pub history_half_life_ms: Option<u64>,
    /// Settings for moving running work to defragment the cluster.
    pub defragment: Option<Defragment>,
    /// Defaults for jobs without settings of their own.
    pub job_defaults: Option<JobDefaults>,
    /// Failure rate of the infrastructure.
    pub reliability: Reliability,
    /// GPU time of all jobs with GPUs.
    pub ledger: Ledger,
    /// Health state of hosts and GPUs.
    pub health: HealthState,
    /// The health rules in force.
    pub health_rules: HealthRules,
    /// The topology as configured.
    pub configured_topology: Arc<Topology>,
    /// Users and their roles, by name, in any order.
    pub users: Vec<(Arc<str>, User)>,
    /// Join tokens of workers, by name, in any order.
    pub join_tokens: Vec<(Arc<str>, JoinToken)>,
    /// Answers by request id, in any order.
    pub requests: Vec<(RequestId, StoredAnswer)>,
    /// Recent events.
    pub events: EventLog,
}

impl StateParts {
    /// Returns the names of the parts that differ; both must list their records in the same order, as
    /// [`State::parts`] does.
    #[must_use]
    pub fn differing(&self, other: &Self) -> Vec<&'static str> {
        let Self {
            revision,
            time,
            leadership,
            recovery,
            replicas,
            jobs,
            hosts,
            queues,
            history_half_life_ms,
            defragment,
            job_defaults,
            reliability,
            ledger,
            health,
            health_rules,
            configured_topology,
            users,
            join_tokens,
            requests,
            events,
        } = self;
        let topology = *configured_topology != other.configured_topology;
        let half_life = *history_half_life_ms != other.history_half_life_ms;
        let differs = [
            ("revision", *revision != other.revision),
            ("time", *time != other.time),
            ("leadership", *leadership != other.leadership),
            ("recovery", *recovery != other.recovery),
            ("replicas", *replicas != other.replicas),
            ("jobs", *jobs != other.jobs),
            ("hosts", *hosts != other.hosts),
            ("queues", *queues != other.queues),
            ("half-life", half_life),
            ("defragment", *defragment != other.defragment),
            ("job defaults", *job_defaults != other.job_defaults),
            ("reliability", *reliability != other.reliability),
            ("ledger", *ledger != other.ledger),
            // Waiting times and guard rails are those of the rules.
            ("health", !health.parts().eq(other.health.parts())),
            ("health rules", *health_rules != other.health_rules),
            ("topology", topology),
            ("users", *users != other.users),
            ("join tokens", *join_tokens != other.join_tokens),
            ("requests", *requests != other.requests),
            ("events", *events != other.events),
        ];
        let differs = differs.into_iter();
        differs
            .filter_map(|(name, differs)| differs.then_some(name))
            .collect()
    }
}

impl State {
    /// Returns the parts that a snapshot holds, with their records in order: [`State::restore`] builds an
    /// equal state from them.
    #[must_use]
    pub fn parts(&self) -> StateParts {
        // Without `..`: a new field is either a part or derived.
        let Self {
            revision,
            time,
            leadership,
            recovery,
            replicas,
            jobs,
            hosts,
            host_names: _,
            gpu_hosts: _,
            queues,
            history_half_life_ms,
            defragment,
            job_defaults,
            reliability,
            ledger,
            health,
            health_rules,
            configured_topology,
            topology: _,
            users,
            join_tokens,
            requests,
            events,
            index: _,
        } = self;
        StateParts {
            revision: *revision,
            time: *time,
            leadership: *leadership,
            recovery: *recovery,
            replicas: Arc::clone(replicas),
            jobs: jobs.values().map(|job| job.as_ref().clone()).collect(),
            hosts: hosts.values().map(|host| host.as_ref().clone()).collect(),
            queues: queues
                .values()
                .map(|queue| queue.as_ref().clone())
                .collect(),
            history_half_life_ms: *history_half_life_ms,
            defragment: *defragment,
            job_defaults: *job_defaults,
            reliability: *reliability,
            ledger: *ledger,
            health: health.clone(),
            health_rules: health_rules.clone(),
            configured_topology: Arc::clone(configured_topology),
            users: users
                .iter()
                .map(|(name, user)| (Arc::clone(name), user.as_ref().clone()))
                .collect(),
            join_tokens: join_tokens
                .iter()
                .map(|(name, token)| (Arc::clone(name), token.as_ref().clone()))
                .collect(),
            requests: requests
                .iter()
                .map(|(request, answer)| (request, answer.clone()))
                .collect(),
            events: events.clone(),
        }
    }

    /// Returns the parts of the health state that a snapshot stores; parts that only record an admin's block
    /// follow from the block.
    pub fn health_to_keep(&self) -> impl Iterator<Item = Part> + '_ {
        let follows = |part: &Part| {
            let Part::Condition(component, condition) = part else {
                return false;
            };
            let block = self.block_of(component);
            block.is_some_and(|block| HealthState::of_block(block).as_ref() == Some(condition))
        };
        self.health.parts().filter(move |part| !follows(part))
    }

    fn block_of(&self, component: &Component) -> Option<&Block> {
        match component {
            Component::Host(id) => self.host(*id)?.block.as_ref(),
            Component::Gpu(uuid) => self.gpu(*uuid)?.1.block.as_ref(),
            Component::Nic { .. } | Component::Rack(_) => None,
        }
    }

    /// Applies the health state to the records of hosts and GPUs; blocks without a condition of their own are
    /// an admin's.
    fn take_over_blocks(&mut self) {
        let State { health, hosts, .. } = self;
        for host in hosts.values() {
            let gpus = host.gpus.iter();
            let blocks = gpus.map(|gpu| (Component::Gpu(gpu.uuid), &gpu.block));
            let of_host = (Component::Host(host.id), &host.block);
            for (component, block) in blocks.chain([of_host]) {
                if let Some(block) = block {
                    health.adopt_block(&component, block);
                }
            }
        }
        let ids: Vec<HostId> = hosts.keys().copied().collect();
        for id in ids {
            let limits = hosts.get(&id).map(|host| limits_of(health, host));
            let (on_probation, no_gangs) = limits.unwrap_or_default();
            if (on_probation || no_gangs)
                && let Some(host) = hosts.get_mut(&id)
            {
                let host = Arc::make_mut(host);
                host.on_probation = on_probation;
                host.no_gangs = no_gangs;
            }
        }
    }

    /// Builds the state from the parts of a snapshot.
    #[must_use]
    pub fn restore(parts: StateParts) -> Self {
        let hosts = parts.hosts;
        let mut state = Self {
            revision: parts.revision,
            time: parts.time,
            leadership: parts.leadership,
            recovery: parts.recovery,
            replicas: parts.replicas,
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
            health: parts.health,
            health_rules: parts.health_rules,
            configured_topology: parts.configured_topology,
            topology: Arc::default(),
            users: parts
                .users
                .into_iter()
                .map(|(name, user)| (name, Arc::new(user)))
                .collect(),
            join_tokens: parts
                .join_tokens
                .into_iter()
                .map(|(id, token)| (id, Arc::new(token)))
                .collect(),
            requests: RequestLog::restore(parts.requests),
            events: parts.events,
            index: Index::default(),
        };
        state.health.adopt_rules(&state.health_rules.set);
        state.take_over_blocks();
        state.index = Index::rebuild(&state);
        state.topology = Arc::clone(state.index.tree.topology());
        state
    }
}
