//! `muster health`.

use clap::{Args, Subcommand};
use muster_client::Client;
use muster_documents::{Component, RulesEffect};
use muster_health::rules::RuleSet;
use muster_model::ids::Revision;
use muster_model::limits::CONFIGURATION_BYTES_MAX;
use muster_proto::v1;

use crate::command::common::configuration::read_file;
use crate::command::common::list_output::show;
use crate::command::common::tickets::Tickets;
use crate::connection::{Moment, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, note, render_document, render_rows};
use crate::view::health::{is_called, is_healthy, render_rules_effect};

/// Commands of `muster health`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show GPUs, adapters and hosts that are not healthy, and breakers that are tripped
    List(List),
    /// Show how a GPU or a host reached its state
    History(History),
    /// Print the rules, in the format that `apply` reads
    Rules(Rules),
    /// Replace the rules; `--dry-run` prints what they would have blocked
    Apply(Apply),
    /// Let rules block again in a pool after a review
    ResetBreaker(ResetBreaker),
    /// Call a program for every component that only an operator can return to service, repeatedly
    Tickets(Tickets),
}

/// `muster health list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Include components that are healthy now and have a history
    #[arg(short, long)]
    all: bool,
    /// Refresh the list after every change
    #[arg(short, long, conflicts_with = "at")]
    watch: bool,
    #[command(flatten)]
    moment: Moment,
}

/// `muster health history`
#[derive(Debug, Args)]
pub(crate) struct History {
    /// A host, or a GPU by UUID or as HOST:INDEX
    component: String,
    #[command(flatten)]
    moment: Moment,
}

/// `muster health rules`
#[derive(Debug, Args)]
pub(crate) struct Rules {
    #[command(flatten)]
    moment: Moment,
}

/// `muster health apply`
#[derive(Debug, Args)]
#[command(
    after_help = "muster health rules > rules.toml; muster health apply rules.toml --dry-run"
)]
pub(crate) struct Apply {
    /// The complete rule file, `-` for standard input
    #[arg(required_unless_present = "shipped")]
    file: Option<String>,
    /// The rules that ship with Muster
    #[arg(long, conflicts_with = "file")]
    shipped: bool,
    /// Change nothing; print what would have been blocked
    #[arg(long)]
    dry_run: bool,
}

/// `muster health reset-breaker`
#[derive(Debug, Args)]
pub(crate) struct ResetBreaker {
    /// The pool: the hosts' label `muster.pool`, or the model of their GPUs
    pool: String,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(options).await,
            Self::History(history) => history.run(options).await,
            Self::Rules(rules) => rules.run(options).await,
            Self::Apply(apply) => apply.run(options).await,
            Self::ResetBreaker(reset) => reset.run(options).await,
            Self::Tickets(tickets) => tickets.run(options).await,
        }
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        let screen = options.screen();
        show(&client, &screen, self.watch, async || {
            let health = client.health(consistency).await?;
            for breaker in &health.breakers {
                note(&format!(
                    "the breaker of pool {} is tripped: rules no longer block there on suspicion \
                     (muster health reset-breaker {})",
                    breaker.pool, breaker.pool
                ));
            }
            let all = health.components.into_iter().map(Component::from);
            let shown = all.filter(|component| self.all || !is_healthy(component));
            Ok((Revision(health.revision), shown.collect()))
        })
        .await?;
        Ok(Exit::Ok)
    }
}

impl History {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        let health = client.health(consistency).await?;
        let mut all = health.components.into_iter().map(Component::from);
        let found = all.find(|component| is_called(component, &self.component));
        let screen = options.screen();
        if found.is_none() {
            self.check(&client, consistency).await?;
            note(&format!(
                "{} has no health history (muster health list --all)",
                self.component
            ));
        }
        let changes = found.map_or_else(Vec::new, |component| component.history);
        screen.data(&render_rows(&screen, health.revision, &changes)?)?;
        Ok(Exit::Ok)
    }
}

impl History {
    /// Refuses an unknown host or GPU, which would look like one without a history.
    async fn check(&self, client: &Client, consistency: v1::Consistency) -> Result<(), Failure> {
        let name = &self.component;
        let hosts = v1::ListHostsRequest {
            names: vec![name.clone()],
            consistency: consistency.into(),
            ..v1::ListHostsRequest::default()
        };
        if !client.list_hosts(hosts).await?.1.is_empty() {
            return Ok(());
        }
        let place = name.rsplit_once(':');
        let gpus = v1::ListGpusRequest {
            hosts: place.iter().map(|(host, _)| (*host).to_owned()).collect(),
            consistency: consistency.into(),
            ..v1::ListGpusRequest::default()
        };
        let (_, gpus) = client.list_gpus(gpus).await?;
        let is_meant = |gpu: &v1::Gpu| match place {
            Some((host, index)) => gpu.host == host && gpu.index.to_string() == index,
            None => gpu.uuid == *name,
        };
        if gpus.iter().any(is_meant) {
            return Ok(());
        }
        Err(Failure::new(format!("unknown host or GPU `{name}`"))
            .help("`muster host list` and `muster gpu list` show them"))
    }
}

impl Rules {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let health = client.health(self.moment.consistency()).await?;
        options.screen().data(&health.rules)?;
        Ok(Exit::Ok)
    }
}

impl Apply {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let rules = match &self.file {
            Some(file) => {
                let (name, text) = read_file(file, CONFIGURATION_BYTES_MAX as u64)?;
                RuleSet::parse(&text)
                    .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
                text
            }
            None => String::new(),
        };
        let client = options.connect().await?;
        let answer = client
            .set_health_rules(v1::SetHealthRulesRequest {
                request_id: String::new(),
                author: current_user(),
                rules,
                dry_run: self.dry_run,
            })
            .await?;
        let screen = options.screen();
        let effect = RulesEffect::new(self.dry_run, answer);
        screen.report(&match screen.format {
            Format::Table | Format::Wide | Format::Name => render_rules_effect(&effect),
            format => render_document(format, &effect)?,
        })?;
        Ok(Exit::Ok)
    }
}

impl ResetBreaker {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        client.reset_breaker(&self.pool, &current_user()).await?;
        note(&format!("the breaker of pool {} is reset", self.pool));
        Ok(Exit::Ok)
    }
}
