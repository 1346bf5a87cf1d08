//! Hostile user: repeatedly sends requests that must be refused.

use std::sync::Arc;
use std::time::Duration;

use muster_engine::state::Answer;
use muster_model::command::{BlockTarget, Command};
use muster_model::ids::{JobId, RequestId, RequestKey};
use muster_model::spec::{Condition, Dependency, JobSpec};
use rand::Rng;

use crate::sim::clients::{SimClient, submission};
use crate::sim::faults::coverage::Situation;
use crate::sim::random_streams::{StreamOwner, draws};
use crate::sim::results::report::Violation;
use crate::sim::scale::Tempo;

/// Id of a job that does not exist.
const NOBODYS: JobId = JobId(u64::MAX);
/// Length of an overlong name, in bytes.
const NAME_BYTES: usize = 10_000;
/// Number of ways to invalidate a specification.
const BREAKS: u32 = 8;

/// Whether a world has a hostile user: in a share of the seeds.
#[must_use]
pub fn has_hostile_user(seed: u64, tempo: Tempo) -> bool {
    draws(seed, StreamOwner::Hostile, 0, 0).random_bool(tempo.rare_share())
}

impl SimClient {
    /// Sends `count` requests that must be refused, with pauses.
    pub async fn send_hostile(mut self, count: u32) {
        for number in 1..=count {
            self.random = draws(self.seed, StreamOwner::Hostile, self.number, number);
            match self.random.random_range(0..3) {
                0 => self.reuse_request().await,
                1 => {
                    let request = RequestId(self.random.random());
                    let spec = Arc::new(self.draw_broken());
                    self.checkers.with(|seen| seen.acknowledged.asked(request));
                    self.demand(submission(request, spec)).await;
                    self.checkers
                        .with(|seen| seen.acknowledged.refused(request));
                }
                _ => {
                    let command = self.draw_unfounded();
                    self.demand(command).await;
                }
            }
            let pause_ms = self.random.random_range(self.tempo.job_pause_ms());
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// Submits a job, and a different one under the same request id.
    async fn reuse_request(&mut self) {
        let request = RequestId(self.random.random());
        let spec = Arc::new(self.draw_job(&[]));
        let other = JobSpec {
            name: "another".to_owned(),
            ..JobSpec::clone(&spec)
        };
        self.checkers.with(|seen| seen.acknowledged.asked(request));
        let answer = self.insist(submission(request, spec)).await;
        let Some(Answer::Job(job)) = answer else {
            self.checkers
                .with(|seen| seen.acknowledged.refused(request));
            return;
        };
        self.checkers
            .with(|seen| seen.acknowledged.submitted(request, job));
        let spec = Arc::new(other);
        self.demand(submission(request, spec)).await;
    }

    /// Sends a command that must be refused.
    async fn demand(&mut self, command: Command) {
        match self.insist(command.clone()).await {
            None => self
                .checkers
                .with(|seen| seen.coverage.reached(Situation::HostileRefused)),
            Some(answer) => self
                .checkers
                .violate(Violation::Admitted(format!("{answer:?} for {command:?}"))),
        }
    }

    /// A job with an invalid specification.
    fn draw_broken(&mut self) -> JobSpec {
        let mut spec = self.draw_job(&[]);
        let group = &mut spec.groups[0];
        match self.random.random_range(0..BREAKS) {
            0 => group.count = 0,
            1 => group.count = u32::MAX,
            2 => group.resources.gpus = u32::MAX,
            3 => spec.groups.clear(),
            4 => spec.priority = i32::MIN,
            5 => spec.name = "x".repeat(NAME_BYTES),
            6 => spec.queue = "nobody/has/it".to_owned(),
            _ => spec.lifecycle.after.push(Dependency {
                job: NOBODYS,
                when: Condition::Ended,
            }),
        }
        spec
    }

    /// A command about a job or a host that does not exist.
    fn draw_unfounded(&mut self) -> Command {
        let request = RequestKey::of(RequestId(self.random.random()));
        let (job, author, reason) = (NOBODYS, "mallory".to_owned(), "because".to_owned());
        match self.random.random_range(0..4) {
            0 => Command::CancelJob {
                request,
                job,
                author,
                reason,
            },
            1 => Command::SuspendJob {
                request,
                job,
                author,
                reason,
            },
            2 => Command::ResumeJob {
                request,
                job,
                author,
                reason,
            },
            _ => Command::Unblock {
                request,
                target: BlockTarget::Host("nowhere".to_owned()),
                author,
                planned: self.random.random_bool(0.5),
            },
        }
    }
}
