//! `muster host`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use muster_client::{Client, ClientError, WatchFilter, WatchUpdate};
use muster_documents::{Host, HostLocation};
use muster_proto::v1;

use crate::command::common::blocking::{
    self, BlockOptions, DrainOptions, HostOptions, Target, Terms,
};
use crate::command::common::list_output::{PhaseFilter, check_hosts, show};
use crate::connection::{Moment, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Screen;
use crate::parse;

/// Commands of `muster host`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show hosts
    List(List),
    /// Show the location of hosts in the cell tree, and its source
    Cells(Cells),
    /// Take hosts out of placement; running tasks continue, or leave with --drain
    Block(Block),
    /// Return hosts to placement
    Unblock(Unblock),
    /// Take hosts out of placement and move running tasks away
    Drain(Drain),
}

/// `muster host list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Hosts, as node[01-16]; all by default
    hosts: Vec<String>,
    /// Only hosts of this health
    #[arg(long, value_enum)]
    health: Vec<Health>,
    /// Only blocked hosts
    #[arg(long)]
    blocked: bool,
    #[command(flatten)]
    phase_filter: PhaseFilter,
    /// Refresh the list after every change
    #[arg(short, long, conflicts_with = "at")]
    watch: bool,
    #[command(flatten)]
    moment: Moment,
}

/// `muster host cells`
#[derive(Debug, Args)]
pub(crate) struct Cells {
    /// Hosts, as node[01-16]; all by default
    hosts: Vec<String>,
    #[command(flatten)]
    moment: Moment,
}

/// Health of a host as known to the leader.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Health {
    /// Its heartbeats arrive
    Up,
    /// Some are missing
    Suspect,
    /// It is considered dead
    Lost,
}

/// `muster host block`
#[derive(Debug, Args)]
pub(crate) struct Block {
    /// Hosts, as node[01-16]
    #[arg(required = true)]
    hosts: Vec<String>,
    #[command(flatten)]
    options: BlockOptions,
    #[command(flatten)]
    drain: DrainOptions,
    #[command(flatten)]
    host: HostOptions,
}

/// `muster host unblock`
#[derive(Debug, Args)]
pub(crate) struct Unblock {
    /// Hosts, as node[01-16]
    #[arg(required = true)]
    hosts: Vec<String>,
    /// Cancel the scheduled block instead; one in force stays
    #[arg(long)]
    planned: bool,
}

/// `muster host drain`
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Hosts, as node[01-16]
    #[arg(required = true)]
    hosts: Vec<String>,
    /// Time for tasks to save their work and leave; then they are killed
    #[arg(
        long,
        visible_alias = "deadline",
        value_name = "DURATION",
        value_parser = parse::duration,
        default_value = "5m"
    )]
    grace: Duration,
    #[command(flatten)]
    options: BlockOptions,
    #[command(flatten)]
    host: HostOptions,
    /// Wait until no task runs there
    #[arg(long)]
    wait: bool,
    /// With --wait: stop waiting after this time, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "wait")]
    timeout: Option<Duration>,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(options).await,
            Self::Cells(cells) => cells.run(options).await,
            Self::Block(block) => block.run(options).await,
            Self::Unblock(unblock) => unblock.run(options).await,
            Self::Drain(drain) => drain.run(options).await,
        }
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let request = v1::ListHostsRequest {
            names: parse::expand_all(&self.hosts).map_err(Failure::usage)?,
            healths: self
                .health
                .iter()
                .map(|health| health.wire().into())
                .collect(),
            blocked_only: self.blocked,
            phases: self.phase_filter.phases(),
            restricted_only: self.phase_filter.restrictions,
            consistency: self.moment.consistency().into(),
            ..v1::ListHostsRequest::default()
        };
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        let exit = check_hosts(&client, &request.names, consistency).await?;
        show(&client, &options.screen(), self.watch, async || {
            let (revision, mut hosts) = client.list_hosts(request.clone()).await?;
            // Sorted by name: the order of registration is meaningless to users.
            hosts.sort_by(|a, b| a.name.cmp(&b.name));
            Ok((revision, hosts.into_iter().map(Host::from).collect()))
        })
        .await?;
        Ok(exit)
    }
}

impl Cells {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let consistency = self.moment.consistency();
        let request = v1::ListHostsRequest {
            names: parse::expand_all(&self.hosts).map_err(Failure::usage)?,
            consistency: consistency.into(),
            ..v1::ListHostsRequest::default()
        };
        let client = self.moment.connect(options).await?;
        let exit = check_hosts(&client, &request.names, consistency).await?;
        show(&client, &options.screen(), false, async || {
            let (revision, mut hosts) = client.list_hosts(request.clone()).await?;
            hosts.sort_by(|a, b| a.name.cmp(&b.name));
            let places = hosts.into_iter().map(HostLocation::from);
            Ok((revision, places.collect()))
        })
        .await?;
        Ok(exit)
    }
}

impl Health {
    fn wire(self) -> v1::HostHealth {
        match self {
            Self::Up => v1::HostHealth::Up,
            Self::Suspect => v1::HostHealth::Suspect,
            Self::Lost => v1::HostHealth::Lost,
        }
    }
}

impl Block {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let targets = targets(&self.hosts)?;
        let client = options.connect().await?;
        let screen = options.screen();
        let terms = Terms {
            drain: self.drain.grace(),
            host: Some(self.host),
        };
        self.options.block(&client, &screen, &targets, terms).await
    }
}

impl Unblock {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let targets = targets(&self.hosts)?;
        let client = options.connect().await?;
        blocking::unblock(&client, &options.screen(), &targets, self.planned).await
    }
}

impl Drain {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let targets = targets(&self.hosts)?;
        let client = options.connect().await?;
        let screen = options.screen();
        if self.wait && self.host.is_for_later() {
            let problem = "--wait needs a drain that begins now, without --at";
            return Err(Failure::usage(problem));
        }
        let terms = Terms {
            drain: Some(self.grace),
            host: Some(self.host),
        };
        let exit = self
            .options
            .block(&client, &screen, &targets, terms)
            .await?;
        if exit != Exit::Ok || !self.wait || self.options.dry_run() {
            return Ok(exit);
        }
        client.discover().await?;
        let names = targets.into_iter().map(|target| target.name).collect();
        let empty = wait_until_empty(&client, &screen, names);
        match self.timeout {
            None => empty.await.map(|()| Exit::Ok),
            Some(timeout) => match tokio::time::timeout(timeout, empty).await {
                Ok(waited) => waited.map(|()| Exit::Ok),
                Err(_) => Ok(Exit::TimedOut),
            },
        }
    }
}

async fn wait_until_empty(
    client: &Client,
    screen: &Screen,
    names: Vec<String>,
) -> Result<(), Failure> {
    let request = v1::ListHostsRequest {
        names,
        ..v1::ListHostsRequest::default()
    };
    let filter = WatchFilter {
        jobs: Vec::new(),
        // A member of a gang may leave by itself while its attempt continues.
        kinds: vec![v1::EventKind::AttemptEnded, v1::EventKind::MemberVacated],
    };
    loop {
        let (revision, hosts) = client.list_hosts(request.clone()).await?;
        let tasks: u32 = hosts.iter().map(|host| host.tasks).sum();
        if tasks == 0 {
            return Ok(());
        }
        screen.progress(&format!("{tasks} tasks still run"));
        let mut watch = client.watch(Some(revision), filter.clone());
        loop {
            match watch.next().await {
                Ok(WatchUpdate::Events { .. }) | Err(ClientError::Compacted { .. }) => break,
                Ok(WatchUpdate::Bookmark { .. } | WatchUpdate::Resumed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn targets(hosts: &[String]) -> Result<Vec<Target>, Failure> {
    let names = parse::expand_all(hosts).map_err(Failure::usage)?;
    Ok(names.into_iter().map(Target::host).collect())
}
