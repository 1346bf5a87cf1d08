//! Which cluster a command talks to, and how patiently.

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

/// Longest that one request takes, all tries together, where nothing else is said.
const DEADLINE: Duration = Duration::from_secs(15);

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Options {
    /// Scheduler replicas as host:port, comma separated; one is enough [env: MUSTER_ADDR]
    #[arg(long, global = true, value_name = "ADDRESSES", value_delimiter = ',')]
    address: Vec<String>,
    /// Endpoints of an etcd in which the replicas publish themselves, comma separated: counts where no address is given
    /// [env: MUSTER_ETCD]. MUSTER_ETCD_PREFIX, MUSTER_ETCD_USER, MUSTER_ETCD_PASSWORD_FILE, MUSTER_ETCD_CACERT, MUSTER_ETCD_CERT and
    /// MUSTER_ETCD_KEY say the rest (docs/etcd.md)
    // By the name of the roles' option: `muster scheduler` and `muster worker` have that one in its place.
    #[arg(
        id = "settings.etcd.endpoints",
        long = "etcd",
        global = true,
        value_name = "ENDPOINTS",
        value_delimiter = ','
    )]
    etcd: Vec<String>,
    /// A cluster of ~/.config/muster/contexts.yaml [env: MUSTER_CONTEXT]. Without one, MUSTER_CACERT, MUSTER_CERT, MUSTER_KEY,
    /// MUSTER_TOKEN and MUSTER_TOKEN_FILE say whom to trust and who calls
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Longest that one request may take (15s), all tries together. Commands that drain have a --deadline of their own, so there this
    /// one goes before the command's words: `muster --deadline 1m host drain ...`
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse::duration)]
    deadline: Option<Duration>,
    /// Form of the output
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    output: Format,
    /// Tables without a line of titles
    #[arg(long, global = true)]
    no_headers: bool,
    /// No progress notes on stderr
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl Options {
    /// Where results go.
    pub(crate) fn screen(&self) -> Screen {
        Screen {
            format: self.output,
            headers: !self.no_headers,
            quiet: self.quiet,
        }
    }

    /// With these endpoints of etcd, if there are any.
    #[must_use]
    pub(crate) fn with_etcd(mut self, endpoints: Vec<String>) -> Self {
        if !endpoints.is_empty() {
            self.etcd = endpoints;
        }
        self
    }

    /// Longest that one request takes, all tries together.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline.unwrap_or(DEADLINE)
    }

    /// A client for one request: nothing is sent but that.
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
            // A person is told, and may ask again.
            outwaits_refusals: false,
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

    /// How replicas at these addresses are called: whom to trust and who calls as with every other command, and the defaults for
    /// everything else.
    #[cfg(feature = "server")]
    pub(crate) fn settings_for(&self, addresses: Vec<String>) -> Result<ClientConfig, Failure> {
        let cluster = self.cluster()?;
        Ok(ClientConfig {
            tls: cluster.tls,
            token: cluster.token,
            ..ClientConfig::new(addresses)
        })
    }

    /// The context that is named on the command line.
    #[cfg(feature = "server")]
    pub(crate) fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// A client that will follow something: it knows all replicas, so that any may die.
    pub(crate) async fn connect_to_follow(&self) -> Result<Client, Failure> {
        let client = self.connect().await?;
        client.discover().await.map_err(while_looking)?;
        Ok(client)
    }

    /// Where replicas are looked for, if the command asks for it, or variables do and nothing that counts before them says where the
    /// replicas are: the current context does not.
    fn etcd(&self) -> Option<EtcdSettings> {
        let by_words = !self.address.is_empty() || self.context.is_some();
        let is_told = ["MUSTER_ADDR", "MUSTER_CONTEXT"]
            .iter()
            .any(|name| variable(name).is_some());
        let endpoints = if !self.etcd.is_empty() {
            self.etcd.clone()
        } else if by_words || is_told {
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

    /// The cluster and who speaks with it: of the context that is named here, else by variables, else of the current context.
    /// Addresses that are given here count before all of them.
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

/// A failure to learn where the replicas are, as such: nobody has asked for the cluster's status.
fn while_looking(error: ClientError) -> ClientError {
    let operation = "learn where the replicas are";
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

/// What variables say of the cluster.
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
    let words = list.split(',');
    words.map(|word| word.trim().to_owned()).collect()
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Freshness {
    /// Let any replica answer with what it has: works without a leader, may be out of date
    #[arg(long)]
    stale: bool,
}

impl Freshness {
    /// As the wire has it.
    pub(crate) fn consistency(self) -> Consistency {
        if self.stale {
            Consistency::Stale
        } else {
            Consistency::Linearizable
        }
    }
}

/// Of when a read shows the cluster.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Moment {
    #[command(flatten)]
    freshness: Freshness,
    /// Show it as it was at this revision (as answers, events and the audit log name it), as far as a replica's log still reaches
    #[arg(long, value_name = "REVISION", value_parser = value_parser!(u64).range(1..))]
    at: Option<u64>,
}

impl Moment {
    /// As the wire has it.
    pub(crate) fn consistency(self) -> Consistency {
        self.freshness.consistency()
    }

    /// Whether it is the past.
    pub(crate) fn is_past(self) -> bool {
        self.at.is_some()
    }

    /// A connection that reads the cluster as it was then.
    pub(crate) async fn connect(self, options: &Options) -> Result<Client, Failure> {
        let client = options.connect().await?;
        Ok(match self.at {
            Some(revision) => client.at(Revision(revision)),
            None => client,
        })
    }
}

/// Who runs the command: the author of what it does. In containers no variable tells.
pub(crate) fn current_user() -> String {
    ["MUSTER_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| variable(name))
        .unwrap_or_else(platform::user_name)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
