//! Founding a cluster whose replicas find each other in etcd.
//!
//! Each publishes itself. Once as many as expected are there, each tries to make the key `bootstrap`, which names the members; etcd
//! takes the first. The member with the lowest id founds the group, the others wait to be told. The key stays for good, and so does
//! `epoch`, which the first leader writes: where either is, no cluster is founded anew.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;
use crate::complaint::Complaint;
use crate::connection::Etcd;
use crate::discovery::discover;
use crate::error::EtcdError;
use crate::keys::Keys;
use crate::records::{self, Bootstrap, FORMAT};
use crate::txn;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a replica knows that is to found a cluster with others.
#[derive(Clone, Debug)]
pub struct FoundingPlan {
    /// Its id.
    pub id: u64,
    /// How it is reached, `host:port`.
    pub address: String,
    /// Members that the cluster begins with.
    pub expect: usize,
    /// How long they are waited for.
    pub patience: Duration,
}

/// Who found the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founded {
    /// The first members.
    pub members: BTreeMap<u64, String>,
    /// Whether somebody has led it already: then there is nothing to found, whatever this replica's data say.
    pub has_begun: bool,
}

/// Why a replica does not found a cluster with others.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    /// Not all came, or etcd did not work.
    #[error(
        "{} of {expect} replicas have shown themselves in etcd within {} s: {}{}", .seen.len(), .patience.as_secs(), list(.seen),
        .last.as_ref().map(|it| format!("; {it}")).unwrap_or_default()
    )]
    Late {
        /// Those that did.
        seen: BTreeMap<u64, String>,
        /// How many were expected.
        expect: usize,
        /// How long was waited.
        patience: Duration,
        /// What etcd said last, if it did not work.
        last: Option<String>,
    },
    /// The cluster was founded by others.
    #[error(
        "etcd says that this cluster was founded by {}, and not by replica {id} at {address}: a replica that is added later joins it \
         (`join`), one that takes another's place has a new id, and a new cluster has another name or `etcd.prefix`", list(.members)
    )]
    Others {
        /// By whom.
        members: BTreeMap<u64, String>,
        /// This replica.
        id: u64,
        /// Where it is.
        address: String,
    },
    /// A cluster that was not founded through etcd publishes itself under these keys.
    #[error(
        "a cluster that was not founded through etcd lives under {prefix}: a replica that is added to it joins it (`join`), and a new \
         cluster has another name or `etcd.prefix`"
    )]
    Lives {
        /// Where its keys begin.
        prefix: String,
    },
}

fn list(members: &BTreeMap<u64, String>) -> String {
    if members.is_empty() {
        return "none".to_owned();
    }
    let members = members.iter();
    let words: Vec<String> = members
        .map(|(id, address)| format!("{id} ({address})"))
        .collect();
    words.join(", ")
}

/// What one look gave.
enum Look {
    Decided(Founded),
    Waits(BTreeMap<u64, String>),
}

/// Waits until it is decided who founds the cluster. This replica publishes itself meanwhile.
///
/// # Errors
/// Why this replica is not among them.
pub async fn gather(
    etcd: &mut Etcd,
    keys: &Keys,
    plan: &FoundingPlan,
) -> Result<Founded, FoundingError> {
    let deadline = Instant::now() + plan.patience;
    let mut backoff = Backoff::default();
    let mut complaint = Complaint::new("founding the cluster");
    let mut seen = BTreeMap::new();
    let mut last: Option<String>;
    loop {
        let pause = match look(etcd, keys, plan).await {
            Ok(Ok(Look::Decided(founded))) => return Ok(founded),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Look::Waits(found))) => {
                complaint.worked();
                if found != seen {
                    tracing::info!(
                        replicas = list(&found),
                        expected = plan.expect,
                        "replicas that will found the cluster"
                    );
                }
                (seen, last) = (found, None);
                backoff.reset();
                LOOK_EVERY
            }
            Err(error) => {
                complaint.failed(&error);
                last = Some(error.to_string());
                backoff.next()
            }
        };
        if Instant::now() + pause >= deadline {
            return Err(FoundingError::Late {
                seen,
                expect: plan.expect,
                patience: plan.patience,
                last,
            });
        }
        sleep(pause).await;
    }
}

async fn look(
    etcd: &mut Etcd,
    keys: &Keys,
    plan: &FoundingPlan,
) -> Result<Result<Look, FoundingError>, EtcdError> {
    let has_begun = etcd.get(&keys.epoch()).await?.is_some();
    if let Some(key) = etcd.get(&keys.bootstrap()).await? {
        return Ok(decided(key.value(), plan, has_begun, keys).map(Look::Decided));
    }
    if has_begun {
        let prefix = keys.prefix().to_owned();
        return Ok(Err(FoundingError::Lives { prefix }));
    }
    let found = discover(etcd, keys).await?.replicas;
    if let Some(members) = chosen(&found, plan) {
        let record = records::encode(&Bootstrap {
            format: FORMAT,
            members,
        });
        let (bootstrap, epoch) = (keys.bootstrap(), keys.epoch());
        let none_was = vec![txn::is_absent(&bootstrap), txn::is_absent(&epoch)];
        // Whoever was first: the next look reads it.
        etcd.txn(none_was, vec![txn::put(&bootstrap, &record)])
            .await?;
    }
    Ok(Ok(Look::Waits(found)))
}

/// The members, once there are enough: those with the lowest ids.
fn chosen(found: &BTreeMap<u64, String>, plan: &FoundingPlan) -> Option<BTreeMap<u64, String>> {
    let is_seen = found.get(&plan.id) == Some(&plan.address);
    let members: BTreeMap<u64, String> = { found.clone().into_iter() }.take(plan.expect).collect();
    (is_seen && members.len() == plan.expect).then_some(members)
}

fn decided(
    value: &[u8],
    plan: &FoundingPlan,
    has_begun: bool,
    keys: &Keys,
) -> Result<Founded, FoundingError> {
    let Some(Bootstrap { members, .. }) = records::decode(value) else {
        let prefix = keys.prefix().to_owned();
        return Err(FoundingError::Lives { prefix });
    };
    if members.get(&plan.id) == Some(&plan.address) {
        return Ok(Founded { members, has_begun });
    }
    Err(FoundingError::Others {
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

    fn plan(id: u64) -> FoundingPlan {
        FoundingPlan {
            id,
            address: format!("r{id}:7400"),
            expect: 3,
            patience: Duration::from_secs(1),
        }
    }

    #[test]
    fn members_are_those_with_the_lowest_ids_once_there_are_enough() {
        assert_eq!(chosen(&members(&[1, 2]), &plan(1)), None);
        assert_eq!(
            chosen(&members(&[1, 2, 4, 7]), &plan(7)),
            Some(members(&[1, 2, 4]))
        );
        assert_eq!(
            chosen(&members(&[1, 2, 4]), &plan(7)),
            None,
            "whoever is not seen itself does not choose"
        );
    }

    #[test]
    fn a_cluster_is_not_founded_anew() {
        let keys = Keys::new(None, "lab");
        let value = records::encode(&Bootstrap {
            format: FORMAT,
            members: members(&[1, 2, 3]),
        });
        let read = |id| decided(value.as_bytes(), &plan(id), true, &keys);
        assert!(read(2).is_ok_and(|it| it.has_begun && it.members == members(&[1, 2, 3])));
        assert!(matches!(read(4), Err(FoundingError::Others { id: 4, .. })));
        let moved = FoundingPlan {
            address: "elsewhere:7400".to_owned(),
            ..plan(2)
        };
        assert!(decided(value.as_bytes(), &moved, false, &keys).is_err());
        let unknown = decided(b"{\"format\":9}", &plan(1), false, &keys);
        assert!(matches!(unknown, Err(FoundingError::Lives { .. })));
    }
}
