//! Bootstrap of a cluster whose replicas find each other in etcd.
//!
//! Each replica publishes itself. Once the expected number has appeared, each tries to create the key
//! `bootstrap`, which lists the members; etcd accepts the first. The member with the lowest id initializes
//! the group, the others wait to be contacted. The key is permanent, and so is `epoch`, which the first
//! leader writes: if either exists, no new cluster is created.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backoff::backoff;
use crate::connection::Etcd;
use crate::discovery::discover;
use crate::error::EtcdError;
use crate::failure_log::FailureLog;
use crate::keys::Keys;
use crate::records::{self, Bootstrap, FORMAT};
use crate::txn;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Parameters of a replica that bootstraps a cluster with others.
#[derive(Clone, Debug)]
pub struct BootstrapPlan {
    /// Id of this replica.
    pub id: u64,
    /// Address of this replica, `host:port`.
    pub address: String,
    /// Number of initial members.
    pub expect: usize,
    /// Time to wait for them.
    pub wait_max: Duration,
}

/// Outcome of the bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapOutcome {
    /// The initial members.
    pub members: BTreeMap<u64, String>,
    /// Whether the cluster already had a leader: then nothing may be bootstrapped, whatever data this
    /// replica has.
    pub has_begun: bool,
}

/// Error of a replica that does not take part in a bootstrap.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// Not all members appeared, or etcd did not work.
    #[error(
        "{} of {expect} replicas have appeared in etcd within {} s: {}{}",
        .seen.len(), .wait_max.as_secs(), list(.seen),
        .last.as_ref().map(|it| format!("; {it}")).unwrap_or_default()
    )]
    TimedOut {
        /// Those that appeared.
        seen: BTreeMap<u64, String>,
        /// Expected number of members.
        expect: usize,
        /// Time waited.
        wait_max: Duration,
        /// Last error of etcd, if it did not work.
        last: Option<String>,
    },
    /// The cluster was bootstrapped by other members.
    #[error(
        "this cluster was bootstrapped in etcd by {}, without replica {id} at {address}: an added replica must join it \
         (`join`), a replacement needs a new id, and a new cluster needs another name or `etcd.prefix`", list(.members)
    )]
    NotAMember {
        /// Its initial members.
        members: BTreeMap<u64, String>,
        /// This replica.
        id: u64,
        /// Its address.
        address: String,
    },
    /// A cluster that was not bootstrapped through etcd publishes itself under these keys.
    #[error(
        "a cluster that was not bootstrapped through etcd uses {prefix}: an added replica must join it (`join`), and a \
         new cluster needs another name or `etcd.prefix`"
    )]
    ExistingCluster {
        /// Prefix of its keys.
        prefix: String,
    },
}

fn list(members: &BTreeMap<u64, String>) -> String {
    if members.is_empty() {
        return "none".to_owned();
    }
    let members = members.iter();
    let entries: Vec<String> = members
        .map(|(id, address)| format!("{id} ({address})"))
        .collect();
    entries.join(", ")
}

/// Result of one poll.
enum PollResult {
    Decided(BootstrapOutcome),
    Waits(BTreeMap<u64, String>),
}

/// Waits until the initial members are decided. This replica publishes itself meanwhile.
///
/// # Errors
/// The reason that this replica is not among them.
pub async fn bootstrap(
    etcd: &mut Etcd,
    keys: &Keys,
    plan: &BootstrapPlan,
) -> Result<BootstrapOutcome, BootstrapError> {
    let deadline = Instant::now() + plan.wait_max;
    let mut backoff = backoff();
    let mut failure_log = FailureLog::new("bootstrapping the cluster");
    let mut seen = BTreeMap::new();
    let mut last: Option<String>;
    loop {
        let pause = match poll(etcd, keys, plan).await {
            Ok(Ok(PollResult::Decided(outcome))) => return Ok(outcome),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(PollResult::Waits(found))) => {
                failure_log.record_success();
                if found != seen {
                    tracing::info!(
                        replicas = list(&found),
                        expected = plan.expect,
                        "replicas that will form the cluster"
                    );
                }
                (seen, last) = (found, None);
                backoff.reset();
                POLL_INTERVAL
            }
            Err(error) => {
                failure_log.record_failure(&error);
                last = Some(error.to_string());
                backoff.next_wait()
            }
        };
        if Instant::now() + pause >= deadline {
            return Err(BootstrapError::TimedOut {
                seen,
                expect: plan.expect,
                wait_max: plan.wait_max,
                last,
            });
        }
        sleep(pause).await;
    }
}

async fn poll(
    etcd: &mut Etcd,
    keys: &Keys,
    plan: &BootstrapPlan,
) -> Result<Result<PollResult, BootstrapError>, EtcdError> {
    let has_begun = etcd.get(&keys.epoch()).await?.is_some();
    if let Some(key) = etcd.get(&keys.bootstrap()).await? {
        return Ok(decided(key.value(), plan, has_begun, keys).map(PollResult::Decided));
    }
    if has_begun {
        let prefix = keys.prefix().to_owned();
        return Ok(Err(BootstrapError::ExistingCluster { prefix }));
    }
    let found = discover(etcd, keys).await?.replicas;
    if let Some(members) = choose_members(&found, plan) {
        let record = records::encode(&Bootstrap {
            format: FORMAT,
            members,
        });
        let (bootstrap, epoch) = (keys.bootstrap(), keys.epoch());
        let neither_exists = vec![txn::is_absent(&bootstrap), txn::is_absent(&epoch)];
        // The first transaction wins: the next poll reads its result.
        etcd.txn(neither_exists, vec![txn::put(&bootstrap, &record)])
            .await?;
    }
    Ok(Ok(PollResult::Waits(found)))
}

/// The members, once there are enough: those with the lowest ids.
fn choose_members(
    found: &BTreeMap<u64, String>,
    plan: &BootstrapPlan,
) -> Option<BTreeMap<u64, String>> {
    let is_seen = found.get(&plan.id) == Some(&plan.address);
    let members: BTreeMap<u64, String> = found.clone().into_iter().take(plan.expect).collect();
    (is_seen && members.len() == plan.expect).then_some(members)
}

fn decided(
    value: &[u8],
    plan: &BootstrapPlan,
    has_begun: bool,
    keys: &Keys,
) -> Result<BootstrapOutcome, BootstrapError> {
    let Some(Bootstrap { members, .. }) = records::decode(value) else {
        let prefix = keys.prefix().to_owned();
        return Err(BootstrapError::ExistingCluster { prefix });
    };
    if members.get(&plan.id) == Some(&plan.address) {
        return Ok(BootstrapOutcome { members, has_begun });
    }
    Err(BootstrapError::NotAMember {
        members,
        id: plan.id,
        address: plan.address.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ids: &[u64]) -> BTreeMap<u64, String> {
        ids.iter().map(|id| (*id, format!("r{id}:7400"))).collect()
    }

    fn plan(id: u64) -> BootstrapPlan {
        BootstrapPlan {
            id,
            address: format!("r{id}:7400"),
            expect: 3,
            wait_max: Duration::from_secs(1),
        }
    }

    #[test]
    fn members_are_those_with_the_lowest_ids_once_there_are_enough() {
        assert_eq!(choose_members(&members(&[1, 2]), &plan(1)), None);
        assert_eq!(
            choose_members(&members(&[1, 2, 4, 7]), &plan(7)),
            Some(members(&[1, 2, 4]))
        );
        assert_eq!(
            choose_members(&members(&[1, 2, 4]), &plan(7)),
            None,
            "a replica that is not visible itself does not choose"
        );
    }

    #[test]
    fn an_existing_cluster_is_not_bootstrapped_again() {
        let keys = Keys::new(None, "lab");
        let value = records::encode(&Bootstrap {
            format: FORMAT,
            members: members(&[1, 2, 3]),
        });
        let read = |id| decided(value.as_bytes(), &plan(id), true, &keys);
        assert!(read(2).is_ok_and(|it| it.has_begun && it.members == members(&[1, 2, 3])));
        assert!(matches!(
            read(4),
            Err(BootstrapError::NotAMember { id: 4, .. })
        ));
        let moved = BootstrapPlan {
            address: "elsewhere:7400".to_owned(),
            ..plan(2)
        };
        assert!(decided(value.as_bytes(), &moved, false, &keys).is_err());
        let unknown = decided(b"{\"format\":9}", &plan(1), false, &keys);
        assert!(matches!(
            unknown,
            Err(BootstrapError::ExistingCluster { .. })
        ));
    }
}
