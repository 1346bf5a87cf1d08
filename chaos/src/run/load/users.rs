//! Simulated users: each keeps calling despite faults, and records every outcome.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use muster_client::{Client, ClientConfig, ClientError};
use muster_model::ids::{JobId, RequestId};
use muster_proto::v1;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::run::external::Tag;
use crate::run::history::History;
use crate::run::options::{CALL_DEADLINE, CALL_PAUSE, TRY_DEADLINE, USERS};
use crate::workload::jobs::{group, job};

/// Number of newest jobs that users remember, to read and cancel them.
const REMEMBERED: usize = 200;
/// Percentage of calls that submit a job, that submit one twice concurrently, and that cancel one; the
/// others read.
const SUBMITS: u32 = 16;
const TWICE: u32 = 4;
const CANCELS: u32 = 6;
/// Author of the cancels.
const AUTHOR: &str = "chaos";
/// Tasks of the largest gang in a cluster started by the run.
pub(in crate::run) const GANG_TASKS_MAX: u32 = 8;
/// Milliseconds per second.
const SECOND_MS: f64 = 1_000.0;
/// Priority of jobs that preempt others.
const URGENT: i32 = 10;

/// Jobs that users submit, and the calls that they make.
#[derive(Clone, Debug)]
pub(in crate::run) struct LoadSpec {
    /// Program of the tasks.
    pub(in crate::run) tool: TaskProgram,
    /// GPUs per task of single-GPU jobs, and of multi-GPU jobs.
    pub(in crate::run) gpus: [u32; 2],
    /// Tasks of the largest gang.
    pub(in crate::run) gang_tasks_max: u32,
    /// Tag of this run's jobs on a shared cluster; with one, the owner of a job is read before each cancel.
    pub(in crate::run) tag: Option<Tag>,
    /// Whether users cancel jobs.
    pub(in crate::run) cancels: bool,
}

/// Program of the tasks.
#[derive(Clone, Debug)]
pub(in crate::run) enum TaskProgram {
    /// The example trainer, which locks its GPUs and records its ledger in a folder.
    Trainer {
        /// Path of the trainer.
        trainer: PathBuf,
        /// The ledger folder.
        ledger: PathBuf,
    },
    /// `sleep`, available on every host.
    Sleep,
}

/// One user.
struct User {
    number: u32,
    random: ChaCha8Rng,
    /// Tries the replicas in order.
    client: Client,
    /// Tries them in the opposite order.
    other: Client,
    workshop: LoadSpec,
    history: Arc<History>,
    known: Arc<Mutex<Vec<JobId>>>,
}

/// The running users.
#[derive(Debug)]
pub(in crate::run) struct Users {
    at_work: JoinSet<()>,
    stop: CancellationToken,
}

impl Users {
    /// Starts all users.
    ///
    /// # Errors
    /// If the addresses are invalid.
    pub(in crate::run) async fn begin(
        cluster: &ClientConfig,
        seed: u64,
        workshop: &LoadSpec,
        history: &Arc<History>,
    ) -> Result<Self, ClientError> {
        let known = Arc::default();
        let stop = CancellationToken::new();
        let mut at_work = JoinSet::new();
        for number in 0..USERS {
            let mut reversed = cluster.clone();
            reversed.addresses.reverse();
            let user = User {
                number,
                random: draws(seed, number),
                client: client(cluster.clone()).await?,
                other: client(reversed).await?,
                workshop: workshop.clone(),
                history: Arc::clone(history),
                known: Arc::clone(&known),
            };
            at_work.spawn(user.work(stop.clone()));
        }
        Ok(Self { at_work, stop })
    }

    /// Stops every user after its current call.
    pub(in crate::run) async fn end(mut self) {
        self.stop.cancel();
        while self.at_work.join_next().await.is_some() {}
    }
}

/// Random stream of one user, independent of the nemesis.
fn draws(seed: u64, user: u32) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(user) + 1);
    random
}

async fn client(cluster: ClientConfig) -> Result<Client, ClientError> {
    let config = ClientConfig {
        discover: false,
        deadline: CALL_DEADLINE,
        per_try_deadline: TRY_DEADLINE,
        ..cluster
    };
    Client::connect(config).await
}

impl User {
    async fn work(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let drawn = self.random.random_range(0..100);
            match drawn {
                0..SUBMITS => self.submit().await,
                SUBMITS.. if drawn < SUBMITS + TWICE => self.submit_twice().await,
                _ if drawn < SUBMITS + TWICE + CANCELS && self.workshop.cancels => {
                    self.cancel().await;
                }
                _ => self.read().await,
            }
            tokio::time::sleep(CALL_PAUSE).await;
        }
    }

    async fn submit(&mut self) {
        let (request, spec) = self.workshop.draw(&mut self.random);
        self.send(&self.client, request, spec).await;
    }

    /// Sends the same request over two connections at once: it must create one job.
    async fn submit_twice(&mut self) {
        let (request, spec) = self.workshop.draw(&mut self.random);
        let first = self.send(&self.client, request, spec.clone());
        let second = self.send(&self.other, request, spec);
        tokio::join!(first, second);
    }

    async fn send(&self, client: &Client, request: RequestId, spec: v1::JobSpec) {
        let submitted = self.history.submit(self.number, client, request, spec);
        // The history records the outcome.
        if let Ok(answer) = submitted.await {
            self.remember(answer.job);
        }
    }

    async fn cancel(&mut self) {
        let Some(job) = self.draw_known() else {
            return;
        };
        if !self.is_ours(job).await {
            return;
        }
        let author = self.workshop.tag.as_ref().map_or(AUTHOR, |tag| &tag.user);
        let cancelled = self.history.cancel(self.number, &self.client, job, author);
        let _noted = cancelled.await;
    }

    /// Whether a job may be cancelled: on a shared cluster its owner is read first.
    async fn is_ours(&self, job: JobId) -> bool {
        let Some(tag) = &self.workshop.tag else {
            return true;
        };
        let read = self.client.get_job(job, 1, v1::Consistency::Linearizable);
        read.await.is_ok_and(|detail| tag.owns(&detail.job))
    }

    async fn read(&mut self) {
        let Some(job) = self.draw_known() else {
            return;
        };
        let read = self.history.read(self.number, &self.client, job);
        let _noted = read.await;
    }

    fn remember(&self, job: JobId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push(job);
    }

    fn draw_known(&mut self) -> Option<JobId> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return None;
        }
        Some(known[self.random.random_range(0..known.len())])
    }
}

impl LoadSpec {
    /// Users of a cluster started by the run, where all jobs are theirs.
    pub(in crate::run) fn own(trainer: &Path, ledger: &Path) -> Self {
        Self {
            tool: TaskProgram::Trainer {
                trainer: trainer.to_owned(),
                ledger: ledger.to_owned(),
            },
            gpus: [1, 4],
            gang_tasks_max: GANG_TASKS_MAX,
            tag: None,
            cancels: true,
        }
    }

    /// A request and its job as users draw them; users never draw the same one.
    pub(in crate::run) fn sample(&self) -> (RequestId, v1::JobSpec) {
        self.draw(&mut ChaCha8Rng::seed_from_u64(0))
    }

    /// Draws a request and its job: mostly one short task, sometimes a gang, an array, or a long job.
    fn draw(&self, random: &mut ChaCha8Rng) -> (RequestId, v1::JobSpec) {
        let request = RequestId(random.random());
        let request = self.tag.as_ref().map_or(request, |tag| tag.salt(request));
        let [one, several] = self.gpus;
        let most = self.gang_tasks_max;
        let pair = most.min(2);
        let (name, tasks, gpus, run_ms, gang) = match random.random_range(0..20) {
            0..12 => ("short", 1, one, 20..400, false),
            12..15 => (
                "gang",
                random.random_range(pair..=most),
                one,
                200..900,
                true,
            ),
            15..17 => ("array", random.random_range(2..=4), one, 20..400, false),
            17..19 => ("wide", 1, several, 200..900, false),
            _ => ("long", pair, one, 3_000..6_000, true),
        };
        let run_ms = random.random_range(run_ms);
        let spec = job(name, 0, gang, self.tasks(tasks, gpus, run_ms));
        let tagged = self.tag.as_ref().map(|tag| tag.mark(request, spec.clone()));
        (request, tagged.unwrap_or(spec))
    }

    fn tasks(&self, count: u32, gpus: u32, run_ms: u64) -> v1::TaskGroup {
        match &self.tool {
            TaskProgram::Trainer { trainer, ledger } => {
                let command = [
                    trainer.display().to_string(),
                    "busy".to_owned(),
                    "--milliseconds".to_owned(),
                    run_ms.to_string(),
                ];
                group("main", count, gpus, command.to_vec(), ledger)
            }
            TaskProgram::Sleep => {
                let seconds = run_ms as f64 / SECOND_MS;
                let command = vec!["sleep".to_owned(), seconds.to_string()];
                let mut plain = group("main", count, gpus, command, Path::new(""));
                plain.environment.clear();
                plain
            }
        }
    }
}

/// A gang that preempts others: two whole hosts' worth of GPUs.
pub(in crate::run) fn storm_job(trainer: &Path, ledger: &Path, gpus: u32) -> v1::JobSpec {
    /// Run time in milliseconds.
    const STORM_MS: u64 = 500;
    let workshop = LoadSpec::own(trainer, ledger);
    job("urgent", URGENT, true, workshop.tasks(2, gpus, STORM_MS))
}
