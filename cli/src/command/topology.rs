//! `muster topology`.

use clap::{Args, Subcommand};
use muster_documents::TopologyEffect;
use muster_model::topology::{Topology, validate};
use muster_proto::v1;

use crate::command::common::configuration::{ApplyOptions, ConfigFile, print_file, unusable};
use crate::connection::{Moment, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::view::topology_effect;

/// Commands of `muster topology`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Print the topology, in the format that `apply` reads
    Get(Get),
    /// Replace the topology; running work is not stopped
    Apply(Apply),
}

/// `muster topology get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    moment: Moment,
}

/// `muster topology apply`
#[derive(Debug, Args)]
#[command(
    after_help = "muster topology get > topology.yaml; muster topology apply topology.yaml --dry-run"
)]
pub(crate) struct Apply {
    #[command(flatten)]
    apply: ApplyOptions,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Get(get) => get.run(options).await,
            Self::Apply(apply) => apply.run(options).await,
        }
    }
}

impl Get {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let (_, topology) = client.topology(self.moment.consistency()).await?;
        print_file(&options.screen(), &Topology::from(topology))?;
        Ok(Exit::Ok)
    }
}

impl Apply {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let file: ConfigFile<Topology> = self.apply.read()?;
        let broken = validate(&file.value);
        if !broken.is_empty() {
            let broken = broken.iter();
            let errors = file.locate(broken.map(|it| (it.field.as_str(), it.rule.as_str())));
            return Err(unusable(errors));
        }
        let client = options.connect().await?;
        let answer = client
            .set_topology(v1::SetTopologyRequest {
                request_id: String::new(),
                author: current_user(),
                topology: Some((&file.value).into()),
                dry_run: self.apply.dry_run(),
            })
            .await
            .map_err(|error| file.rejection(error))?;
        let screen = options.screen();
        let effect = TopologyEffect::new(self.apply.dry_run(), answer);
        screen.report(&match screen.format {
            Format::Table | Format::Wide => topology_effect::render(&effect),
            Format::Name => topology_effect::names(&effect),
            format => render_document(format, &effect)?,
        })?;
        Ok(Exit::Ok)
    }
}
