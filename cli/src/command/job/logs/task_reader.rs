//! Reader of one task's output, attempt by attempt.

use std::sync::Arc;
use std::time::Duration;

use muster_client::{Client, ClientError, LogUpdate, LogsRequest, WatchFilter, WatchUpdate};
use muster_model::ids::{JobId, Revision, TaskIndex};
use muster_proto::v1;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::command::job::logs::printer::{Printed, Printer, name};
use crate::failure::Failure;

/// Interval of checks for output that is not available yet, where no event announces it.
const RETRY: Duration = Duration::from_millis(250);
/// Reason of a refusal because there is no output.
pub(super) const NO_LOGS: &str = "NO_LOGS";
/// Time to wait for the output of an attempt after a newer one has started: its host may come back.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(5);

/// Reads one task.
#[derive(Clone, Debug)]
pub(in crate::command::job) struct TaskReader {
    pub(in crate::command::job) client: Client,
    /// Request for the output of each attempt.
    pub(in crate::command::job) request: LogsRequest,
    pub(in crate::command::job) printer: Arc<Mutex<Printer>>,
}

/// Part of the output of one attempt.
#[derive(Clone, Copy)]
struct Part {
    attempt: Option<u32>,
    /// Lines from its end; all if `None`.
    tail_lines: Option<u64>,
    /// Whether newer attempts are read after it.
    newer_follow: bool,
}

/// Known state of the task's unit.
struct UnitState {
    /// Number of attempts so far; 0 before the first.
    number: u32,
    /// Whether the job has ended.
    finished: bool,
    /// Revision of this state.
    revision: Revision,
}

/// Position in each output that was read.
#[derive(Default)]
struct Position {
    stdout: Option<u64>,
    stderr: Option<u64>,
}

impl Position {
    fn of(&mut self, stream: v1::LogStream) -> &mut Option<u64> {
        match stream {
            v1::LogStream::Stderr => &mut self.stderr,
            _ => &mut self.stdout,
        }
    }
}

impl TaskReader {
    /// Prints the requested attempts: one, or all existing ones.
    pub(in crate::command::job) async fn read(&self, all_attempts: bool) -> Result<(), Failure> {
        if !all_attempts {
            self.copy(self.alone()).await?;
            return Ok(());
        }
        let newest = self.newest_attempt().await?.number;
        for attempt in 1..=newest {
            let part = Part {
                attempt: Some(attempt),
                ..self.alone()
            };
            match self.copy(part).await {
                Err(error) if attempt < newest && !error.is_reader_gone() => {
                    self.note(&error.text()).await;
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Prints one attempt after the other until the job has ended.
    pub(in crate::command::job) async fn follow(&self, all_attempts: bool) -> Result<(), Failure> {
        let is_one = self.request.attempt.is_some() || self.request.epoch.is_some();
        if is_one {
            self.copy(self.alone()).await?;
            return Ok(());
        }
        let mut wanted = all_attempts.then_some(1);
        let mut of_before = None;
        loop {
            let known = self.newest_attempt().await?;
            let of_before = *of_before.get_or_insert(known.number);
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
                self.wait_for_event(known.revision).await?;
                continue;
            };
            let part = Part {
                attempt: Some(attempt),
                // The tail limit applies to output from before the command only.
                tail_lines: { self.request.tail_lines }.filter(|_| attempt <= of_before),
                newer_follow: true,
            };
            match self.copy(part).await {
                Ok(read) => wanted = Some(read.unwrap_or(attempt) + 1),
                Err(error) if attempt < known.number && !error.is_reader_gone() => {
                    self.note(&error.text()).await;
                    wanted = Some(attempt + 1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The requested attempt, and no other.
    fn alone(&self) -> Part {
        Part {
            attempt: self.request.attempt,
            tail_lines: self.request.tail_lines,
            newer_follow: false,
        }
    }

    /// Copies one attempt's output; returns the number of the attempt.
    async fn copy(&self, part: Part) -> Result<Option<u32>, Failure> {
        let request = LogsRequest {
            attempt: part.attempt,
            tail_lines: part.tail_lines,
            ..self.request.clone()
        };
        let is_whole = request.tail_lines.is_none() && request.since_ms.is_none();
        let mut logs = self.client.logs(request);
        let mut read = None;
        let mut position = Position::default();
        if is_whole {
            position = Position {
                stdout: Some(0),
                stderr: Some(0),
            };
        }
        let mut silent_since = None;
        loop {
            match logs.next().await {
                Ok(Some(update)) => {
                    silent_since = None;
                    self.take(update, &mut read, &mut position).await?;
                }
                Ok(None) => return Ok(read),
                Err(error) if self.request.follow && is_passing(&error) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    if self.wait_for_host(&error, part, since).await? {
                        return Ok(read);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn take(
        &self,
        update: LogUpdate,
        read: &mut Option<u32>,
        position: &mut Position,
    ) -> Result<(), Failure> {
        let (stream, offset_bytes, data, arrived_us) = match update {
            LogUpdate::Begun { attempt, host } => {
                *read = Some(attempt);
                let task = self.request.task;
                self.note(&format!("attempt {attempt} of task {task} on {host}"))
                    .await;
                return Ok(());
            }
            LogUpdate::Resumed { replica, cause } => {
                self.note(&format!("{cause}; continuing with {replica}"))
                    .await;
                return Ok(());
            }
            LogUpdate::Data { offset_bytes, data } => {
                // A worker that does not support times does not support merged output either.
                let stream = match self.request.stream {
                    v1::LogStream::Both => v1::LogStream::Stdout,
                    stream => stream,
                };
                (stream, offset_bytes, data, 0)
            }
            LogUpdate::Line {
                stream,
                offset_bytes,
                data,
                arrived_us,
            } => (stream, offset_bytes, data, arrived_us),
        };
        let next_byte = position.of(stream);
        let lost = next_byte.map_or(0, |next| offset_bytes.saturating_sub(next));
        if lost > 0 {
            let output = name(stream);
            self.note(&format!("{lost} bytes of {output} were rotated away"))
                .await;
        }
        *next_byte = Some(offset_bytes + data.len() as u64);
        let line = Printed {
            task: self.request.task.get(),
            attempt: read.unwrap_or_default(),
            stream,
            arrived_us,
            data: &data,
        };
        self.printer.lock().await.print(&line)
    }

    async fn note(&self, text: &str) {
        self.printer.lock().await.note(text);
    }

    /// State of the task's unit; an error if the job has no such task, which would never appear.
    async fn newest_attempt(&self) -> Result<UnitState, Failure> {
        let task = self.request.task.get();
        // Units beyond the first page are found on their own page: the unit of a gang is always 0.
        let units_max = usize::try_from(task)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let consistency = v1::Consistency::Linearizable;
        let detail = self
            .client
            .get_job(self.request.job, units_max, consistency)
            .await?;
        let spec = detail.job.spec.as_ref();
        if let Some(count) = spec.map(count_tasks).filter(|count| *count <= task) {
            let (job, last) = (self.request.job, count.saturating_sub(1));
            // The same message as from a replica asked for the output.
            return Err(Failure::new(format!(
                "cannot read the task's output: job {job} has no task {task}: its last one is {last}"
            )));
        }
        let gang = spec.is_some_and(|spec| spec.gang);
        let index = if gang { 0 } else { task };
        let unit = detail.units.iter().find(|unit| unit.index == index);
        Ok(UnitState {
            number: unit.map_or(0, |unit| unit.attempts),
            finished: detail.is_finished(),
            revision: detail.revision,
        })
    }

    async fn wait_for_event(&self, from: Revision) -> Result<(), ClientError> {
        let filter = WatchFilter::job(self.request.job);
        let mut watch = self.client.watch(Some(from), filter);
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

    /// Handles output that has been unavailable `since` an instant. True if the wait is over: the job has
    /// ended, or the task continues in a newer attempt.
    async fn wait_for_host(
        &self,
        error: &ClientError,
        part: Part,
        since: Instant,
    ) -> Result<bool, Failure> {
        tracing::debug!(%error, "output is not available yet");
        let known = self.newest_attempt().await?;
        let is_followed = part.newer_follow && part.attempt.is_some_and(|it| it < known.number);
        let is_left_behind = is_followed && since.elapsed() >= LEFT_BEHIND_MAX;
        if known.finished || is_left_behind {
            self.note(&error.to_string()).await;
            return Ok(true);
        }
        tokio::time::sleep(RETRY).await;
        Ok(false)
    }
}

/// Number of a job's tasks.
pub(in crate::command::job) async fn tasks_of(
    client: &Client,
    job: JobId,
) -> Result<Vec<TaskIndex>, ClientError> {
    let consistency = v1::Consistency::Linearizable;
    let detail = client.get_job(job, 1, consistency).await?;
    let count = detail.job.spec.as_ref().map_or(0, count_tasks);
    Ok((0..count).map(TaskIndex).collect())
}

fn count_tasks(spec: &v1::JobSpec) -> u32 {
    let groups = spec.groups.iter();
    groups.map(|group| group.count.unwrap_or(1)).sum()
}

/// Whether output may still appear: the task has not started, or its host does not answer.
fn is_passing(error: &ClientError) -> bool {
    matches!(error.reason(), Some(NO_LOGS | "HOST_UNREACHABLE"))
}
