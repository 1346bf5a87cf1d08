//! `muster gpu`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_client::Client;
use muster_documents::Gpu;
use muster_model::ids::GpuUuid;
use muster_proto::v1;

use crate::command::common::blocking::{self, BlockOptions, DrainOptions, Target, Terms};
use crate::command::common::list_output::{PhaseFilter, check_hosts, show};
#[cfg(feature = "server")]
use crate::command::local::gpu_check::Check;
use crate::connection::{Moment, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parse;

/// Commands of `muster gpu`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show GPUs
    List(List),
    /// Take GPUs out of placement; running tasks continue, or leave with --drain
    Block(Block),
    /// Return GPUs to placement
    Unblock(Unblock),
    /// Check idle GPUs of this machine: memory, matrix products, transfers to the host and between GPUs
    ///
    /// Prints a line for each GPU with metrics after `|`, as Nagios plugins do, and ends with 0 if all are
    /// healthy, 2 if one has a fault, and 3 if one could not be checked. Workers run it if their settings
    /// have it as `health.active_check`.
    #[cfg(feature = "server")]
    Check(Check),
}

/// `muster gpu list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// GPUs of these hosts, as node[01-16]; all by default
    hosts: Vec<String>,
    /// Only GPUs of this model
    #[arg(long, default_value = "")]
    model: String,
    /// Only GPUs that could be allocated now
    #[arg(long)]
    free: bool,
    /// Only GPUs that are blocked or faulted, by themselves or with their host
    #[arg(long)]
    out: bool,
    #[command(flatten)]
    phase_filter: PhaseFilter,
    /// Refresh the list after every change
    #[arg(short, long, conflicts_with = "at")]
    watch: bool,
    #[command(flatten)]
    moment: Moment,
}

/// `muster gpu block`
#[derive(Debug, Args)]
pub(crate) struct Block {
    /// GPUs, by UUID or as HOST:INDEX (node[01-04]:3)
    #[arg(required = true)]
    gpus: Vec<String>,
    #[command(flatten)]
    options: BlockOptions,
    #[command(flatten)]
    drain: DrainOptions,
}

/// `muster gpu unblock`
#[derive(Debug, Args)]
pub(crate) struct Unblock {
    /// GPUs, by UUID or as HOST:INDEX (node[01-04]:3)
    #[arg(required = true)]
    gpus: Vec<String>,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(options).await,
            Self::Block(block) => block.run(options).await,
            Self::Unblock(unblock) => unblock.run(options).await,
            #[cfg(feature = "server")]
            Self::Check(check) => check.run(options),
        }
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let request = v1::ListGpusRequest {
            hosts: parse::expand_all(&self.hosts).map_err(Failure::usage)?,
            model: self.model,
            free_only: self.free,
            out_only: self.out,
            phases: self.phase_filter.phases(),
            restricted_only: self.phase_filter.restrictions,
            consistency: self.moment.consistency().into(),
            ..v1::ListGpusRequest::default()
        };
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        let exit = check_hosts(&client, &request.hosts, consistency).await?;
        show(&client, &options.screen(), self.watch, async || {
            let (revision, mut gpus) = client.list_gpus(request.clone()).await?;
            gpus.sort_by(|a, b| (&a.host, a.index).cmp(&(&b.host, b.index)));
            Ok((revision, gpus.into_iter().map(Gpu::from).collect()))
        })
        .await?;
        Ok(exit)
    }
}

impl Block {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let wanted = GpuRef::parse_all(&self.gpus)?;
        let client = options.connect().await?;
        let targets = resolve(&client, wanted).await?;
        let screen = options.screen();
        let terms = Terms {
            drain: self.drain.grace(),
            ..Terms::default()
        };
        self.options.block(&client, &screen, &targets, terms).await
    }
}

impl Unblock {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let wanted = GpuRef::parse_all(&self.gpus)?;
        let client = options.connect().await?;
        let targets = resolve(&client, wanted).await?;
        blocking::unblock(&client, &options.screen(), &targets, false).await
    }
}

/// A GPU as given by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuRef {
    /// By UUID.
    Uuid(GpuUuid),
    /// By location.
    Place {
        /// The host's name.
        host: String,
        /// Its index on the host.
        index: u32,
    },
}

impl GpuRef {
    /// Parses GPUs given by UUID, or as HOST:INDEX, where HOST may be a list.
    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>, Failure> {
        let mut wanted = Vec::new();
        for text in texts {
            Self::parse(text, &mut wanted)?;
        }
        Ok(wanted)
    }

    fn parse(text: &str, wanted: &mut Vec<Self>) -> Result<(), Failure> {
        if let Ok(uuid) = text.parse() {
            wanted.push(Self::Uuid(uuid));
            return Ok(());
        }
        let invalid = || {
            let message = format!("invalid GPU `{text}`");
            Failure::usage(message).help("give a UUID (GPU-...) or HOST:INDEX (node01:3)")
        };
        let (hosts, index) = text.rsplit_once(':').ok_or_else(invalid)?;
        let index = index.parse().map_err(|_| invalid())?;
        let hosts = parse::expand(hosts).map_err(Failure::usage)?;
        wanted.extend(hosts.into_iter().map(|host| Self::Place { host, index }));
        Ok(())
    }
}

/// Error for a GPU that its host does not have.
pub(crate) fn no_such_gpu(host: &str, index: u32) -> Failure {
    Failure::new(format!("host `{host}` has no GPU with index {index}"))
        .help("`muster gpu list` shows the GPUs")
}

/// The UUID of every GPU; the cluster is asked only if some are given by location.
async fn resolve(client: &Client, wanted: Vec<GpuRef>) -> Result<Vec<Target>, Failure> {
    let hosts = wanted.iter().filter_map(|gpu| match gpu {
        GpuRef::Place { host, .. } => Some(host.clone()),
        GpuRef::Uuid(_) => None,
    });
    let hosts: Vec<String> = hosts.collect();
    let mut places = BTreeMap::new();
    if !hosts.is_empty() {
        let request = v1::ListGpusRequest {
            hosts,
            ..v1::ListGpusRequest::default()
        };
        let (_, gpus) = client.list_gpus(request).await?;
        places.extend(
            gpus.into_iter()
                .map(|gpu| ((gpu.host, gpu.index), gpu.uuid)),
        );
    }
    let targets = wanted.into_iter().map(|gpu| match gpu {
        GpuRef::Uuid(uuid) => Ok(Target::gpu(uuid.to_string())),
        GpuRef::Place { host, index } => {
            let missing = no_such_gpu(&host, index);
            let found = places.remove(&(host, index)).map(Target::gpu);
            found.ok_or(missing)
        }
    });
    targets.collect()
}
