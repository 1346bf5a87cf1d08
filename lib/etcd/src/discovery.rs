//! Finding replicas: for clients, workers and those that found a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::complaint::Complaint;
use crate::connection::Etcd;
use crate::error::EtcdError;
use crate::keys::Keys;
use crate::records::{self, Leader, Replica};

/// How often replicas are looked for though no change was told: a watch may be dead without saying so.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Pause after a change: several come together.
const SETTLE: Duration = Duration::from_millis(50);
/// Pause after a watch that ended: one that etcd lets nobody have ends at once, again and again.
const ENDED_PAUSE: Duration = Duration::from_secs(2);

/// What etcd says of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Addresses of the replicas that live, by id.
    pub replicas: BTreeMap<u64, String>,
    /// Who leads, if somebody says so.
    pub leader: Option<u64>,
    /// etcd's revision that this is of.
    revision: i64,
}

impl Discovered {
    /// The addresses, the leader's first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let leader = self.leader.and_then(|id| self.replicas.get(&id));
        let others = { self.replicas.iter() }.filter(|(id, _)| Some(**id) != self.leader);
        let others = others.map(|(_, address)| address);
        leader.into_iter().chain(others).cloned().collect()
    }
}

/// Asks once, every endpoint if need be.
///
/// # Errors
/// What the last endpoint said.
pub async fn discover(etcd: &mut Etcd, keys: &Keys) -> Result<Discovered, EtcdError> {
    let mut tries = etcd.endpoints().max(1);
    loop {
        tries -= 1;
        match ask(etcd, keys).await {
            Err(error) if error.is_of_endpoint() && tries > 0 => {
                tracing::debug!(%error, "the next endpoint of etcd is asked");
            }
            outcome => return outcome,
        }
    }
}

async fn ask(etcd: &mut Etcd, keys: &Keys) -> Result<Discovered, EtcdError> {
    let listing = etcd.list(&keys.replicas()).await?;
    let leader = etcd.get(&keys.leader()).await?;
    let leader: Option<Leader> = leader.and_then(|it| records::decode(it.value()));
    let replicas = listing.kvs.iter().filter_map(|it| {
        let replica: Replica = records::decode(it.value())?;
        Some((replica.id, replica.address))
    });
    Ok(Discovered {
        replicas: replicas.collect(),
        leader: leader.map(|leader| leader.id),
        revision: listing.revision,
    })
}

/// Tells of replicas whenever there are others, until it is dropped. Those that were known last count while etcd says nothing, or
/// that there are none: a cluster whose leases are over lives on.
pub async fn follow(mut etcd: Etcd, keys: Keys, mut tell: impl FnMut(&Discovered) + Send) {
    let mut backoff = Backoff::default();
    let mut complaint = Complaint::new("finding replicas");
    let mut told = Vec::new();
    loop {
        let outcome = match discover(&mut etcd, &keys).await {
            Ok(found) => {
                complaint.worked();
                backoff.reset();
                let addresses = found.addresses();
                if !addresses.is_empty() && addresses != told {
                    tell(&found);
                    told = addresses;
                }
                changed(&mut etcd, &keys, found.revision).await
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(pause) => sleep(pause).await,
            Err(error) => {
                complaint.failed(&error);
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Waits until something has changed after a revision, or it is time to look again; gives the pause before that.
async fn changed(etcd: &mut Etcd, keys: &Keys, after: i64) -> Result<Duration, EtcdError> {
    // Leader and replicas: the plan, which changes all the time, lies elsewhere.
    let mut replicas = etcd.watch(&keys.replicas(), after).await?;
    let mut leader = etcd.watch(&keys.leader(), after).await?;
    let told = async {
        loop {
            let next = tokio::select! {
                next = replicas.next() => next,
                next = leader.next() => next,
            };
            match next {
                Some(Ok(response)) if !response.events().is_empty() => return Some(SETTLE),
                // It was compacted, or is not allowed: what there is now is read anew.
                Some(Ok(response)) if response.canceled() => return Some(ENDED_PAUSE),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    };
    let told = timeout(LOOK_EVERY, told).await;
    let Some(pause) = told.unwrap_or(Some(SETTLE)) else {
        etcd.move_on();
        return Ok(ENDED_PAUSE);
    };
    Ok(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_asked_first() {
        let replicas = [(1, "a:1"), (2, "b:1"), (3, "c:1")];
        let mut found = Discovered {
            replicas: replicas.map(|(id, it)| (id, it.to_owned())).into(),
            leader: Some(2),
            revision: 5,
        };
        assert_eq!(found.addresses(), ["b:1", "a:1", "c:1"]);
        found.leader = Some(9);
        assert_eq!(found.addresses(), ["a:1", "b:1", "c:1"]);
    }
}
