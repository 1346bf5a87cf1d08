//! `muster job logs`.

use std::time::Duration;

use clap::Args;
use muster_client::{Client, ClientError, LogUpdate, LogsRequest, WatchFilter, WatchUpdate};
use muster_core::ids::{JobId, TaskIndex};
use muster_proto::v1;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Screen;

/// Time between two looks for output that is not there yet, where no event announces it.
const RETRY: Duration = Duration::from_millis(250);

/// `muster job logs`
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The job, by id
    job: u64,
    /// Which task
    #[arg(long, default_value = "0")]
    task: u32,
    /// Which attempt, counted from 1; the newest if none is given
    #[arg(long)]
    attempt: Option<u32>,
    /// Standard error instead of standard output
    #[arg(long)]
    stderr: bool,
    /// Begin with so many of the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Go on with new output, through restarts of the task, until the job has ended
    #[arg(short, long)]
    follow: bool,
}

impl Logs {
    /// Does it.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        if !self.follow {
            let client = options.connect().await?;
            self.copy(&client, &screen, self.attempt).await?;
            return Ok(Exit::Ok);
        }
        let client = options.connect_to_follow().await?;
        self.follow_attempts(&client, &screen).await?;
        Ok(Exit::Ok)
    }

    /// Copies one attempt's output; tells which attempt it was.
    async fn copy(
        &self,
        client: &Client,
        screen: &Screen,
        attempt: Option<u32>,
    ) -> Result<Option<u32>, Failure> {
        let mut logs = client.logs(LogsRequest {
            job: JobId(self.job),
            task: TaskIndex(self.task),
            attempt,
            stream: if self.stderr {
                v1::LogStream::Stderr
            } else {
                v1::LogStream::Stdout
            },
            follow: self.follow,
            tail_lines: self.tail,
        });
        let mut read = None;
        let mut next_byte = None;
        loop {
            match logs.next().await {
                Ok(Some(LogUpdate::Begun { attempt, host })) => {
                    read = Some(attempt);
                    screen.progress(&format!(
                        "note: attempt {attempt} of task {} on {host}",
                        self.task
                    ));
                }
                Ok(Some(LogUpdate::Data { offset_bytes, data })) => {
                    let lost = next_byte.map_or(0, |next| offset_bytes.saturating_sub(next));
                    if lost > 0 {
                        screen.progress(&format!("note: {lost} bytes were rotated away"));
                    }
                    screen.bytes(&data)?;
                    next_byte = Some(offset_bytes + data.len() as u64);
                }
                Ok(Some(LogUpdate::Resumed { replica, cause })) => {
                    screen.progress(&format!("note: {cause}; goes on with {replica}"));
                }
                Ok(None) => return Ok(read),
                Err(error) if self.follow && is_passing(&error) => {
                    let gone = self.wait_for_host(client, screen, &error).await?;
                    if gone {
                        return Ok(read);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Copies one attempt after the other until the job has ended.
    async fn follow_attempts(&self, client: &Client, screen: &Screen) -> Result<(), Failure> {
        let mut wanted = self.attempt;
        loop {
            let known = self.newest_attempt(client).await?;
            let next = wanted.filter(|wanted| *wanted <= known.number);
            let begin = if wanted.is_none() && known.number > 0 {
                Some(known.number)
            } else {
                next
            };
            let Some(attempt) = begin else {
                if known.finished {
                    return Ok(());
                }
                self.wait_for_event(client, known.revision).await?;
                continue;
            };
            let read = self.copy(client, screen, Some(attempt)).await?;
            if self.attempt.is_some() {
                return Ok(());
            }
            wanted = Some(read.unwrap_or(attempt) + 1);
        }
    }

    async fn newest_attempt(&self, client: &Client) -> Result<Known, ClientError> {
        // Units beyond the first page are found by their own page: the unit of a gang is always 0.
        let units_max = usize::try_from(self.task)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let consistency = v1::Consistency::Linearizable;
        let detail = client
            .get_job(JobId(self.job), units_max, consistency)
            .await?;
        let gang = detail.job.spec.as_ref().is_some_and(|spec| spec.gang);
        let index = if gang { 0 } else { self.task };
        let unit = detail.units.iter().find(|unit| unit.index == index);
        Ok(Known {
            number: unit.map_or(0, |unit| unit.attempts),
            finished: detail.is_finished(),
            revision: detail.revision,
        })
    }

    async fn wait_for_event(
        &self,
        client: &Client,
        from: muster_core::ids::Revision,
    ) -> Result<(), ClientError> {
        let mut watch = client.watch(Some(from), WatchFilter::job(JobId(self.job)));
        loop {
            match watch.next().await {
                Ok(WatchUpdate::Events { .. }) | Err(ClientError::Compacted { .. }) => {
                    return Ok(());
                }
                Ok(WatchUpdate::Bookmark { .. } | WatchUpdate::Resumed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The output cannot be had now. True if it never will: the job has ended.
    async fn wait_for_host(
        &self,
        client: &Client,
        screen: &Screen,
        error: &ClientError,
    ) -> Result<bool, ClientError> {
        tracing::debug!(%error, "output is not available yet");
        let known = self.newest_attempt(client).await?;
        if known.finished {
            screen.progress(&format!("note: {error}"));
            return Ok(true);
        }
        tokio::time::sleep(RETRY).await;
        Ok(false)
    }
}

/// What is known of the task's unit.
struct Known {
    /// Attempts so far; 0 before the first.
    number: u32,
    /// Whether the job has ended.
    finished: bool,
    /// When that was true.
    revision: muster_core::ids::Revision,
}

/// Whether output may yet appear: the task has not started, or its host does not answer.
fn is_passing(error: &ClientError) -> bool {
    matches!(error.reason(), Some("NO_LOGS" | "HOST_UNREACHABLE"))
}
