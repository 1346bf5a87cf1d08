//! Pausing and killing a replica of an external cluster, only while the cluster can spare one.
//!
//! A process id does not show to which cluster a replica belongs. So it is paused first, and every replica
//! that answered before is called: if exactly one is silent then, the process is that replica.

use futures::future::join_all;
use muster_client::{Client, ClientConfig};
use muster_proto::v1;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use crate::cluster::NamedProcess;
use crate::run::RunError;
use crate::run::external::connect;
use crate::run::external::faults::not_started_again;
use crate::run::external::nemesis::{ExternalNemesis, InjectedFault, LOOK};
use crate::run::options::{POLL, SHORT_FAULT};

/// Minimum voters for one to be spared: with fewer, the remaining ones are no majority.
const VOTERS_MIN: usize = 3;
/// Maximum time for all of them to catch up with the leader: under load they are a moment behind.
const LEVEL: Duration = Duration::from_secs(5);
/// Maximum time for a killed process to disappear; one that waits for its disk ends only after that.
const GONE: Duration = Duration::from_secs(10);
/// Reason why the fault was not injected.
const NO_REPLICA: &str = "none of the named replicas is running";

/// A replica with its own client.
pub(super) struct Replica {
    /// Its address for clients.
    pub(super) address: String,
    /// A client of this replica only.
    client: Client,
    /// Whether it answered when the run began.
    pub(super) was_there: bool,
}

impl Replica {
    /// All replicas of a cluster before the first fault.
    pub(super) async fn all(cluster: &ClientConfig) -> Result<Vec<Self>, RunError> {
        let mut all = Vec::new();
        for address in &cluster.addresses {
            let one = ClientConfig {
                addresses: vec![address.clone()],
                ..cluster.clone()
            };
            let mut replica = Self {
                address: address.clone(),
                client: connect(one).await?,
                was_there: false,
            };
            replica.was_there = replica.answers().await;
            all.push(replica);
        }
        Ok(all)
    }

    /// Whether it responds in time.
    async fn answers(&self) -> bool {
        let asked = self.client.status(v1::Consistency::Stale);
        matches!(timeout(LOOK, asked).await, Ok(Ok(_)))
    }

    /// Describes how far it is behind a revision of the leader; `None` if it has caught up.
    pub(super) async fn lag_behind(&self, revision: u64) -> Option<String> {
        let (address, asked) = (&self.address, self.client.status(v1::Consistency::Stale));
        match timeout(LOOK, asked).await {
            Ok(Ok(seen)) if seen.revision >= revision => None,
            Ok(Ok(seen)) => {
                let has = seen.revision;
                Some(format!(
                    "the replica at {address} is at {has}, the leader at {revision}"
                ))
            }
            _ => Some(format!("the replica at {address} does not answer")),
        }
    }
}

/// A paused process that is known to be a replica of this cluster.
struct PausedReplica<'a> {
    process: &'a NamedProcess,
    address: &'a str,
    since: Instant,
}

impl ExternalNemesis {
    pub(super) async fn freeze_replica(&self) -> Result<InjectedFault, RunError> {
        let held = match self.hold_replica().await? {
            Ok(held) => held,
            Err(why) => return Ok(InjectedFault::not_made(why)),
        };
        sleep_until(held.since + SHORT_FAULT).await;
        held.process.thaw()?;
        Ok(InjectedFault::made(held.words()))
    }

    pub(super) async fn kill_replica(&self) -> Result<InjectedFault, RunError> {
        let held = match self.hold_replica().await? {
            Ok(held) => held,
            Err(why) => return Ok(InjectedFault::not_made(why)),
        };
        let what = held.words();
        held.process.kill()?;
        let deadline = Instant::now() + GONE;
        while held.process.is_alive() {
            if Instant::now() > deadline {
                let text = format!(
                    "{what}, was killed but still exists {} s later",
                    GONE.as_secs()
                );
                return Err(RunError::Harness(text));
            }
            sleep(POLL).await;
        }
        match self.await_whole().await {
            None => Ok(InjectedFault::made(what)),
            Some(missing) => Err(not_started_again(&format!("{what} ({missing})"))),
        }
    }

    /// Pauses the first named replica that runs, if one can be spared and it belongs to this cluster; else
    /// returns the reason.
    async fn hold_replica(&self) -> Result<Result<PausedReplica<'_>, String>, RunError> {
        let is_live = |process: &&NamedProcess| process.host.is_none() && process.is_alive();
        let Some(process) = self.processes.iter().find(is_live) else {
            return Ok(Err(NO_REPLICA.to_owned()));
        };
        let voters = match self.await_voters().await {
            Ok(voters) => voters,
            Err(why) => return Ok(Err(why)),
        };
        process.freeze()?;
        let since = Instant::now();
        sleep(POLL).await;
        let answers = join_all(voters.iter().map(|voter| voter.answers())).await;
        let silent = voters.iter().zip(answers).filter(|(_, answers)| !answers);
        let silent: Vec<&str> = silent.map(|(voter, _)| voter.address.as_str()).collect();
        let why = match silent[..] {
            [address] => {
                return Ok(Ok(PausedReplica {
                    process,
                    address,
                    since,
                }));
            }
            [] => "all replicas of the cluster answered: it is not one of them".to_owned(),
            _ => format!("there was no response from {}", silent.join(" and ")),
        };
        process.thaw()?;
        let pid = process.pid;
        Ok(Err(format!("while process {pid} was paused, {why}")))
    }

    /// Waits until every voter answers and has caught up with the leader, so that one can be spared;
    /// returns the first failed check on timeout.
    async fn await_voters(&self) -> Result<Vec<&Replica>, String> {
        let deadline = Instant::now() + LEVEL;
        loop {
            let voters = self.voters().await;
            if voters.is_ok() || Instant::now() > deadline {
                return voters;
            }
            sleep(POLL).await;
        }
    }

    async fn voters(&self) -> Result<Vec<&Replica>, String> {
        let asked = self.client.status(v1::Consistency::Linearizable);
        let Ok(Ok(status)) = timeout(LOOK, asked).await else {
            return Err("there is no leader".to_owned());
        };
        let mut voters = Vec::new();
        for address in voters_of(&status)? {
            let voter = self.replicas.iter().find(|it| it.address == address);
            let voter = voter.ok_or_else(|| format!("the replica at {address} is new"))?;
            if let Some(missing) = voter.lag_behind(status.revision).await {
                return Err(missing);
            }
            voters.push(voter);
        }
        Ok(voters)
    }
}

impl PausedReplica<'_> {
    fn words(&self) -> String {
        let (pid, address) = (self.process.pid, self.address);
        format!("process {pid}, the replica at {address}")
    }
}

/// Addresses of the voters, if one of them can be spared.
fn voters_of(status: &v1::GetStatusResponse) -> Result<Vec<&str>, String> {
    // A replica with an unknown role may be a voter.
    let voters = status.replicas.iter();
    let voters = voters.filter(|replica| replica.role() != v1::ReplicaRole::Learner);
    let voters: Vec<&str> = voters.map(|replica| replica.address.as_str()).collect();
    if voters.len() < VOTERS_MIN {
        let count = voters.len();
        return Err(format!(
            "without one of the {count} voters there is no majority"
        ));
    }
    Ok(voters)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn one_can_be_spared_only_if_those_that_are_left_are_a_majority() {
        use v1::ReplicaRole::{Follower, Leader, Learner};
        let status = |roles: &[v1::ReplicaRole]| {
            let replicas = (1..).zip(roles).map(|(id, role)| v1::Replica {
                id,
                address: format!("node{id}:7400"),
                role: (*role).into(),
                ..v1::Replica::default()
            });
            v1::GetStatusResponse {
                replicas: replicas.collect(),
                ..v1::GetStatusResponse::default()
            }
        };
        let three = status(&[Leader, Follower, Learner, Follower]);
        let addresses = ["node1:7400", "node2:7400", "node4:7400"];
        assert_eq!(voters_of(&three).unwrap(), addresses);
        // A learner does not count.
        assert!(voters_of(&status(&[Leader, Follower, Learner])).is_err());
        assert!(voters_of(&status(&[Leader])).is_err());
    }
}
