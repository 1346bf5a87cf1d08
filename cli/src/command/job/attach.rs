//! `muster job attach`.

use std::sync::Arc;

use clap::Args;
use muster_client::LogsRequest;
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use tokio::sync::Mutex;

use crate::command::job::logs::{Marks, Printer, TaskReader};
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

/// `muster job attach`
///
/// The standard input of a task is closed, so nothing can be typed: `muster job exec` runs a command beside
/// it.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The job, by id
    job: u64,
    /// The task
    #[arg(long, default_value = "0")]
    task: u32,
    /// Start with this many of the last lines
    #[arg(long, value_name = "LINES", default_value = "10")]
    tail: u64,
}

impl Attach {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect_to_follow().await?;
        let screen = options.screen();
        let printer = Printer::new(screen.clone(), self.job, Marks::default());
        let reader = TaskReader {
            client,
            request: LogsRequest {
                job: JobId(self.job),
                task: TaskIndex(self.task),
                stream: v1::LogStream::Both,
                timed: true,
                follow: true,
                tail_lines: Some(self.tail),
                ..LogsRequest::default()
            },
            printer: Arc::new(Mutex::new(printer)),
        };
        tokio::select! {
            followed = reader.follow(false) => followed?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.map_err(|error| Failure::internal(&error))?;
                let (job, task) = (self.job, self.task);
                screen.progress(&format!("note: detached; task {task} of job {job} continues"));
            }
        }
        Ok(Exit::Ok)
    }
}
