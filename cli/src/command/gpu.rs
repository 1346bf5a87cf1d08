//! `muster gpu`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use muster_client::Client;
use muster_engine::state::State;
use muster_model::ids::GpuUuid;
use muster_proto::v1;

use crate::command::blocking::{self, BlockOptions, DrainOptions, Target, Terms};
#[cfg(feature = "server")]
use crate::command::gpu_check::Check;
use crate::command::listing::{StandingFilter, check_hosts, show};
use crate::connection::{Moment, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parse;
use crate::view::GpuView;

/// What to do with GPUs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show GPUs
    List(List),
    /// Take GPUs out of placement; what runs there goes on, or leaves with --drain
    Block(Block),
    /// Let GPUs back in
    Unblock(Unblock),
    /// Check GPUs of this machine on which nothing runs: memory, products of matrices, ways to the host and to each other
    ///
    /// Prints a line for each GPU with figures behind `|`, as Nagios plugins do, and ends with 0 if all are well, 2 if something
    /// is wrong with one, and 3 if one could not be checked. Workers run it where their settings name it as
    /// `health.active_check`.
    #[cfg(feature = "server")]
    Check(Check),
}

/// `muster gpu list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// GPUs of these hosts, as node[01-16]; all if none is given
    hosts: Vec<String>,
    /// Only GPUs of this model
    #[arg(long, default_value = "")]
    model: String,
    /// Only GPUs that could be given out now
    #[arg(long)]
    free: bool,
    /// Only GPUs that are blocked or faulted, by themselves or with their host
    #[arg(long)]
    out: bool,
    #[command(flatten)]
    standing: StandingFilter,
    /// Show the list again whenever something changes
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
    /// Does it.
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
            phases: self.standing.phases(),
            kept_off_only: self.standing.kept_off,
            consistency: self.moment.consistency().into(),
            ..v1::ListGpusRequest::default()
        };
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        let exit = check_hosts(&client, &request.hosts, consistency).await?;
        show(&client, &options.screen(), self.watch, async || {
            let (revision, mut gpus) = client.list_gpus(request.clone()).await?;
            gpus.sort_by(|a, b| (&a.host, a.index).cmp(&(&b.host, b.index)));
            Ok((revision, gpus.into_iter().map(GpuView::from).collect()))
        })
        .await?;
        Ok(exit)
    }
}

impl Block {
    /// Does it.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let wanted = Wanted::parse_all(&self.gpus)?;
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
    /// Does it.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let wanted = Wanted::parse_all(&self.gpus)?;
        let client = options.connect().await?;
        let targets = resolve(&client, wanted).await?;
        blocking::unblock(&client, &options.screen(), &targets, false).await
    }
}

/// A GPU as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// By its identity.
    Uuid(GpuUuid),
    /// By where it is.
    Place {
        /// The host's name.
        host: String,
        /// Its index there.
        index: u32,
    },
}

impl Wanted {
    /// Those that are named by UUID, or as HOST:INDEX, where HOST may be a list.
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
        let unusable = || {
            let message = format!("`{text}` names no GPU");
            Failure::usage(message).help("give a UUID (GPU-...) or HOST:INDEX (node01:3)")
        };
        let (hosts, index) = text.rsplit_once(':').ok_or_else(unusable)?;
        let index = index.parse().map_err(|_| unusable())?;
        let hosts = parse::expand(hosts).map_err(Failure::usage)?;
        wanted.extend(hosts.into_iter().map(|host| Self::Place { host, index }));
        Ok(())
    }

    /// Which one it is in a cluster's state.
    pub(crate) fn uuid_in(&self, state: &State) -> Result<GpuUuid, Failure> {
        match self {
            Self::Uuid(uuid) => Ok(*uuid),
            Self::Place { host, index } => {
                let gpus = state.host_by_name(host).map(|host| &host.gpus);
                let gpu = gpus.and_then(|gpus| gpus.iter().find(|gpu| gpu.index == *index));
                gpu.map(|gpu| gpu.uuid)
                    .ok_or_else(|| no_such_gpu(host, *index))
            }
        }
    }
}

fn no_such_gpu(host: &str, index: u32) -> Failure {
    Failure::new(format!("host `{host}` has no GPU of index {index}"))
        .help("`muster gpu list` shows the GPUs")
}

/// The UUID of every GPU; the cluster is only asked if some are named by their place.
async fn resolve(client: &Client, wanted: Vec<Wanted>) -> Result<Vec<Target>, Failure> {
    let hosts = wanted.iter().filter_map(|gpu| match gpu {
        Wanted::Place { host, .. } => Some(host.clone()),
        Wanted::Uuid(_) => None,
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
        Wanted::Uuid(uuid) => Ok(Target::gpu(uuid.to_string())),
        Wanted::Place { host, index } => {
            let missing = no_such_gpu(&host, index);
            let found = places.remove(&(host, index)).map(Target::gpu);
            found.ok_or(missing)
        }
    });
    targets.collect()
}
