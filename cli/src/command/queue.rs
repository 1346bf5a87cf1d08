//! `muster queue`.

use clap::{Args, Subcommand};
use muster_documents::{ChangedName, Queue, QueueChanges};
use muster_model::quota::QueueTree;
use muster_proto::v1;

use crate::command::common::configuration::{ApplyOptions, ConfigFile, print_file};
use crate::command::common::list_output::show;
use crate::connection::{Moment, Options, current_user};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::view::{queue, queue_changes};

/// Commands of `muster queue`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show queues with their usage and guarantees
    List(List),
    /// Show one queue; without a name, print the whole tree in the format that `apply` reads
    Get(Get),
    /// Replace the queue tree; running work is not stopped
    Apply(Apply),
    /// Create a queue or change its limit of unfinished jobs
    Set(Set),
}

/// `muster queue list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Refresh the list after every change
    #[arg(short, long, conflicts_with = "at")]
    watch: bool,
    #[command(flatten)]
    moment: Moment,
}

/// `muster queue get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Its full name: research/vision
    name: Option<String>,
    #[command(flatten)]
    moment: Moment,
}

/// `muster queue apply`
#[derive(Debug, Args)]
#[command(after_help = "muster queue get > queues.yaml; muster queue apply queues.yaml --dry-run")]
pub(crate) struct Apply {
    #[command(flatten)]
    apply: ApplyOptions,
}

/// `muster queue set`
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Its name
    name: String,
    /// Maximum number of unfinished jobs in it (1000000)
    #[arg(long, value_name = "COUNT")]
    live_jobs_max: Option<u64>,
}

impl Verb {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(options).await,
            Self::Get(get) => get.run(options).await,
            Self::Apply(apply) => apply.run(options).await,
            Self::Set(set) => set.run(options).await,
        }
    }
}

impl List {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        show(&client, &options.screen(), self.watch, async || {
            let (revision, queues) = client.list_queues(consistency).await?;
            Ok((revision, queues.into_iter().map(Queue::from).collect()))
        })
        .await
    }
}

impl Get {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = self.moment.connect(options).await?;
        let consistency = self.moment.consistency();
        let screen = options.screen();
        let Some(name) = self.name else {
            let (_, tree) = client.queue_tree(consistency).await?;
            let tree = QueueTree::try_from(tree).map_err(|error| Failure::internal(&error))?;
            print_file(&screen, &tree)?;
            return Ok(Exit::Ok);
        };
        let (_, queues) = client.list_queues(consistency).await?;
        let found = queues.into_iter().find(|queue| queue.name == name);
        let found = found.ok_or_else(|| {
            Failure::new(format!("queue `{name}` does not exist"))
                .help("`muster queue list` shows the queues")
        })?;
        let found = Queue::from(found);
        screen.data(&match screen.format {
            Format::Table | Format::Wide => queue::render(&found),
            Format::Name => format!("{name}\n"),
            format => render_document(format, &found)?,
        })?;
        Ok(Exit::Ok)
    }
}

impl Apply {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let file: ConfigFile<QueueTree> = self.apply.read()?;
        let client = options.connect().await?;
        let answer = client
            .configure_queues(v1::ConfigureQueuesRequest {
                request_id: String::new(),
                author: current_user(),
                tree: Some((&file.value).into()),
                dry_run: self.apply.dry_run(),
            })
            .await
            .map_err(|error| file.rejection(error))?;
        let screen = options.screen();
        let changes = QueueChanges::new(self.apply.dry_run(), answer);
        screen.report(&match screen.format {
            Format::Table | Format::Wide => queue_changes::render(&changes),
            Format::Name => queue_changes::names(&changes),
            format => render_document(format, &changes)?,
        })?;
        Ok(Exit::Ok)
    }
}

impl Set {
    async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let revision = client.set_queue(&self.name, self.live_jobs_max).await?;
        let screen = options.screen();
        screen.report(&match screen.format {
            Format::Table | Format::Wide => format!("queue {} set\n", self.name),
            Format::Name => format!("{}\n", self.name),
            format => {
                let changed = ChangedName {
                    name: self.name,
                    revision: revision.get(),
                };
                render_document(format, &changed)?
            }
        })?;
        Ok(Exit::Ok)
    }
}
