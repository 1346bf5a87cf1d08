//! `muster replay`: submits a trace's jobs to a running cluster, faster than in the trace.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use muster_chaos::workload::{Pace, PhillyGenerator, TraceJob, read_jobs};
use muster_client::{Client, WatchFilter, WatchUpdate};
use muster_model::event::EventKind;
use muster_model::ids::{JobId, Revision};
use muster_model::lifecycle::JobPhase;
use muster_model::time::TimeMs;
use muster_proto::v1;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, render_document, span};
use crate::parse;

/// Interval of progress notes.
const PROGRESS: Duration = Duration::from_secs(2);

/// `muster replay`
///
/// Every job is a `sleep` with the duration in the trace divided by the speed-up, like the times of
/// submission. Ends with the outcomes and waiting times of the jobs.
#[derive(Debug, Args)]
#[command(after_help = "\
muster replay philly_jobs.csv.gz --skip 1000 --jobs 500 --speed-up 600
muster replay --jobs 50        (no file: jobs drawn from Philly's published distribution)")]
pub(crate) struct Replay {
    /// A trace with the columns job_id, submit_s, duration_s, num_tasks, gpus_per_task (CSV, may be gzipped)
    #[arg(value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Jobs to submit
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Jobs at the start of the trace to leave out
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    skip: usize,
    /// Trace seconds in one real second
    #[arg(long, default_value_t = 600.0, value_name = "FACTOR", value_parser = speed_up)]
    speed_up: f64,
    /// Longest that a job may run; longer ones are cut
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = parse::duration)]
    run_max: Duration,
    /// Most GPUs of one job; larger ones are cut
    #[arg(long, default_value_t = 8, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    gpus_max: u32,
    /// Seed of the jobs drawn if there is no file
    #[arg(long, default_value_t = 2_017, conflicts_with = "trace")]
    seed: u64,
    /// Queue to submit to
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
}

impl Replay {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let jobs = self.read()?;
        let screen = options.screen();
        let client = options.connect_to_follow().await?;
        let pace = Pace::faster(&jobs, self.speed_up);
        let mut last_progress = String::new();
        let progress = |tally: &Tally| {
            let progress = tally.progress(jobs.len());
            if progress != last_progress {
                screen.progress(&progress);
                last_progress = progress;
            }
        };
        let tally = self.play(&client, &jobs, pace, progress).await?;
        let report = tally.report(self.changes(&jobs, pace));
        let text = match screen.format {
            Format::Table | Format::Wide | Format::Name => report.sentences(),
            format => render_document(format, &report)?,
        };
        screen.report(&text)?;
        Ok(report.exit())
    }

    fn read(&self) -> Result<Vec<TraceJob>, Failure> {
        let count = usize::try_from(self.jobs).unwrap_or(usize::MAX);
        let Some(path) = &self.trace else {
            let generator = PhillyGenerator::new(self.seed);
            return Ok(generator.skip(self.skip).take(count).collect());
        };
        let jobs =
            read_jobs(path, self.skip, count).map_err(|error| Failure::usage(chain(&error)))?;
        if jobs.is_empty() {
            let message = format!(
                "{} has no job after the first {}",
                path.display(),
                self.skip
            );
            return Err(Failure::usage(message));
        }
        Ok(jobs)
    }

    async fn play(
        &self,
        client: &Client,
        jobs: &[TraceJob],
        pace: Pace,
        mut progress: impl FnMut(&Tally),
    ) -> Result<Tally, Failure> {
        let status = client.status(v1::Consistency::Linearizable).await?;
        let mut watch = client.watch(Some(Revision(status.revision)), WatchFilter::default());
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        let mut waiting = jobs.iter().peekable();
        let mut tally = Tally::default();
        while waiting.peek().is_some() || !tally.is_complete() {
            let next = waiting.peek().map(|job| began + pace.submit_after(job));
            tokio::select! {
                () = sleep_until(next.unwrap_or(began)), if next.is_some() => {
                    if let Some(job) = waiting.next() {
                        let submitted = client.submit_job(self.spec(job, pace)).await?;
                        tally.mine(submitted.job);
                    }
                }
                update = watch.next() => {
                    if let WatchUpdate::Events { time, events, .. } = update? {
                        events.into_iter().for_each(|event| tally.take(time, event));
                    }
                }
                _ = ticks.tick() => progress(&tally),
            }
        }
        Ok(tally)
    }

    fn changes(&self, jobs: &[TraceJob], pace: Pace) -> Changes {
        let is_cut = |job: &&TraceJob| {
            let Shape { tasks, gpus } = Shape::of(job, self.gpus_max);
            tasks.saturating_mul(gpus) < job.gpus()
        };
        let is_shortened = |job: &&TraceJob| pace.run_for(job) > self.run_max;
        Changes {
            gpus_cut: jobs.iter().filter(is_cut).count(),
            run_times_cut: jobs.iter().filter(is_shortened).count(),
        }
    }

    fn spec(&self, job: &TraceJob, pace: Pace) -> v1::JobSpec {
        let seconds = pace.run_for(job).min(self.run_max).as_secs_f64();
        let Shape { tasks, gpus } = Shape::of(job, self.gpus_max);
        let group = v1::TaskGroup {
            name: Some("main".to_owned()),
            count: Some(tasks),
            command: vec!["sleep".to_owned(), format!("{seconds:.3}")],
            resources: Some(v1::Resources {
                gpus,
                ..v1::Resources::default()
            }),
            ..v1::TaskGroup::default()
        };
        v1::JobSpec {
            name: job.name.clone(),
            user: current_user(),
            queue: self.queue.clone(),
            gang: tasks > 1,
            groups: vec![group],
            ..v1::JobSpec::default()
        }
    }
}

/// Tasks of a replayed job, and GPUs of each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    tasks: u32,
    gpus: u32,
}

impl Shape {
    /// The shape in the trace. Of a job with more than `gpus_max` GPUs, first the GPUs of each task are cut and then
    /// the number of tasks, so that a gang remains one.
    const fn of(job: &TraceJob, gpus_max: u32) -> Self {
        let (tasks, gpus) = (job.tasks, job.gpus_per_task);
        if job.gpus() <= gpus_max {
            return Self { tasks, gpus };
        }
        let tasks = if tasks < gpus_max { tasks } else { gpus_max };
        let most = gpus_max / tasks;
        Self {
            tasks,
            gpus: if gpus < most { gpus } else { most },
        }
    }
}

/// What a replay changes in the jobs of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Changes {
    /// Jobs that get fewer GPUs than in the trace.
    gpus_cut: usize,
    /// Jobs that run shorter than in the trace, beside the speed-up.
    run_times_cut: usize,
}

impl Changes {
    fn sentence(self) -> Option<String> {
        let Self {
            gpus_cut,
            run_times_cut,
        } = self;
        (gpus_cut + run_times_cut > 0).then(|| {
            format!(
                "changed: {gpus_cut} jobs have fewer GPUs than in the trace (--gpus-max), {run_times_cut} run shorter \
                 (--run-max)\n"
            )
        })
    }
}

fn speed_up(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if f64::is_normal(factor) && factor > 0.0 => Ok(factor),
        _ => Err("must be a number above 0: trace seconds per real second".to_owned()),
    }
}

/// Outcome of one job.
#[derive(Clone, Copy, Debug, Default)]
struct JobOutcome {
    submitted: Option<TimeMs>,
    first_placed: Option<TimeMs>,
    ended: Option<JobPhase>,
}

/// Outcomes of all observed jobs; other users submit to the cluster too.
#[derive(Debug, Default)]
struct Tally {
    fates: BTreeMap<JobId, JobOutcome>,
    mine: Vec<JobId>,
}

impl Tally {
    fn mine(&mut self, job: JobId) {
        self.mine.push(job);
    }

    fn take(&mut self, time: TimeMs, event: v1::Event) {
        match EventKind::try_from(event) {
            Ok(EventKind::JobSubmitted { job, .. }) => {
                self.fates.entry(job).or_default().submitted = Some(time);
            }
            Ok(EventKind::AttemptPlaced { job, .. }) => {
                let fate = self.fates.entry(job).or_default();
                fate.first_placed = fate.first_placed.or(Some(time));
            }
            Ok(EventKind::JobFinished { job, phase, .. }) => {
                self.fates.entry(job).or_default().ended = Some(phase);
            }
            // Other facts, and those of a newer version, are irrelevant to waiting and ending.
            Ok(_) | Err(_) => {}
        }
    }

    fn fates(&self) -> impl Iterator<Item = JobOutcome> {
        self.mine
            .iter()
            .map(|job| self.fates.get(job).copied().unwrap_or_default())
    }

    fn is_complete(&self) -> bool {
        self.fates().all(|fate| fate.ended.is_some())
    }

    fn ended(&self, phase: JobPhase) -> usize {
        self.fates()
            .filter(|fate| fate.ended == Some(phase))
            .count()
    }

    fn progress(&self, of: usize) -> String {
        let placed = self
            .fates()
            .filter(|fate| fate.first_placed.is_some())
            .count();
        let ended = self.fates().filter(|fate| fate.ended.is_some()).count();
        format!(
            "{} of {of} submitted, {placed} placed, {ended} ended",
            self.mine.len()
        )
    }

    fn report(&self, changes: Changes) -> Report {
        let mut waits_ms: Vec<u64> = self
            .fates()
            .filter_map(|fate| Some(fate.first_placed?.0.saturating_sub(fate.submitted?.0)))
            .collect();
        waits_ms.sort_unstable();
        let quantile = |percent: usize| {
            let last = waits_ms.len().saturating_sub(1);
            waits_ms.get(last * percent / 100).copied()
        };
        Report {
            jobs: self.mine.len(),
            succeeded: self.ended(JobPhase::Succeeded),
            failed: self.ended(JobPhase::Failed),
            cancelled: self.ended(JobPhase::Cancelled),
            waited_ms: Waited {
                median: quantile(50),
                p95: quantile(95),
                max: quantile(100),
            },
            changes,
        }
    }
}

/// The end of a replay.
#[derive(Debug, Serialize)]
struct Report {
    jobs: usize,
    succeeded: usize,
    failed: usize,
    cancelled: usize,
    waited_ms: Waited,
    changes: Changes,
}

/// Milliseconds from submission to first placement; `None` if no job was placed.
#[derive(Debug, Serialize)]
struct Waited {
    median: Option<u64>,
    p95: Option<u64>,
    max: Option<u64>,
}

impl Report {
    fn sentences(&self) -> String {
        let time = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), span);
        let Waited { median, p95, max } = self.waited_ms;
        let outcome = format!(
            "{} jobs: {} succeeded, {} failed, {} cancelled\n\
             waited for their GPUs: median {}, 95% {}, longest {}\n",
            self.jobs,
            self.succeeded,
            self.failed,
            self.cancelled,
            time(median),
            time(p95),
            time(max)
        );
        outcome + &self.changes.sentence().unwrap_or_default()
    }

    fn exit(&self) -> Exit {
        if self.failed > 0 {
            Exit::JobFailed
        } else if self.cancelled > 0 {
            Exit::JobCancelled
        } else {
            Exit::Ok
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_jobs_count_and_waiting_ends_with_the_first_placement() {
        let mut tally = Tally::default();
        tally.mine(JobId(1));
        assert!(!tally.is_complete(), "an unknown job has not ended");
        tally.fates.insert(
            JobId(1),
            JobOutcome {
                submitted: Some(TimeMs(1_000)),
                first_placed: Some(TimeMs(1_250)),
                ended: Some(JobPhase::Succeeded),
            },
        );
        let other = JobOutcome {
            ended: Some(JobPhase::Failed),
            ..JobOutcome::default()
        };
        tally.fates.insert(JobId(2), other);
        assert!(tally.is_complete());
        let report = tally.report(Changes::default());
        assert_eq!((report.jobs, report.succeeded, report.failed), (1, 1, 0));
        assert_eq!(report.waited_ms.max, Some(250));
        assert_eq!(report.exit(), Exit::Ok);
    }

    #[test]
    fn jobs_keep_their_shape_within_the_limit_of_gpus() {
        let shape = |tasks, gpus_per_task| {
            let job = TraceJob {
                tasks,
                gpus_per_task,
                ..TraceJob::default()
            };
            let Shape { tasks, gpus } = Shape::of(&job, 8);
            (tasks, gpus)
        };
        assert_eq!(shape(1, 0), (1, 0), "no GPU is added");
        assert_eq!(shape(4, 2), (4, 2));
        assert_eq!(shape(4, 8), (4, 2), "a gang remains one");
        assert_eq!(shape(16, 8), (8, 1));
        assert_eq!(shape(1, 16), (1, 8));
    }

    #[test]
    fn a_speed_up_is_a_number_above_zero() {
        assert_eq!(speed_up("2.5"), Ok(2.5));
        for wrong in ["0", "-1", "NaN", "inf", "fast"] {
            assert!(speed_up(wrong).is_err(), "{wrong}");
        }
    }
}
