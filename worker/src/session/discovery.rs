//! Finds the leader: asks all replicas at the same time and follows their hints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use muster_proto::v1;
use muster_tls::Dialer;
use tonic::transport::{Channel, Endpoint};

use super::attempt::{Opened, Refusal, attempt};

/// How long a connection may take: within a cluster it takes milliseconds, and one whose first packet was lost is sent
/// again only after a second, so a new one is sooner there.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// How often an idle connection is probed, and how long the answer may take: finds a peer that vanished.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Addresses learned from hints that are remembered beside the configured ones.
const LEARNED_MAX: usize = 16;

/// The replicas that are known.
#[derive(Debug)]
pub(super) struct Discovery {
    /// Configured addresses, then those learned from hints.
    addresses: Vec<String>,
    configured: usize,
    dialer: Dialer,
    channels: BTreeMap<String, Channel>,
}

impl Discovery {
    pub(super) fn new(configured: Vec<String>, dialer: Dialer) -> Self {
        Self {
            configured: configured.len(),
            dialer,
            addresses: configured,
            channels: BTreeMap::new(),
        }
    }

    /// Forgets connections whose packets may have been lost: such a one tries again later and later, and is of use only
    /// long after the link is back.
    pub(super) fn reconnect(&mut self) {
        self.channels.clear();
    }

    /// Asks every replica once, on a new connection if it did not answer before. The first welcome wins;
    /// a final rejection counts more than silence.
    pub(super) async fn find(&mut self, hello: &v1::Hello) -> Result<Opened, Refusal> {
        let mut refusal = Refusal::Unreachable("no replica is known".to_owned());
        let mut asked: BTreeSet<String> = self.addresses.iter().cloned().collect();
        let mut attempts = FuturesUnordered::new();
        for address in asked.clone() {
            match self.channel(&address) {
                Ok(channel) => attempts.push(ask(address, channel, hello)),
                Err(error) => refusal = error,
            }
        }
        while let Some((address, outcome)) = attempts.next().await {
            match outcome {
                Ok(opened) => return Ok(opened),
                Err(Refusal::NotLeader {
                    leader: Some(leader),
                }) if asked.insert(leader.clone()) => {
                    self.learn(&leader);
                    let channel = self.channel(&leader)?;
                    attempts.push(ask(leader, channel, hello));
                }
                Err(found) => {
                    if matches!(found, Refusal::Unreachable(_)) {
                        self.channels.remove(&address);
                    }
                    refusal = graver(refusal, found);
                }
            }
        }
        Err(refusal)
    }

    /// Takes over which replicas there are, beside the configured ones: those may all be replaced one day.
    pub(super) fn know(&mut self, replicas: &[String]) {
        if replicas.is_empty() {
            return;
        }
        let (configured, learned) = self.addresses.split_at(self.configured);
        let gone = learned.iter().filter(|address| !replicas.contains(address));
        for address in gone {
            self.channels.remove(address);
        }
        let is_new = |address: &&String| !configured.contains(address);
        let new: Vec<String> = replicas.iter().filter(is_new).cloned().collect();
        self.addresses.truncate(self.configured);
        self.addresses.extend(new.into_iter().take(LEARNED_MAX));
    }

    fn learn(&mut self, address: &str) {
        if self.addresses.len() >= self.configured + LEARNED_MAX {
            let forgotten = self.addresses.remove(self.configured);
            self.channels.remove(&forgotten);
        }
        self.addresses.push(address.to_owned());
    }

    fn channel(&mut self, address: &str) -> Result<Channel, Refusal> {
        if let Some(channel) = self.channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Refusal::Unreachable(format!("address `{address}`: {error}")))?;
        let endpoint = endpoint
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

/// Asks one replica, and says which.
async fn ask(
    address: String,
    channel: Channel,
    hello: &v1::Hello,
) -> (String, Result<Opened, Refusal>) {
    let outcome = attempt(address.clone(), channel, hello.clone()).await;
    (address, outcome)
}

/// The one that says more.
fn graver(known: Refusal, found: Refusal) -> Refusal {
    if matches!(known, Refusal::Rejected { .. }) {
        known
    } else {
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_replicas_are_known_though_all_that_were_configured_are_replaced() {
        let words =
            |list: &[&str]| -> Vec<String> { list.iter().map(|word| (*word).to_owned()).collect() };
        let mut discovery = Discovery::new(words(&["a:1", "b:1"]), Dialer::default());
        discovery.learn("c:1");
        discovery.know(&words(&["b:1", "c:1", "d:1"]));
        assert_eq!(discovery.addresses, words(&["a:1", "b:1", "c:1", "d:1"]));
        discovery.know(&words(&["d:1", "e:1"]));
        assert_eq!(discovery.addresses, words(&["a:1", "b:1", "d:1", "e:1"]));
        // An older leader does not say.
        discovery.know(&[]);
        assert_eq!(discovery.addresses, words(&["a:1", "b:1", "d:1", "e:1"]));
    }
}
