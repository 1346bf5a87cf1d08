//! Settings of a client.

use std::time::Duration;

use muster_etcd::EtcdSettings;
use muster_tls::{TlsSettings, Token};

/// How a client finds the cluster, and how patient it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Replicas to begin with, as `host:port`; one is enough where `discover` is on, none where `etcd` is.
    pub addresses: Vec<String>,
    /// An etcd in which replicas are found. They are tried before `addresses`; with `discover` they are followed. The settings of a
    /// client that is connected name the replicas that were found instead.
    pub etcd: Option<EtcdSettings>,
    /// The cluster that is looked for in etcd; the `prefix` of `etcd` counts before it.
    pub cluster_id: String,
    /// Longest that one call may take, all its tries together.
    pub deadline: Duration,
    /// Longest that one try may take: short, so that a replica that hangs costs little.
    pub per_try_deadline: Duration,
    /// Longest that opening one connection may take.
    pub connect_deadline: Duration,
    /// How long to go on while not one replica has ever accepted a connection. Zero: every known address
    /// is tried once, which is what a person at a terminal wants.
    pub unreachable_deadline: Duration,
    /// Longest that a watch, or a log stream that follows, goes without any replica before it fails.
    pub reconnect_deadline: Duration,
    /// Whether a call goes on asking, until its deadline, where nothing was done because of what may pass: there is no room
    /// (`QUEUE_FULL`, `CLUSTER_FULL`), or a new replica does not answer yet (`REPLICA_UNREACHABLE`). If not, that is a refusal as any
    /// other, and told at once.
    pub outwaits_refusals: bool,
    /// The first wait between two rounds of tries is drawn from zero to this; doubled every round.
    pub backoff_base: Duration,
    /// No wait is drawn from more than this.
    pub backoff_max: Duration,
    /// Certificates, where the cluster has some: `ca` at least; `certificate` and `key` of a user who has them.
    pub tls: TlsSettings,
    /// The user's token. It is sent only over encrypted connections, and to replicas on this machine.
    pub token: Option<Token>,
    /// The span in which submissions happen, as the header `traceparent` of W3C's Trace Context names it: the spans of a job
    /// refer to it.
    pub traceparent: Option<String>,
    /// True: learns the other replicas from the first one that answers.
    pub discover: bool,
}

impl ClientConfig {
    /// Addresses, and the defaults for everything else.
    pub fn new<Address: Into<String>>(addresses: impl IntoIterator<Item = Address>) -> Self {
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The cluster whose replicas publish themselves in this etcd, and the defaults for everything else.
    #[must_use]
    pub fn of_etcd(etcd: EtcdSettings) -> Self {
        Self {
            addresses: Vec::new(),
            etcd: Some(etcd),
            ..Self::default()
        }
    }
}

impl Default for ClientConfig {
    /// A replica on loopback; calls of 30 s with tries of 5 s that outwait refusals, streams that wait 5 minutes for a replica.
    fn default() -> Self {
        Self {
            addresses: vec!["127.0.0.1:7400".to_owned()],
            etcd: None,
            cluster_id: "muster".to_owned(),
            deadline: Duration::from_secs(30),
            per_try_deadline: Duration::from_secs(5),
            connect_deadline: Duration::from_secs(1),
            unreachable_deadline: Duration::from_secs(30),
            reconnect_deadline: Duration::from_secs(300),
            outwaits_refusals: true,
            backoff_base: Duration::from_millis(20),
            backoff_max: Duration::from_millis(250),
            tls: TlsSettings::default(),
            token: None,
            traceparent: None,
            discover: true,
        }
    }
}
