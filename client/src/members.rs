//! The replicas that a client knows, their connections, and who is thought to lead.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_tls::{Dialer, Tls, is_loopback};
use tokio::time::Instant;
use tonic::transport::Endpoint;

use crate::config::ClientConfig;
use crate::credential::{Credential, Line};
use crate::error::ClientError;

/// Silence on a connection after which the peer is asked for a sign of life: a replica that hangs while
/// it serves a watch is noticed after twice this.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How often a client that is used learns which replicas there are: all that it began with may be replaced one day.
const LEARN_EVERY: Duration = Duration::from_secs(30);
/// The same while there is a reason to doubt what is known.
const LEARN_IN_DOUBT_EVERY: Duration = Duration::from_secs(1);

/// The known replicas. Shared by all clones of a client.
#[derive(Debug)]
pub(crate) struct Members {
    dialer: Dialer,
    credential: Credential,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// In the order in which they are tried.
    addresses: Vec<String>,
    channels: BTreeMap<String, Line>,
    leader: Option<String>,
    ever_connected: bool,
    /// When the replicas were last asked who they all are.
    learnt_at: Option<Instant>,
    /// Something has happened since that speaks for other replicas than those that are known.
    is_in_doubt: bool,
    /// Log index of the newest membership that was heard of.
    membership: Option<u64>,
}

impl Members {
    /// The replicas of a configuration, none connected yet.
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        if config.addresses.is_empty() {
            return Err(ClientError::Config {
                field: "addresses",
                rule: "must name at least one replica as host:port".to_owned(),
            });
        }
        if config.token.is_some() && !config.tls.is_on() {
            refuse_open_token(&config.addresses)?;
        }
        let mut known = Known {
            learnt_at: Some(Instant::now()),
            ..Known::default()
        };
        for address in &config.addresses {
            endpoint(address, config.connect_deadline)?;
            known.add(address);
        }
        let tls = Tls::load(&config.tls).map_err(|error| ClientError::Config {
            field: "tls",
            rule: error.to_string(),
        })?;
        tls.iter().for_each(Tls::keep_current);
        Ok(Self {
            dialer: Dialer::new(tls),
            credential: Credential::of(config.token.as_ref())?,
            known: Mutex::new(known),
        })
    }

    /// The replica to try next: the leader, else the first that is not among `tried`.
    pub(crate) fn next_untried(&self, tried: &[String]) -> Option<String> {
        let known = self.lock();
        let leader = known.leader.iter();
        leader
            .chain(&known.addresses)
            .find(|address| !tried.contains(address))
            .cloned()
    }

    /// A connection to a replica: the one that is open, else a new one.
    pub(crate) async fn channel(
        &self,
        address: &str,
        connect_deadline: Duration,
    ) -> Result<Line, tonic::transport::Error> {
        let open = self.lock().channels.get(address).cloned();
        if let Some(channel) = open {
            return Ok(channel);
        }
        let endpoint = parse(address, connect_deadline)?;
        let channel = self.credential.on(self.dialer.connect(&endpoint).await?);
        let mut known = self.lock();
        known.ever_connected = true;
        let channel = known
            .channels
            .entry(address.to_owned())
            .or_insert(channel)
            .clone();
        Ok(channel)
    }

    /// Forgets a connection that failed, and that its replica might lead.
    pub(crate) fn drop_channel(&self, address: &str) {
        let mut known = self.lock();
        known.channels.remove(address);
        if known.leader.as_deref() == Some(address) {
            known.leader = None;
        }
    }

    /// Remembers who leads.
    pub(crate) fn set_leader(&self, address: &str) {
        let mut known = self.lock();
        known.add(address);
        known.leader = Some(address.to_owned());
    }

    /// Tries a replica before the others from now on: it answered where one before it did not, and whoever hangs costs a
    /// whole try each time.
    pub(crate) fn prefer(&self, address: &str) {
        let mut known = self.lock();
        if let Some(at) = known.addresses.iter().position(|known| known == address) {
            known.addresses[..=at].rotate_right(1);
        }
    }

    /// Forgets who leads, if it was this one.
    pub(crate) fn unset_leader(&self, address: &str) {
        let mut known = self.lock();
        if known.leader.as_deref() == Some(address) {
            known.leader = None;
        }
    }

    /// Adds replicas that were learnt to be all that there are. Others are tried after them from now on: they may be gone.
    pub(crate) fn learn<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) {
        let mut known = self.lock();
        let all: Vec<&str> = addresses.into_iter().collect();
        for address in &all {
            known.add(address);
        }
        known
            .addresses
            .sort_by_key(|address| !all.contains(&&**address));
    }

    /// One that was tried was of no use: it may be gone for good.
    pub(crate) fn doubt(&self) {
        self.lock().is_in_doubt = true;
    }

    /// A replica goes by the membership with this log index. After a newer one than before it is learnt at once, for the next
    /// failure may take the last one that is known; replicas that lag say nothing.
    pub(crate) fn heard_membership(&self, index: u64) {
        let mut known = self.lock();
        if known.membership.is_some_and(|newest| newest < index) {
            known.is_in_doubt = true;
            known.learnt_at = None;
        }
        known.membership = known.membership.max(Some(index));
    }

    /// Whether it is time to learn again which replicas there are. Who is told so does it: nobody else is told for a while.
    pub(crate) fn should_learn(&self) -> bool {
        let mut known = self.lock();
        let pause = if known.is_in_doubt {
            LEARN_IN_DOUBT_EVERY
        } else {
            LEARN_EVERY
        };
        let is_due = known.learnt_at.is_none_or(|at| at.elapsed() >= pause);
        if is_due {
            known.learnt_at = Some(Instant::now());
            known.is_in_doubt = false;
        }
        is_due
    }

    /// Whether any replica ever accepted a connection.
    pub(crate) fn ever_connected(&self) -> bool {
        self.lock().ever_connected
    }

    /// All known addresses.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.lock().addresses.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change leaves the maps consistent, so a panic elsewhere does not spoil them.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn add(&mut self, address: &str) {
        if !address.is_empty() && !self.addresses.iter().any(|known| known == address) {
            self.addresses.push(address.to_owned());
        }
    }
}

/// Whoever listens on the way would be the user from then on.
fn refuse_open_token(addresses: &[String]) -> Result<(), ClientError> {
    match addresses.iter().find(|address| !is_loopback(address)) {
        None => Ok(()),
        Some(address) => Err(ClientError::Config {
            field: "token",
            rule: format!(
                "it is not sent to {address} over a connection that others can read: name the cluster's authority (`tls.ca`, \
                 MUSTER_CACERT)"
            ),
        }),
    }
}

/// The endpoint of an address, or an error that says what an address looks like.
fn endpoint(address: &str, connect_deadline: Duration) -> Result<Endpoint, ClientError> {
    let rule = || ClientError::Config {
        field: "addresses",
        rule: format!("`{address}` is not host:port"),
    };
    let endpoint = parse(address, connect_deadline).map_err(|_| rule())?;
    let authority = endpoint.uri().authority().ok_or_else(rule)?;
    authority.port().ok_or_else(rule)?;
    Ok(endpoint)
}

fn parse(address: &str, connect_deadline: Duration) -> Result<Endpoint, tonic::transport::Error> {
    let url = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    Ok(Endpoint::from_shared(url)?
        .connect_timeout(connect_deadline)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_are_no_replicas_any_more_are_tried_last() {
        let config = ClientConfig::new(["a:1", "b:1", "c:1"]);
        let members = Members::new(&config).unwrap();
        members.learn(["b:1", "c:1", "d:1"]);
        assert_eq!(members.addresses(), ["b:1", "c:1", "d:1", "a:1"]);
        assert!(!members.should_learn());
        members.doubt();
        assert!(!members.should_learn(), "not so soon");
        tokio::time::advance(LEARN_IN_DOUBT_EVERY).await;
        assert!(members.should_learn(), "the doubt is not forgotten");
        tokio::time::advance(LEARN_IN_DOUBT_EVERY).await;
        assert!(!members.should_learn());
        tokio::time::advance(LEARN_EVERY).await;
        assert!(members.should_learn());
    }

    #[tokio::test(start_paused = true)]
    async fn another_membership_is_learnt_at_once() {
        let members = Members::new(&ClientConfig::new(["a:1"])).unwrap();
        members.heard_membership(7);
        assert!(
            !members.should_learn(),
            "the first is the one that is known"
        );
        members.heard_membership(9);
        members.heard_membership(7);
        assert!(members.should_learn());
        members.heard_membership(9);
        assert!(!members.should_learn());
    }

    #[test]
    fn whoever_answered_last_is_tried_first_and_the_leader_before() {
        let config = ClientConfig::new(["a:1", "b:1", "c:1"]);
        let members = Members::new(&config).unwrap();
        members.prefer("c:1");
        assert_eq!(members.addresses(), ["c:1", "a:1", "b:1"]);
        assert_eq!(members.next_untried(&[]).as_deref(), Some("c:1"));
        members.prefer("unknown:1");
        members.set_leader("b:1");
        assert_eq!(members.next_untried(&[]).as_deref(), Some("b:1"));
        let tried = ["b:1".to_owned()];
        assert_eq!(members.next_untried(&tried).as_deref(), Some("c:1"));
    }
}
