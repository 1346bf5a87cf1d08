//! Discovery of replicas: for clients, workers and replicas that form a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{sleep, timeout};

use crate::backoff::backoff;
use crate::connection::Etcd;
use crate::error::EtcdError;
use crate::failure_log::FailureLog;
use crate::keys::Keys;
use crate::records::{self, Leader, Replica};

/// Interval of re-reading without a reported change: a watch may be dead without an error.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a change, to combine several.
const SETTLE: Duration = Duration::from_millis(50);
/// Pause after a watch that ended: one that etcd denies ends at once, repeatedly.
const ENDED_PAUSE: Duration = Duration::from_secs(2);

/// A cluster's entries in etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Addresses of the live replicas, by id.
    pub replicas: BTreeMap<u64, String>,
    /// The leader, if one is published.
    pub leader: Option<u64>,
    /// etcd's revision of these entries.
    revision: i64,
}

impl Discovered {
    /// All addresses, the leader's first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let leader = self.leader.and_then(|id| self.replicas.get(&id));
        let others = self
            .replicas
            .iter()
            .filter(|(id, _)| Some(**id) != self.leader)
            .map(|(_, address)| address);
        leader.into_iter().chain(others).cloned().collect()
    }
}

/// Reads the entries once, trying every endpoint if necessary.
///
/// # Errors
/// The error of the last endpoint.
pub async fn discover(etcd: &mut Etcd, keys: &Keys) -> Result<Discovered, EtcdError> {
    let mut tries = etcd.endpoints().max(1);
    loop {
        tries -= 1;
        match ask(etcd, keys).await {
            Err(error) if error.is_of_endpoint() && tries > 0 => {
                tracing::debug!(%error, "trying the next endpoint of etcd");
            }
            outcome => return outcome,
        }
    }
}

async fn ask(etcd: &mut Etcd, keys: &Keys) -> Result<Discovered, EtcdError> {
    let listing = etcd.list(&keys.replicas()).await?;
    let leader: Option<Leader> = etcd
        .get(&keys.leader())
        .await?
        .and_then(|it| records::decode(it.value()));
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

/// Reports the replicas whenever they change, until dropped. The last known ones stay valid while etcd does
/// not answer or lists none: a cluster whose leases have expired may still be running.
pub async fn follow(mut etcd: Etcd, keys: Keys, mut on_change: impl FnMut(&Discovered) + Send) {
    let mut backoff = backoff();
    let mut failure_log = FailureLog::new("finding replicas");
    let mut reported = Vec::new();
    loop {
        let outcome = match discover(&mut etcd, &keys).await {
            Ok(found) => {
                failure_log.record_success();
                backoff.reset();
                let addresses = found.addresses();
                if !addresses.is_empty() && addresses != reported {
                    on_change(&found);
                    reported = addresses;
                }
                changed(&mut etcd, &keys, found.revision).await
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(pause) => sleep(pause).await,
            Err(error) => {
                failure_log.record_failure(&error);
                sleep(backoff.next_wait()).await;
            }
        }
    }
}

/// Waits until something has changed after a revision, or the interval is over; returns the pause before
/// re-reading.
async fn changed(etcd: &mut Etcd, keys: &Keys, after: i64) -> Result<Duration, EtcdError> {
    // Leader and replicas only: the plan, which changes constantly, is elsewhere.
    let mut replicas = etcd.watch(&keys.replicas(), after).await?;
    let mut leader = etcd.watch(&keys.leader(), after).await?;
    let change = async {
        loop {
            let next = tokio::select! {
                next = replicas.next() => next,
                next = leader.next() => next,
            };
            match next {
                Some(Ok(response)) if !response.events().is_empty() => return Some(SETTLE),
                // The revision was compacted, or the watch is denied: the current entries are re-read.
                Some(Ok(response)) if response.canceled() => return Some(ENDED_PAUSE),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    };
    let change = timeout(POLL_INTERVAL, change).await;
    let Some(pause) = change.unwrap_or(Some(SETTLE)) else {
        etcd.next_endpoint();
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
