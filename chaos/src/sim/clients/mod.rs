//! Simulated users: they submit jobs of all shapes, retry unanswered calls, cancel some jobs, and remember
//! every answer.

mod connection;
mod hostile;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_client::ClientError;
use muster_engine::state::{Answer, State};
use muster_model::command::Command;
use muster_model::ids::{JobId, RequestId, RequestKey};
use muster_model::spec::{
    Condition, Container, Dependency, Execution, JobSpec, Lifecycle, Pipeline, PipelineDependency,
    PipelineJob, Resources, RetryPolicy, SuspendMode, TaskGroup,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

pub use self::connection::Connection;
use self::connection::TRY_TIMEOUT;
pub use self::hostile::has_hostile_user;
use crate::sim::checkers::Checkers;
use crate::sim::configuration::{
    draw_access, draw_configuration, draw_health_rules, draw_layout, draw_maintenance, draw_queue,
    draw_scheduling,
};
use crate::sim::faults::coverage::Situation;
use crate::sim::links::network::SimNetwork;
use crate::sim::links::transport::Registry;
use crate::sim::random_streams::{StreamOwner, draws};
use crate::sim::record::{Scene, SceneKind};
use crate::sim::runtime::NodeId;
use crate::sim::scale::Tempo;
use crate::workload::PhillyGenerator;

/// One in this many jobs is submitted as part of a pipeline.
const PIPELINE_EVERY: u64 = 11;
/// One in this many multi-task jobs is an array, where job sizes follow the Philly trace.
const ARRAY_EVERY: u64 = 3;
/// Number of times a pipeline is submitted.
const PIPELINE_SUBMITS: usize = 2;
/// Pause before an unsuccessful call is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Delay from submission to suspension of a job, and duration of the suspension.
const SUSPENDED_AFTER: Duration = Duration::from_secs(2);
const SUSPENDED_FOR: Duration = Duration::from_secs(4);
/// Maximum time that a task hangs in the kernel, in milliseconds: several times its supervisor's wait.
const HANG_MS_MAX: u64 = 40_000;

/// First node number of users.
pub const CLIENT_NODES: u32 = 900;

/// One user.
#[derive(Debug)]
pub struct SimClient {
    /// The world's seed.
    pub seed: u64,
    /// The user's number, from 0; the first one is the admin.
    pub number: u32,
    /// Node of the user.
    pub node: NodeId,
    /// The network.
    pub network: SimNetwork,
    /// The running replicas.
    pub registry: Registry<State>,
    /// Connection to the cluster.
    pub line: Connection,
    /// Checkers that record its answers.
    pub checkers: Checkers,
    /// Random stream of this user, for its current job.
    pub random: ChaCha8Rng,
    /// Pace of the world.
    pub tempo: Tempo,
    /// Whether replicas answer reads without confirming their leadership (a mutant).
    pub reads_stale: bool,
}

impl SimClient {
    /// Submits `count` jobs, one after another, with pauses. The first user also reconfigures the cluster
    /// now and then.
    pub async fn run(mut self, count: u32) {
        let is_admin = self.number == 0;
        let mut earlier = Vec::new();
        self.line.discover().await;
        for number in 0..count {
            // The outcome of one job does not change the draws of the next one.
            self.random = draws(self.seed, StreamOwner::User, self.number, number);
            if is_admin && number == 1 {
                self.set_health_rules().await;
            }
            if is_admin && (number == 0 || self.random.random_range(0..3) == 0) {
                self.configure().await;
            }
            if is_admin {
                self.change_users(number).await;
            }
            if is_admin && self.random.random_range(0..4) == 0 {
                self.plan_maintenance().await;
            }
            let request = RequestId(self.random.random());
            let spec = self.draw_job(&earlier);
            if is_of_pipeline(&spec) {
                self.submit_pipeline(spec).await;
                continue;
            }
            let submit = submission(request, Arc::new(spec));
            self.checkers.with(|seen| seen.acknowledged.asked(request));
            if let Some(Answer::Job(job)) = self.insist(submit.clone()).await {
                self.checkers
                    .with(|seen| seen.acknowledged.submitted(request, job));
                earlier.push(job);
                self.follow_up(request, job, submit).await;
            } else {
                self.checkers
                    .with(|seen| seen.acknowledged.refused(request));
            }
            let pause_ms = self.random.random_range(self.tempo.job_pause_ms());
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// Submits a pipeline of a job and a similar one that depends on it, and repeats the request, like a
    /// client that lost the answer.
    async fn submit_pipeline(&mut self, spec: JobSpec) {
        let request = RequestId(self.random.random());
        let position = 0;
        let when = Condition::Ended;
        let job = |number: u32, after| PipelineJob {
            spec: Arc::new(JobSpec {
                name: format!("simulated-{number}"),
                ..spec.clone()
            }),
            after,
        };
        let waits = vec![PipelineDependency { position, when }];
        let jobs = vec![job(0, Vec::new()), job(1, waits)];
        let count = jobs.len() as u64;
        let name = "simulated".to_owned();
        let pipeline = Arc::new(Pipeline { name, jobs });
        let submit = Command::SubmitPipeline {
            request: RequestKey::of(request),
            pipeline,
        };
        self.checkers
            .with(|seen| seen.acknowledged.asked_pipeline(request, count));
        for _ in 0..PIPELINE_SUBMITS {
            if let Some(Answer::Pipeline(id)) = self.insist(submit.clone()).await {
                self.checkers.with(|seen| {
                    seen.coverage.reached(Situation::PipelineSubmitted);
                    seen.acknowledged.submitted_pipeline(request, id);
                });
            }
        }
    }

    /// Reads an acknowledged job, resubmits it like a client that lost the answer, cancels it, suspends it
    /// for a while, or none of these.
    async fn follow_up(&mut self, request: RequestId, job: JobId, submit: Command) {
        match self.random.random_range(0..12) {
            0 => self.cancel(job).await,
            1 => {
                if let Some(Answer::Job(again)) = self.insist(submit).await {
                    self.checkers.with(|seen| {
                        seen.coverage.reached(Situation::RequestRepeated);
                        seen.acknowledged.submitted(request, again);
                    });
                }
            }
            2..6 => self.read_back(job).await,
            6 | 7 => self.suspend(job).await,
            _ => {}
        }
    }

    /// Replaces the health rules; the cluster may refuse them. Waits are shortened: hours would never end
    /// within a world.
    async fn set_health_rules(&mut self) {
        let request = RequestKey::of(RequestId(self.random.random()));
        let rules = draw_health_rules(&mut self.random, request);
        self.insist(rules).await;
    }

    async fn configure(&mut self) {
        let request = RequestKey::of(RequestId(self.random.random()));
        let command = draw_configuration(&mut self.random, request);
        self.insist(command).await;
    }

    /// Adds or removes a user, replaces a token, or admits a worker by a token, now and then; the cluster
    /// refuses it if the user or token does not exist, or already does.
    async fn change_users(&mut self, number: u32) {
        let mut random = draws(self.seed, StreamOwner::Access, self.number, number);
        if random.random_range(0..3) == 0 {
            let request = RequestKey::of(RequestId(random.random()));
            let command = draw_access(&mut random, request);
            self.insist(command).await;
        }
    }

    /// Plans a host's maintenance with a drain, or cancels a planned one.
    async fn plan_maintenance(&mut self) {
        let request = RequestKey::of(RequestId(self.random.random()));
        let Some((_, handle)) = self.registry.up().into_iter().next() else {
            return;
        };
        let command = handle.with_state(|state| draw_maintenance(&mut self.random, state, request));
        if let Some(command) = command {
            self.insist(command).await;
        }
    }

    /// Suspends a job for a while, with its tasks paused or its resources released.
    async fn suspend(&mut self, job: JobId) {
        let (author, reason) = ("user".to_owned(), "another one's turn".to_owned());
        let request = RequestKey::of(RequestId(self.random.random()));
        tokio::time::sleep(SUSPENDED_AFTER).await;
        let suspend = Command::SuspendJob {
            request,
            job,
            author: author.clone(),
            reason: reason.clone(),
        };
        if self.insist(suspend).await.is_none() {
            return;
        }
        tokio::time::sleep(SUSPENDED_FOR).await;
        let request = RequestKey::of(RequestId(self.random.random()));
        let resume = Command::ResumeJob {
            request,
            job,
            author,
            reason,
        };
        self.insist(resume).await;
    }

    async fn cancel(&mut self, job: JobId) {
        let pause_ms = self.random.random_range(0..4_000);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let request = RequestKey::of(RequestId(self.random.random()));
        let (author, reason) = ("user".to_owned(), "changed my mind".to_owned());
        let cancel = Command::CancelJob {
            request,
            job,
            author,
            reason,
        };
        if self.insist(cancel).await.is_some() {
            self.checkers.with(|seen| {
                seen.coverage.reached(Situation::Cancelled);
                seen.acknowledged.cancelled(job);
            });
        }
    }

    /// Reads once from a random replica: if it answers, it must know the job.
    async fn read_back(&mut self, job: JobId) {
        let replicas = self.registry.up();
        if replicas.is_empty() {
            return;
        }
        let (node, handle) = replicas[self.random.random_range(0..replicas.len())].clone();
        let reads_stale = self.reads_stale;
        let served = async move {
            if !reads_stale {
                handle.read_linearizable().await.ok()?;
            }
            Some(handle.with_state(|state| state.job(job).is_some()))
        };
        let asked = self.network.exchange(self.node, node, served);
        if let Ok(Some(Some(is_seen))) = tokio::time::timeout(TRY_TIMEOUT, asked).await {
            self.checkers.with(|seen| {
                seen.coverage.reached(Situation::ReadBack);
                if !is_seen {
                    seen.acknowledged.unseen(job, node.0);
                }
            });
        }
    }

    /// Sends a command through the SDK until it is answered; `None` if it was refused.
    async fn insist(&mut self, command: Command) -> Option<Answer> {
        loop {
            self.scene(SceneKind::Call, format_args!("{command:?}"));
            match self.line.run(&command).await {
                Ok(answer) => {
                    self.scene(SceneKind::Answer, format_args!("{answer:?}"));
                    return Some(answer);
                }
                Err(ClientError::Refused { refusal, .. }) => {
                    self.scene(SceneKind::Answer, format_args!("refused: {refusal}"));
                    return None;
                }
                Err(unknown) => self.scene(SceneKind::Answer, format_args!("none: {unknown}")),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn scene(&self, kind: SceneKind, what: fmt::Arguments<'_>) {
        self.checkers.scene(|| Scene::new(kind, what).on(self.node));
    }

    /// Draws size and run time of a job: small and short, or as in the Philly trace.
    fn draw_size(&mut self) -> JobSize {
        let random = &mut self.random;
        match self.tempo {
            Tempo::Hurried => {
                let gang = random.random_range(0..3) == 0;
                let tasks = if gang {
                    random.random_range(2..9)
                } else {
                    random.random_range(1..4)
                };
                JobSize {
                    gang,
                    tasks,
                    run_ms: random.random_range(100..self.tempo.run_ms_max()),
                    gpus: random.random_range(0..3),
                }
            }
            Tempo::Production => {
                let seed: u64 = random.random();
                let job = PhillyGenerator::new(seed).next();
                let job = job.unwrap_or_default();
                JobSize {
                    // Philly has no arrays: some are as large as its gangs.
                    gang: job.tasks > 1 && !seed.is_multiple_of(ARRAY_EVERY),
                    tasks: job.tasks,
                    run_ms: job.duration_ms.unwrap_or(0).min(self.tempo.run_ms_max()),
                    gpus: job.gpus_per_task,
                }
            }
        }
    }

    /// Draws a job, which may depend on one of this user's `earlier` ones.
    fn draw_job(&mut self, earlier: &[JobId]) -> JobSpec {
        let JobSize {
            gang,
            tasks,
            gpus,
            run_ms,
        } = self.draw_size();
        let random = &mut self.random;
        let fails = random.random_range(0..10) == 0;
        let environment = BTreeMap::from([
            ("RUN_MS".to_owned(), run_ms.to_string()),
            (
                "EXIT_CODE".to_owned(),
                if fails { "1" } else { "0" }.to_owned(),
            ),
            (
                "HEEDS_STOP".to_owned(),
                random.random_range(0..2).to_string(),
            ),
            ("HANG_MS".to_owned(), draw_hang_ms(random).to_string()),
        ]);
        let group = TaskGroup {
            name: "main".to_owned(),
            count: tasks,
            resources: Resources {
                gpus,
                ..Resources::default()
            },
            command: vec!["simulated".to_owned()],
            environment,
            working_directory: None,
            tasks_per_host_max: random.random_bool(0.2).then_some(2),
            layout: draw_layout(random),
            execution: execution_of(run_ms),
        };
        let lifecycle = lifecycle_of(gang, tasks, run_ms, earlier);
        JobSpec {
            name: "simulated".to_owned(),
            user: "user".to_owned(),
            queue: draw_queue(random).to_owned(),
            priority: random.random_range(-2..3),
            gang,
            groups: vec![group],
            retry: RetryPolicy {
                retries_max: 2,
                backoff_ms: 500,
            },
            partition_grace_ms: self.tempo.partition_grace_ms(),
            stop_grace_ms: 1_000,
            labels: BTreeMap::new(),
            scheduling: draw_scheduling(random, gang, self.tempo),
            lifecycle,
        }
    }
}

/// Size of a job.
#[derive(Clone, Copy, Debug)]
struct JobSize {
    gang: bool,
    tasks: u32,
    /// GPUs per task.
    gpus: u32,
    run_ms: u64,
}

/// Submission of a job under this request id.
fn submission(id: RequestId, spec: Arc<JobSpec>) -> Command {
    Command::SubmitJob {
        request: RequestKey::of(id),
        spec,
    }
}

/// Whether a job is submitted as part of a pipeline; derived from its run time, so that other draws do not
/// change.
fn is_of_pipeline(spec: &JobSpec) -> bool {
    let run_ms = spec.groups[0].environment.get("RUN_MS");
    let run_ms: Option<u64> = run_ms.and_then(|text| text.parse().ok());
    run_ms.is_some_and(|run_ms| run_ms.is_multiple_of(PIPELINE_EVERY))
}

/// Execution settings of a job's tasks; derived from its run time, so that other draws do not change.
fn execution_of(run_ms: u64) -> Execution {
    let container = run_ms.is_multiple_of(6).then(|| Container {
        image: "simulated".to_owned(),
        ..Container::default()
    });
    Execution {
        container,
        pids_max: run_ms.is_multiple_of(7).then_some(64),
        ..Execution::default()
    }
}

/// Lifecycle settings of a job; derived from its run time, so that other draws do not change.
fn lifecycle_of(gang: bool, tasks: u32, run_ms: u64, earlier: &[JobId]) -> Lifecycle {
    let mut lifecycle = Lifecycle::default();
    if !gang && run_ms.is_multiple_of(5) {
        lifecycle.tasks_at_once_max = Some(1);
    }
    if run_ms.is_multiple_of(2) {
        lifecycle.suspend = SuspendMode::Release;
    }
    if gang && run_ms.is_multiple_of(7) {
        lifecycle.barrier = Some(false);
    }
    if run_ms.is_multiple_of(2) {
        lifecycle.local_retries_max = 1;
    }
    // Not allowed for gangs of one task.
    if gang && tasks > 1 && run_ms.is_multiple_of(3) {
        lifecycle.member_swap = true;
    }
    if run_ms.is_multiple_of(7) {
        lifecycle.attempts_without_progress_max = Some(2);
    }
    let when = match run_ms % 12 {
        0 | 1 => Condition::Ended,
        2 => Condition::Succeeded,
        3 => Condition::Failed,
        _ => return lifecycle,
    };
    let newest = earlier.last().map(|job| Dependency { job: *job, when });
    lifecycle.after.extend(newest);
    lifecycle
}

/// Draws how long a job's tasks hang in the kernel when they are killed: most do not.
fn draw_hang_ms(random: &mut impl Rng) -> u64 {
    match random.random_range(0..8) {
        0 => random.random_range(0..HANG_MS_MAX),
        _ => 0,
    }
}
