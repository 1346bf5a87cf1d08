//! Discovery of the leader: asks all replicas concurrently and follows their hints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use muster_backoff::jitter;
use muster_monitor::replicas::KnownReplicas;
use muster_proto::v1;
use muster_tls::Dialer;
use tonic::transport::{Channel, Endpoint};

use crate::connection::session::attempt::{Opened, Refusal, attempt};
use crate::connection::session::pause::FREQUENT_PAUSE_MAX;

/// Connect timeout. Within a cluster connecting takes milliseconds; a lost first packet is sent again only
/// after a second, so a new connection is faster.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// Interval of keep-alive probes on an idle connection, and their timeout: detects a vanished peer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The known replicas, and the connections to them.
#[derive(Debug)]
pub(super) struct Discovery {
    replicas: KnownReplicas,
    dialer: Dialer,
    channels: BTreeMap<String, Channel>,
}

impl Discovery {
    pub(super) fn new(replicas: KnownReplicas, dialer: Dialer) -> Self {
        Self {
            replicas,
            dialer,
            channels: BTreeMap::new(),
        }
    }

    /// Drops connections whose packets may have been lost: their retransmissions back off, so they recover
    /// long after the link does.
    pub(super) fn reconnect(&mut self) {
        self.channels.clear();
    }

    /// Asks every replica, on a new connection if it did not answer before. The first welcome wins; a final
    /// rejection takes precedence over silence. While any replica is silent, those that answered that they
    /// do not lead are asked again: one of them may be elected because of that silence.
    pub(super) async fn find(&mut self, hello: &v1::Hello) -> Result<Opened, Refusal> {
        let mut refusal = Refusal::Unreachable("no replica is known".to_owned());
        let mut asked: BTreeSet<String> = self.replicas.addresses().into_iter().collect();
        self.channels.retain(|address, _| asked.contains(address));
        let mut attempts = FuturesUnordered::new();
        // Replicas that have not answered yet.
        let mut silent = BTreeSet::new();
        for address in asked.clone() {
            match self.channel(&address) {
                Ok(channel) => {
                    silent.insert(address.clone());
                    attempts.push(ask(address, channel, hello, Duration::ZERO));
                }
                Err(error) => refusal = error,
            }
        }
        while let Some((address, outcome)) = attempts.next().await {
            silent.remove(&address);
            match outcome {
                Ok(opened) => return Ok(opened),
                Err(Refusal::NotLeader {
                    leader: Some(leader),
                }) if asked.insert(leader.clone()) => {
                    let channel = self.channel(&leader)?;
                    silent.insert(leader.clone());
                    attempts.push(ask(leader, channel, hello, Duration::ZERO));
                }
                Err(found) => {
                    let answered = matches!(found, Refusal::NotLeader { .. });
                    if matches!(found, Refusal::Unreachable(_)) {
                        self.channels.remove(&address);
                    }
                    refusal = more_informative(refusal, found);
                    if answered && !silent.is_empty() {
                        let channel = self.channel(&address)?;
                        attempts.push(ask(address, channel, hello, jitter(FREQUENT_PAUSE_MAX)));
                    }
                }
            }
        }
        Err(refusal)
    }

    /// Replaces the learned replicas.
    pub(super) fn learn(&self, replicas: &[String]) {
        self.replicas.set_learned(replicas);
    }

    fn channel(&mut self, address: &str) -> Result<Channel, Refusal> {
        if let Some(channel) = self.channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Refusal::Unreachable(format!("address `{address}`: {error}")))?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        let channel = self.dialer.connect_lazy(&endpoint);
        self.channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Asks one replica after a pause; returns its address with the answer.
async fn ask(
    address: String,
    channel: Channel,
    hello: &v1::Hello,
    pause: Duration,
) -> (String, Result<Opened, Refusal>) {
    tokio::time::sleep(pause).await;
    let outcome = attempt(address.clone(), channel, hello.clone()).await;
    (address, outcome)
}

/// The more informative of two refusals.
fn more_informative(known: Refusal, found: Refusal) -> Refusal {
    if matches!(known, Refusal::Rejected { .. }) {
        known
    } else {
        found
    }
}
