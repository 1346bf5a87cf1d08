//! `muster job logs`.

mod printer;
mod task_reader;

use std::sync::Arc;

use clap::{Args, ValueEnum};
use muster_client::{Client, LogsRequest};
use muster_model::ids::{JobId, TaskIndex};
use muster_proto::v1;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parse::{self, TaskList};
pub(super) use printer::{Marks, Printer};
pub(super) use task_reader::TaskReader;
use task_reader::{NO_LOGS, tasks_of};

/// Tasks followed by one command at a time: each is a request that its worker serves permanently.
const TASKS_FOLLOWED_MAX: usize = 32;

/// The output stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Stream {
    /// Both, whole lines in the order of their arrival
    #[default]
    Both,
    /// Standard output
    Stdout,
    /// Standard error
    Stderr,
}

/// `muster job logs`
///
/// The output is stored on the hosts of the tasks, and stays there after their end until retention removes
/// it.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The job, by id
    job: u64,
    /// The tasks: 3, 0,4-7 or all
    #[arg(long, default_value = "0", value_parser = parse::task_list)]
    task: TaskList,
    /// The attempt, counted from 1; by default the newest
    #[arg(long)]
    attempt: Option<u32>,
    /// The attempt, by its epoch
    #[arg(long, conflicts_with = "attempt")]
    epoch: Option<u64>,
    /// Every attempt that is still known, oldest first
    #[arg(long, conflicts_with_all = ["attempt", "epoch"])]
    all_attempts: bool,
    /// The output stream
    #[arg(long, value_enum, default_value_t)]
    stream: Stream,
    /// Standard error only
    #[arg(long, conflicts_with = "stream")]
    stderr: bool,
    /// Start with this many of the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Start with output since an instant (2026-11-21T10:00:00Z), or a time ago (10m)
    #[arg(long, value_name = "TIME", value_parser = parse::instant, conflicts_with = "tail")]
    since: Option<u64>,
    /// Leave out output after an instant, or a time ago
    #[arg(long, value_name = "TIME", value_parser = parse::instant, conflicts_with = "follow")]
    until: Option<u64>,
    /// Continue with new output, across restarts of the task, until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Prefix each line with its task and stream
    #[arg(long)]
    prefix: bool,
    /// Prefix each line with its time, by the clock of its host
    #[arg(long)]
    timestamps: bool,
}

impl Logs {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = if self.follow {
            options.connect_to_follow().await?
        } else {
            options.connect().await?
        };
        let tasks = self.tasks(&client).await?;
        let marks = Marks {
            task: tasks.len() > 1,
            stream: self.prefix,
            time: self.timestamps,
        };
        let printer = Printer::new(options.screen(), self.job, marks);
        let printer = Arc::new(Mutex::new(printer));
        let readers: Vec<TaskReader> = tasks
            .into_iter()
            .map(|task| TaskReader {
                client: client.clone(),
                request: self.request(task),
                printer: Arc::clone(&printer),
            })
            .collect();
        if self.follow {
            follow(readers, self.all_attempts).await?;
            return Ok(Exit::Ok);
        }
        read(&readers, self.all_attempts, &printer).await
    }

    async fn tasks(&self, client: &Client) -> Result<Vec<TaskIndex>, Failure> {
        let tasks: Vec<TaskIndex> = match &self.task {
            TaskList::All => tasks_of(client, JobId(self.job)).await?,
            TaskList::Some(tasks) => tasks.iter().copied().map(TaskIndex).collect(),
        };
        if self.follow && tasks.len() > TASKS_FOLLOWED_MAX {
            let message = format!(
                "cannot follow {} tasks at a time: the limit is {TASKS_FOLLOWED_MAX}",
                tasks.len()
            );
            return Err(Failure::usage(message).help("select fewer with --task, or omit -f"));
        }
        Ok(tasks)
    }

    fn request(&self, task: TaskIndex) -> LogsRequest {
        let stream = match self.stream {
            _ if self.stderr => v1::LogStream::Stderr,
            Stream::Both => v1::LogStream::Both,
            Stream::Stdout => v1::LogStream::Stdout,
            Stream::Stderr => v1::LogStream::Stderr,
        };
        LogsRequest {
            job: JobId(self.job),
            task,
            attempt: self.attempt,
            epoch: self.epoch,
            stream,
            timed: true,
            since_ms: self.since,
            until_ms: self.until,
            follow: self.follow,
            tail_lines: self.tail,
        }
    }
}

/// Reads task after task. With several tasks, none blocks the others: a task without output is noted, and one
/// that cannot be read is an error.
async fn read(
    readers: &[TaskReader],
    all_attempts: bool,
    printer: &Mutex<Printer>,
) -> Result<Exit, Failure> {
    let (mut exit, mut without_output) = (Exit::Ok, 0);
    for reader in readers {
        let Err(error) = reader.read(all_attempts).await else {
            continue;
        };
        if readers.len() == 1 || error.exit() != Exit::Error {
            return Err(error);
        }
        if is_without_output(&error) {
            printer.lock().await.note(&error.text());
            without_output += 1;
        } else {
            error.print();
            exit = Exit::Error;
        }
    }
    if without_output > 0 && without_output == readers.len() {
        let message = format!("none of these {without_output} tasks has output");
        return Err(Failure::new(message).help("-f waits for future output"));
    }
    Ok(exit)
}

/// Whether a replica reports that there is no output: the task has not started, or the attempt does not
/// exist. A worker that cannot read the output gives the same reason and names no task.
fn is_without_output(error: &Failure) -> bool {
    error
        .refusal()
        .is_some_and(|refusal| refusal.reason == NO_LOGS && refusal.metadata.contains_key("task"))
}

/// Follows all at the same time; the first failure ends it.
async fn follow(readers: Vec<TaskReader>, all_attempts: bool) -> Result<(), Failure> {
    let mut running = JoinSet::new();
    for reader in readers {
        running.spawn(async move { reader.follow(all_attempts).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| Failure::internal(&error))??;
    }
    Ok(())
}
