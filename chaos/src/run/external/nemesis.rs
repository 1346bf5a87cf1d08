//! The nemesis of an external cluster: injects one allowed fault at a time, and waits until the cluster has
//! recovered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_client::Client;
use muster_model::ids::HostId;
use muster_proto::v1;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::cluster::timeline::{LineKind, Timeline};
use crate::cluster::{Fault, NamedProcess};
use crate::error_chain::chain;
use crate::run::RunError;
use crate::run::clock::now_us;
use crate::run::external::replicas::Replica;
use crate::run::external::{Tag, TargetOptions};
use crate::run::history::History;
use crate::run::nemesis::{Episode, NO_TARGET};
use crate::run::options::{POLL, WHOLE_TIMEOUT};

/// Timeout of one check: a replica that does not answer is not healthy.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// Result of a fault: its target, and whether it was injected.
pub(super) struct InjectedFault {
    /// Description of the target.
    pub(super) target: String,
    /// Whether it was injected.
    pub(super) made: bool,
}

impl InjectedFault {
    pub(super) fn made(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            made: true,
        }
    }

    /// A fault that was not injected, with the reason.
    pub(super) fn not_made(why: impl Into<String>) -> Self {
        Self {
            target: why.into(),
            made: false,
        }
    }
}

/// The fault injector with everything it needs.
pub(super) struct ExternalNemesis {
    pub(super) client: Client,
    pub(super) tag: Tag,
    pub(super) processes: Arc<Vec<NamedProcess>>,
    pub(super) history: Arc<History>,
    pub(super) random: ChaCha8Rng,
    /// Anomalies since the start of the fault.
    pub(super) odd: Vec<String>,
    /// Ids and names of the hosts that it may have blocked.
    pub(super) taken: BTreeMap<HostId, String>,
    timeline: Timeline,
    allowed: BTreeSet<Fault>,
    /// All replicas of the cluster when the run began.
    pub(super) replicas: Vec<Replica>,
    /// Hosts that were up when the run began.
    hosts: BTreeSet<String>,
}

impl ExternalNemesis {
    /// Reads the state of the cluster before the first fault.
    pub(super) async fn new(
        options: &TargetOptions,
        client: Client,
        replicas: Vec<Replica>,
        tag: Tag,
        processes: Arc<Vec<NamedProcess>>,
        history: Arc<History>,
        timeline: Timeline,
    ) -> Result<Self, RunError> {
        let (_, hosts) = client.list_hosts(v1::ListHostsRequest::default()).await?;
        let up = hosts.into_iter().filter(is_up).map(|host| host.name);
        let hosts: BTreeSet<String> = up.collect();
        for process in processes.iter() {
            let stranger = { process.host.iter() }.find(|host| !hosts.contains(*host));
            if let Some(host) = stranger {
                let text = format!(
                    "process {} belongs to host {host}, which is not up",
                    process.pid
                );
                return Err(RunError::Harness(text));
            }
        }
        Ok(Self {
            client,
            tag,
            processes,
            history,
            random: ChaCha8Rng::seed_from_u64(options.seed),
            odd: Vec::new(),
            taken: BTreeMap::new(),
            timeline,
            allowed: options.allowed.clone(),
            replicas,
            hosts,
        })
    }

    /// Injects one fault after a calm. A cluster that does not answer or recover in time is recorded in the
    /// episode.
    ///
    /// # Errors
    /// If it is not allowed, or a process cannot be signalled or is not restarted: not the cluster's
    /// failure.
    pub(super) async fn strike(&mut self, fault: Fault) -> Result<Episode, RunError> {
        if !self.allowed.contains(&fault) {
            let text = format!("{} is not allowed", fault.name());
            return Err(RunError::Harness(text));
        }
        let episode = Episode::begin(fault, &self.history, self.timeline).await;
        let act = match self.act(fault).await {
            Err(RunError::Client(error)) => {
                self.odd
                    .push(format!("no replica answers: {}", chain(&error)));
                InjectedFault::not_made(NO_TARGET)
            }
            done => done?,
        };
        let healed_us = now_us();
        let missing = self.await_whole().await;
        let whole_us = missing.is_none().then(now_us);
        let sign = if act.made {
            LineKind::Recovery
        } else {
            LineKind::Stage
        };
        self.timeline.print_line(sign, &act.target);
        if let Some(missing) = missing {
            let late = format!("the cluster did not recover in time: {missing}");
            self.timeline.print_line(LineKind::Fault, &late);
            self.odd.push(late);
        }
        Ok(Episode {
            target: act.target,
            healed_us,
            recovered_us: whole_us,
            effect: Some(act.made),
            anomalies: std::mem::take(&mut self.odd),
            ..episode
        })
    }

    async fn act(&mut self, fault: Fault) -> Result<InjectedFault, RunError> {
        match fault {
            Fault::GpuBlocked => self.block_gpu().await,
            Fault::HostBlocked => self.block_host().await,
            Fault::HostDrained => self.drain_host().await,
            Fault::JobsCancelled => self.cancel_jobs().await,
            Fault::LeadershipTransferred => self.transfer_leadership().await,
            Fault::AgentFrozen => self.freeze_agent().await,
            Fault::AgentKilled => self.kill_agent().await,
            Fault::ReplicaFrozen => self.freeze_replica().await,
            Fault::ReplicaKilled => self.kill_replica().await,
            other => {
                let text = format!("{} is not possible on an external cluster", other.name());
                Err(RunError::Harness(text))
            }
        }
    }

    /// Waits until the cluster has recovered; returns the first failed check on timeout.
    pub(super) async fn await_whole(&self) -> Option<String> {
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        loop {
            let missing = self.missing().await;
            if missing.is_none() || Instant::now() > deadline {
                return missing;
            }
            sleep(POLL).await;
        }
    }

    async fn missing(&self) -> Option<String> {
        let status = self.client.status(v1::Consistency::Linearizable);
        let Ok(Ok(status)) = timeout(LOOK, status).await else {
            return Some("there is no leader".to_owned());
        };
        for replica in self.replicas.iter().filter(|it| it.was_there) {
            let missing = replica.lag_behind(status.revision).await;
            if missing.is_some() {
                return missing;
            }
        }
        let listed = self.client.list_hosts(v1::ListHostsRequest::default());
        let Ok(Ok((_, hosts))) = timeout(LOOK, listed).await else {
            return Some("hosts could not be listed".to_owned());
        };
        let up: BTreeSet<String> = { hosts.into_iter().filter(is_up) }
            .map(|host| host.name)
            .collect();
        let absent = self.hosts.difference(&up).next();
        absent.map(|host| format!("host {host} is not up"))
    }
}

/// Whether a host's heartbeats arrive.
pub(super) fn is_up(host: &v1::Host) -> bool {
    host.health() == v1::HostHealth::Up
}
