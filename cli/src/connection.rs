//! Global options: the cluster that a command contacts, and timeouts.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use muster_client::{Client, ClientConfig, ClientError, EtcdSettings, TlsSettings, Token};
use muster_model::ids::Revision;
use muster_proto::v1::Consistency;

use crate::contexts::{self, Cluster, read_token};
use crate::failure::Failure;
use crate::output::{Format, Screen};
use crate::{parse, platform};

/// Default time limit of one request, including retries.
const DEADLINE: Duration = Duration::from_secs(15);

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Options {
    /// Scheduler replicas as host:port, comma separated; one is enough [env: MUSTER_ADDR]
    #[arg(long, global = true, value_name = "ADDRESSES", value_delimiter = ',')]
    address: Vec<String>,
    /// Endpoints of an etcd in which the replicas publish themselves, comma separated; used if no address is
    /// given [env: MUSTER_ETCD]. Further variables: MUSTER_ETCD_PREFIX, MUSTER_ETCD_USER,
    /// MUSTER_ETCD_PASSWORD_FILE, MUSTER_ETCD_CACERT, MUSTER_ETCD_CERT and MUSTER_ETCD_KEY (docs/etcd.md)
    // Named like the option of the roles: `muster scheduler` and `muster worker` replace it by their own.
    #[arg(
        id = "settings.etcd.endpoints",
        long = "etcd",
        global = true,
        value_name = "ENDPOINTS",
        value_delimiter = ','
    )]
    etcd: Vec<String>,
    /// A cluster of ~/.config/muster/contexts.yaml [env: MUSTER_CONTEXT]. Without one, MUSTER_CACERT,
    /// MUSTER_CERT, MUSTER_KEY, MUSTER_TOKEN and MUSTER_TOKEN_FILE set the trusted authority and the user
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Time limit of one request (15s), including retries. Commands that drain have a --deadline of their
    /// own; for them put this one before the command: `muster --deadline 1m host drain ...`
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse::duration)]
    deadline: Option<Duration>,
    /// Output format
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    output: Format,
    /// Tables without a header line
    #[arg(long, global = true)]
    no_headers: bool,
    /// No progress notes on stderr
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl Options {
    /// Output of results.
    pub(crate) fn screen(&self) -> Screen {
        Screen {
            format: self.output,
            headers: !self.no_headers,
            quiet: self.quiet,
        }
    }

    /// Sets etcd endpoints, if there are any.
    #[must_use]
    pub(crate) fn with_etcd(mut self, endpoints: Vec<String>) -> Self {
        if !endpoints.is_empty() {
            self.etcd = endpoints;
        }
        self
    }

    /// Time limit of one request, including retries.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline.unwrap_or(DEADLINE)
    }

    /// A client for one request, without any other traffic.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let defaults = ClientConfig::default();
        let cluster = self.cluster()?;
        let etcd = self.etcd();
        let addresses = match &etcd {
            Some(_) => Vec::new(),
            None => cluster.addresses.unwrap_or(defaults.addresses),
        };
        let config = ClientConfig {
            deadline: self.deadline(),
            unreachable_deadline: Duration::ZERO,
            // The user gets the error, and may retry.
            retries_temporary_refusals: false,
            discover: false,
            addresses,
            etcd,
            tls: cluster.tls,
            token: cluster.token,
            traceparent: variable("TRACEPARENT"),
            ..ClientConfig::default()
        };
        Ok(Client::connect(config).await?)
    }

    /// Client settings for replicas at these addresses: authority and user as for every other command, and
    /// defaults for everything else.
    #[cfg(feature = "server")]
    pub(crate) fn settings_for(&self, addresses: Vec<String>) -> Result<ClientConfig, Failure> {
        let cluster = self.cluster()?;
        Ok(ClientConfig {
            tls: cluster.tls,
            token: cluster.token,
            ..ClientConfig::new(addresses)
        })
    }

    /// The context given on the command line.
    #[cfg(feature = "server")]
    pub(crate) fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// A client for long-running commands: it knows all replicas, so that any may fail.
    pub(crate) async fn connect_to_follow(&self) -> Result<Client, Failure> {
        let client = self.connect().await?;
        client.discover().await.map_err(while_looking)?;
        Ok(client)
    }

    /// The etcd to find replicas in, if the command requests it, or if variables do and no source of higher
    /// precedence gives addresses; the current context does not count.
    fn etcd(&self) -> Option<EtcdSettings> {
        let has_flag = !self.address.is_empty() || self.context.is_some();
        let has_variable = ["MUSTER_ADDR", "MUSTER_CONTEXT"]
            .iter()
            .any(|name| variable(name).is_some());
        let endpoints = if !self.etcd.is_empty() {
            self.etcd.clone()
        } else if has_flag || has_variable {
            return None;
        } else {
            split(&variable("MUSTER_ETCD")?)
        };
        let file = |name: &str| variable(name).map(PathBuf::from);
        Some(EtcdSettings {
            endpoints,
            prefix: variable("MUSTER_ETCD_PREFIX"),
            user: variable("MUSTER_ETCD_USER"),
            password_file: file("MUSTER_ETCD_PASSWORD_FILE"),
            ca: file("MUSTER_ETCD_CACERT"),
            certificate: file("MUSTER_ETCD_CERT"),
            key: file("MUSTER_ETCD_KEY"),
        })
    }

    /// The cluster and user: from the context given here, else from variables, else from the current context.
    /// Addresses given here take precedence over all of them.
    fn cluster(&self) -> Result<Cluster, Failure> {
        let context = self.context.clone().or_else(|| variable("MUSTER_CONTEXT"));
        let of_context = contexts::cluster(context.as_deref())?;
        let mut cluster = match &self.context {
            Some(_) => of_context,
            None => by_variables()?.or(of_context),
        };
        if !self.address.is_empty() {
            cluster.addresses = Some(self.address.clone());
        }
        Ok(cluster)
    }
}

/// Relabels a failed lookup of the replicas: the user did not request the cluster's status.
fn while_looking(error: ClientError) -> ClientError {
    let operation = "find the replicas";
    match error {
        ClientError::Unreachable { tried, .. } => ClientError::Unreachable { operation, tried },
        ClientError::DeadlineExceeded {
            deadline, tried, ..
        } => ClientError::DeadlineExceeded {
            operation,
            deadline,
            tried,
        },
        other => other,
    }
}

/// The cluster according to variables.
fn by_variables() -> Result<Cluster, Failure> {
    let addresses = variable("MUSTER_ADDR");
    let file = |name: &str| variable(name).map(PathBuf::from);
    let token = match (variable("MUSTER_TOKEN"), file("MUSTER_TOKEN_FILE")) {
        (Some(text), _) => Some(Token::new(&text)),
        (None, Some(path)) => Some(read_token(&path)?),
        (None, None) => None,
    };
    Ok(Cluster {
        addresses: addresses.as_deref().map(split),
        tls: TlsSettings {
            ca: file("MUSTER_CACERT"),
            certificate: file("MUSTER_CERT"),
            key: file("MUSTER_KEY"),
            ca_key: None,
        },
        token,
    })
}

fn split(list: &str) -> Vec<String> {
    let items = list.split(',');
    items.map(|item| item.trim().to_owned()).collect()
}

/// Required freshness of a read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Freshness {
    /// Let any replica answer with what it has: works without a leader, may be out of date
    #[arg(long)]
    stale: bool,
}

impl Freshness {
    /// API value.
    pub(crate) fn consistency(self) -> Consistency {
        if self.stale {
            Consistency::Stale
        } else {
            Consistency::Linearizable
        }
    }
}

/// The revision that a read shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Moment {
    #[command(flatten)]
    freshness: Freshness,
    /// Show the state at this revision (as in answers, events and the audit log), if the log of a replica
    /// reaches back that far
    #[arg(long, value_name = "REVISION", value_parser = value_parser!(u64).range(1..))]
    at: Option<u64>,
}

impl Moment {
    /// API value.
    pub(crate) fn consistency(self) -> Consistency {
        self.freshness.consistency()
    }

    /// Whether it is a past revision.
    pub(crate) fn is_past(self) -> bool {
        self.at.is_some()
    }

    /// A connection that reads the cluster at that revision.
    pub(crate) async fn connect(self, options: &Options) -> Result<Client, Failure> {
        let client = options.connect().await?;
        Ok(match self.at {
            Some(revision) => client.at(Revision(revision)),
            None => client,
        })
    }
}

/// The user who runs the command: the author of its changes. In containers no variable may contain it.
pub(crate) fn current_user() -> String {
    ["MUSTER_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| variable(name))
        .unwrap_or_else(platform::user_name)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
