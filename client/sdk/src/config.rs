//! Settings of a client.

use std::time::Duration;

use muster_etcd::EtcdSettings;
use muster_tls::{TlsSettings, Token};

/// Discovery and timeouts of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Initial replicas, as `host:port`; one is enough with `discover`, none with `etcd`.
    pub addresses: Vec<String>,
    /// An etcd for discovery of replicas. They are tried before `addresses`; with `discover` they are
    /// followed. The settings of a connected client contain the discovered replicas instead.
    pub etcd: Option<EtcdSettings>,
    /// Id of the cluster to look up in etcd; overridden by the `prefix` of `etcd`.
    pub cluster_id: String,
    /// Timeout of one call, all its attempts together.
    pub deadline: Duration,
    /// Timeout of one attempt: short, so that a hanging replica costs little.
    pub per_try_deadline: Duration,
    /// Timeout of opening one connection.
    pub connect_deadline: Duration,
    /// Time to keep trying while no replica has ever accepted a connection. Zero: every known address is
    /// tried once, as an interactive user expects.
    pub unreachable_deadline: Duration,
    /// Longest time without any replica before a watch, or a log stream that follows, fails.
    pub reconnect_deadline: Duration,
    /// Whether a call keeps retrying, until its deadline, refusals that may be temporary: there is no room
    /// (`QUEUE_FULL`, `CLUSTER_FULL`), or a new replica does not answer yet (`REPLICA_UNREACHABLE`). If
    /// not, such a refusal is returned at once like any other.
    pub retries_temporary_refusals: bool,
    /// The first wait between two rounds of attempts is drawn from zero to this; doubled every round.
    pub backoff_base: Duration,
    /// Upper bound of all waits.
    pub backoff_max: Duration,
    /// Certificates, if the cluster uses them: `ca` at least; `certificate` and `key` for a user who has
    /// them.
    pub tls: TlsSettings,
    /// The user's token. It is sent only over encrypted connections, and to replicas on this machine.
    pub token: Option<Token>,
    /// Parent span of submissions, in the format of W3C Trace Context's header `traceparent`: the spans of
    /// a job refer to it.
    pub traceparent: Option<String>,
    /// Whether the other replicas are reported from the first one that answers.
    pub discover: bool,
}

impl ClientConfig {
    /// Settings with these addresses, and defaults for everything else.
    pub fn new<Address: Into<String>>(addresses: impl IntoIterator<Item = Address>) -> Self {
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Settings for the cluster whose replicas publish themselves in this etcd, and defaults for everything
    /// else.
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
    /// A replica on loopback; calls of 30 s with attempts of 5 s that outwait refusals, streams that wait 5
    /// minutes for a replica.
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
            retries_temporary_refusals: true,
            backoff_base: Duration::from_millis(20),
            backoff_max: Duration::from_millis(250),
            tls: TlsSettings::default(),
            token: None,
            traceparent: None,
            discover: true,
        }
    }
}
