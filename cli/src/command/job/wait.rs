//! `muster job wait`, and the wait of `job submit --wait`.

use std::time::Duration;

use clap::Args;
use muster_client::{Client, ClientError, JobDetail};
use muster_documents::{Job, JobPhase};
use muster_model::ids::JobId;
use muster_proto::v1;

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Screen, render_rows};
use crate::parse;

/// Exit code after Ctrl-C during the wait, as in shells: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// `muster job wait`
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all succeeded, 3 one failed, 4 one was cancelled, \
2 not placed within --timeout, 124 placed but not ended within --timeout"
)]
pub(crate) struct Wait {
    /// Jobs, by id
    #[arg(required = true)]
    jobs: Vec<u64>,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    timeout: Option<Duration>,
}

/// Condition to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// All tasks of the job run, or it has ended.
    Running,
    /// The job has ended.
    Finished,
}

/// Outcome of the wait for several jobs: the worst of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    /// Every job reached the goal and none failed.
    Well,
    /// A job was cancelled.
    Cancelled,
    /// A job failed.
    Failed,
    /// Timed out; every job had been placed.
    TimedOut,
    /// Timed out; a job had not been placed.
    NotPlaced,
}

impl Ended {
    /// The exit code of this outcome.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Well => Exit::Ok,
            Self::Cancelled => Exit::JobCancelled,
            Self::Failed => Exit::JobFailed,
            Self::TimedOut => Exit::TimedOut,
            Self::NotPlaced => Exit::NotPlaced,
        }
    }
}

impl Goal {
    fn is_reached(self, detail: &JobDetail) -> bool {
        let counts = detail.job.counts.unwrap_or_default();
        let all_running = counts.waiting + counts.placed + counts.stopping == 0;
        detail.is_finished() || (self == Self::Running && all_running)
    }
}

impl Wait {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        let client = options.connect_to_follow().await?;
        let jobs: Vec<JobId> = self.jobs.iter().copied().map(JobId).collect();
        let ended = wait_for(&client, &screen, &jobs, Goal::Finished, self.timeout).await?;
        print(&client, &screen, &jobs).await?;
        Ok(ended.exit())
    }
}

/// Waits for all jobs; the outcome of each is printed on stderr. Ctrl-C ends only the wait.
pub(crate) async fn wait_for(
    client: &Client,
    screen: &Screen,
    jobs: &[JobId],
    goal: Goal,
    timeout: Option<Duration>,
) -> Result<Ended, Failure> {
    tokio::select! {
        ended = wait_for_all(client, screen, jobs, goal, timeout) => ended,
        signal = tokio::signal::ctrl_c() => {
            signal.map_err(|error| Failure::internal(&error))?;
            Err(interrupted(jobs))
        }
    }
}

/// The failure of an interrupted wait for these jobs.
fn interrupted(jobs: &[JobId]) -> Failure {
    let go_on = match jobs {
        [job] => format!("job {job} continues"),
        jobs => format!("{} jobs continue", jobs.len()),
    };
    let ids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    Failure::new(format!("interrupted: the wait has ended, {go_on}"))
        .help(format!("`muster job wait {}` waits again", ids.join(" ")))
        .exiting(Exit::Passed(INTERRUPTED))
}

async fn wait_for_all(
    client: &Client,
    screen: &Screen,
    jobs: &[JobId],
    goal: Goal,
    timeout: Option<Duration>,
) -> Result<Ended, Failure> {
    let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
    let mut worst = Ended::Well;
    for job in jobs {
        let reached = client.wait_job_until(*job, |detail| goal.is_reached(detail));
        let reached = match deadline {
            None => Some(reached.await?),
            Some(deadline) => match tokio::time::timeout_at(deadline, reached).await {
                Ok(reached) => Some(reached?),
                Err(_) => None,
            },
        };
        let ended = match &reached {
            Some(detail) => ended(detail),
            None => out_of_time(client, screen, *job).await?,
        };
        if let Some(became) = describe_outcome(ended, reached.as_ref()) {
            screen.progress(&format!("job {job} {became}"));
        }
        worst = worst.max(ended);
    }
    Ok(worst)
}

fn ended(detail: &JobDetail) -> Ended {
    match detail.phase() {
        v1::JobPhase::Failed => Ended::Failed,
        v1::JobPhase::Cancelled => Ended::Cancelled,
        _ => Ended::Well,
    }
}

/// Describes a job that did not succeed, and why.
fn describe_outcome(ended: Ended, detail: Option<&JobDetail>) -> Option<String> {
    let became = match ended {
        Ended::Failed if detail.is_some_and(|detail| detail.job.skipped) => {
            return Some("was skipped: its dependencies did not end as required".to_owned());
        }
        Ended::Failed => "failed",
        Ended::Cancelled => "was cancelled",
        Ended::Well | Ended::TimedOut | Ended::NotPlaced => return None,
    };
    let reason = detail.map_or("", |detail| detail.job.finish_reason.as_str());
    if reason.is_empty() {
        return Some(became.to_owned());
    }
    // Part of it may be output of a task.
    let reason = reason.replace(char::is_control, "\u{fffd}");
    Some(format!("{became}: {reason}"))
}

/// Reports a timeout: the phase of the job, and why it waits if it does.
async fn out_of_time(client: &Client, screen: &Screen, job: JobId) -> Result<Ended, ClientError> {
    let consistency = v1::Consistency::Linearizable;
    let detail = client.get_job(job, 1, consistency).await?;
    if detail.is_finished() {
        return Ok(ended(&detail));
    }
    let counts = detail.job.counts.unwrap_or_default();
    let never_placed = detail.phase() == v1::JobPhase::Queued
        && counts.succeeded + counts.failed + counts.cancelled == 0;
    if !never_placed {
        let phase = JobPhase::from(detail.phase());
        screen.progress(&format!("timed out: job {job} is {phase}"));
        return Ok(Ended::TimedOut);
    }
    let explained = client.explain_job(job, consistency).await?;
    let summary = explained.summary;
    screen.progress(&format!("timed out: job {job} waits: {summary}"));
    Ok(Ended::NotPlaced)
}

/// Prints the current state of the jobs.
async fn print(client: &Client, screen: &Screen, jobs: &[JobId]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut revision = 0;
    for job in jobs {
        let detail = client
            .get_job(*job, 1, v1::Consistency::Linearizable)
            .await?;
        revision = revision.max(detail.revision.get());
        rows.push(Job::from(detail.job));
    }
    screen.report(&render_rows(screen, revision, &rows)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(finish_reason: &str, skipped: bool) -> JobDetail {
        let job = v1::Job {
            finish_reason: finish_reason.to_owned(),
            skipped,
            ..v1::Job::default()
        };
        JobDetail {
            revision: muster_model::ids::Revision(7),
            job,
            units: Vec::new(),
            more_units: false,
        }
    }

    #[test]
    fn the_outcome_of_a_job_that_failed_includes_the_reason() {
        let failed = detail("task 0: exit code 1\u{1b}[2J", false);
        let outcome = describe_outcome(Ended::Failed, Some(&failed));
        assert_eq!(
            outcome.as_deref(),
            Some("failed: task 0: exit code 1\u{fffd}[2J")
        );
        let cancelled = describe_outcome(Ended::Cancelled, Some(&detail("", false)));
        assert_eq!(cancelled.as_deref(), Some("was cancelled"));
        let skipped = describe_outcome(Ended::Failed, Some(&detail("job 3 failed", true)));
        assert!(skipped.is_some_and(|outcome| outcome.starts_with("was skipped")));
        assert_eq!(describe_outcome(Ended::Well, None), None);
    }

    #[test]
    fn an_interrupted_wait_reports_that_the_jobs_continue() {
        let one = interrupted(&[JobId(69)]);
        assert!(one.text().ends_with("job 69 continues"), "{}", one.text());
        assert_eq!(one.exit().code(), INTERRUPTED);
        let two = interrupted(&[JobId(69), JobId(70)]);
        assert!(two.text().ends_with("2 jobs continue"), "{}", two.text());
    }
}
