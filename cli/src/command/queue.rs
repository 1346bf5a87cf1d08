//! `muster queue`.

use clap::{Args, Subcommand};

use super::listing::show;
use crate::connection::{Freshness, Options};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::view::QueueView;

/// What to do with queues.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show queues
    List(List),
    /// Create a queue or change one
    Set(Set),
}

/// `muster queue list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Show the list again whenever something changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    freshness: Freshness,
}

/// `muster queue set`
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Its name
    name: String,
    /// Jobs that may be unfinished in it at a time (1000000)
    #[arg(long, value_name = "COUNT")]
    live_jobs_max: Option<u64>,
}

impl Verb {
    /// Does it.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(options).await,
            Self::Set(set) => set.run(options).await,
        }
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let consistency = self.freshness.consistency();
        show(&client, &options.screen(), self.watch, async || {
            let (revision, queues) = client.list_queues(consistency).await?;
            Ok((revision, queues.into_iter().map(QueueView::from).collect()))
        })
        .await
    }
}

impl Set {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let revision = client.set_queue(&self.name, self.live_jobs_max).await?;
        let screen = options.screen();
        screen.data(&match screen.format {
            Format::Table | Format::Wide => format!("queue {} set\n", self.name),
            Format::Name => format!("{}\n", self.name),
            format => {
                let done = serde_json::json!({"name": self.name, "revision": revision});
                render_document(format, &done)?
            }
        })?;
        Ok(Exit::Ok)
    }
}
