//! Placements per second on thousands of simulated hosts, from the submit until the worker has received the
//! task.
//! The clock stops when the last task has reached its simulated worker, which is later than the commit of its
//! allocation: the figure is a lower bound. Workers, clients and replicas share the machine.

use std::time::Duration;

use muster_proto::v1;
use tokio::time::Instant;

use crate::fleet::{Fleet, FleetShape, TaskBehavior};
use crate::load::{Until, closed_loop};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::specs;
use crate::testbed::{Shape, Testbed};

const HOSTS: u32 = 5_000;
const HOSTS_QUICK: u32 = 500;
const GPUS_PER_HOST: u32 = 8;
const CONNECTIONS: usize = 16;
/// Goal for single-GPU placements per second.
const SINGLES_GOAL: f64 = 20_000.0;
/// Goal for placements of 8-GPU gangs per second.
const GANGS_GOAL: f64 = 2_000.0;
const TIMEOUT: Duration = Duration::from_secs(120);
const IN_FLIGHT: usize = 256;

/// The measured cluster.
struct MeasuredCluster {
    testbed: Testbed,
    fleet: Fleet,
    hosts: u32,
}

/// Jobs of one size.
struct Wave {
    spec: v1::JobSpec,
    jobs: u64,
    tasks_per_job: u64,
}

impl Wave {
    const fn tasks(&self) -> u64 {
        self.jobs * self.tasks_per_job
    }
}

/// Results of the waves of one kind.
#[derive(Default)]
struct Series {
    rates: Samples,
    leader_us: Samples,
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let cluster = MeasuredCluster::build(bench).await?;
    let gpus = u64::from(cluster.hosts * GPUS_PER_HOST);
    // One host goes to the job that blocks the others, and its seven other GPUs stay free.
    let gang_jobs = u64::from(cluster.hosts) - 1;
    let singles = |jobs| Wave {
        spec: specs::single(),
        jobs,
        tasks_per_job: 1,
    };
    let gangs = |jobs| Wave {
        spec: specs::gang(GPUS_PER_HOST, 1),
        jobs,
        tasks_per_job: u64::from(GPUS_PER_HOST),
    };
    let runs = bench.pick(3, 1);
    let mut rows = Vec::new();

    let mut series = Series::default();
    for _ in 0..runs {
        cluster.array(gpus, &mut series).await?;
    }
    let conditions = format!("one array of {gpus} tasks; from its submit");
    rows.push(cluster.row(
        "single-GPU tasks placed",
        &conditions,
        SINGLES_GOAL,
        &series,
    ));

    let kinds = [
        (
            "single-GPU jobs placed",
            singles(gpus - u64::from(GPUS_PER_HOST)),
            SINGLES_GOAL,
        ),
        (
            "8-GPU gangs placed (8 tasks each)",
            gangs(gang_jobs),
            GANGS_GOAL,
        ),
    ];
    for (what, wave, goal) in kinds {
        let (mut queued, mut streamed) = (Series::default(), Series::default());
        for _ in 0..runs {
            bench.progress(&format!("   {what}: {} jobs, queued", wave.jobs));
            cluster.queued(&wave, &mut queued).await?;
            bench.progress(&format!(
                "   {what}: {} jobs, submitted meanwhile",
                wave.jobs
            ));
            cluster.streamed(&wave, &mut streamed).await?;
        }
        let conditions = format!(
            "{} jobs wait already; from the moment they may go",
            wave.jobs
        );
        rows.push(cluster.row(what, &conditions, goal, &queued));
        let conditions = format!(
            "{} jobs submitted one by one, {IN_FLIGHT} in flight; from the first submit",
            wave.jobs
        );
        rows.push(cluster.row(what, &conditions, goal, &streamed));
    }
    cluster.testbed.stop()?;
    Ok(rows)
}

impl MeasuredCluster {
    async fn build(bench: &Bench) -> anyhow::Result<Self> {
        let hosts = bench.pick(HOSTS, HOSTS_QUICK);
        let testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
        let shape = FleetShape {
            hosts,
            gpus_per_host: GPUS_PER_HOST,
            connections: CONNECTIONS,
        };
        let began = Instant::now();
        let fleet = Fleet::start(shape, &testbed.addresses())?;
        fleet.await_welcomed(hosts, TIMEOUT).await?;
        bench.progress(&format!(
            "   {hosts} hosts registered in {:.1} s",
            began.elapsed().as_secs_f64()
        ));
        Ok(Self {
            testbed,
            fleet,
            hosts,
        })
    }

    /// One job with a task for every GPU.
    async fn array(&self, gpus: u64, series: &mut Series) -> anyhow::Result<()> {
        let spec = specs::array(u32::try_from(gpus)?, 1);
        let watch = StopWatch::start(self).await?;
        self.testbed.client().submit_job(spec).await?;
        watch.stop(gpus, gpus, series).await?;
        self.empty().await
    }

    /// Jobs that wait behind a gang of all hosts, which cannot be placed while one GPU is held, until that
    /// gang is cancelled.
    async fn queued(&self, wave: &Wave, series: &mut Series) -> anyhow::Result<()> {
        let client = self.testbed.client();
        let before = self.fleet.assigned();
        client.submit_job(specs::single()).await?;
        self.fleet.await_assigned(before + 1, TIMEOUT).await?;
        let mut all_hosts = specs::gang(self.hosts, GPUS_PER_HOST);
        all_hosts.priority = specs::PRIORITY_FIRST;
        let holder = client.submit_job(all_hosts).await?;
        self.testbed.load_jobs(wave.jobs, wave.spec.clone()).await?;

        let watch = StopWatch::start(self).await?;
        client
            .cancel_job(holder.job, "bench", "let the others go")
            .await?;
        watch.stop(wave.tasks(), wave.jobs, series).await?;
        self.empty().await
    }

    /// Jobs that are placed while others are being submitted.
    async fn streamed(&self, wave: &Wave, series: &mut Series) -> anyhow::Result<()> {
        let client = self.testbed.client().clone();
        let spec = wave.spec.clone();
        let watch = StopWatch::start(self).await?;
        closed_loop(IN_FLIGHT, Until::Done(wave.jobs), move |_| {
            let (client, spec) = (client.clone(), spec.clone());
            async move {
                client.submit_job(spec).await?;
                Ok(())
            }
        })
        .await?;
        watch.stop(wave.tasks(), wave.jobs, series).await?;
        self.empty().await
    }

    /// Ends every task and waits until every GPU is free.
    async fn empty(&self) -> anyhow::Result<()> {
        self.fleet.set_task_behavior(TaskBehavior::End);
        self.testbed
            .await_status("an empty cluster", |status| {
                status.gpus.is_some_and(|gpus| gpus.held == 0)
                    && status.jobs.is_some_and(|jobs| jobs.queued == 0)
            })
            .await?;
        self.fleet.set_task_behavior(TaskBehavior::Run);
        Ok(())
    }

    fn row(&self, what: &str, conditions: &str, goal: f64, series: &Series) -> Row {
        Row {
            what: what.to_owned(),
            conditions: format!(
                "{} hosts x {GPUS_PER_HOST} GPUs; {conditions}; {} runs; leader's CPU {:.0} us each",
                self.hosts,
                series.rates.len(),
                series.leader_us.median()
            ),
            unit: "1/s",
            values: Values::runs(&series.rates),
            goal: Some(Goal::AtLeast(goal)),
        }
    }
}

/// Timer of one wave.
struct StopWatch<'a> {
    cluster: &'a MeasuredCluster,
    leader: i32,
    assigned: u64,
    cpu: Duration,
    began: Instant,
}

impl<'a> StopWatch<'a> {
    async fn start(cluster: &'a MeasuredCluster) -> anyhow::Result<Self> {
        let leader = cluster.testbed.pid(cluster.testbed.leader().await?)?;
        Ok(Self {
            cluster,
            leader,
            assigned: cluster.fleet.assigned(),
            cpu: crate::cpu::used_by(leader)?,
            began: Instant::now(),
        })
    }

    /// Waits for `tasks` tasks, which are `placements` placements.
    async fn stop(self, tasks: u64, placements: u64, series: &mut Series) -> anyhow::Result<()> {
        const MICROS: f64 = 1e6;
        let assigned = self.assigned + tasks;
        let ended = self.cluster.fleet.await_assigned(assigned, TIMEOUT).await?;
        let cpu = crate::cpu::used_by(self.leader)? - self.cpu;
        let placements = placements as f64;
        let took = ended.duration_since(self.began);
        series.rates.push(placements / took.as_secs_f64());
        series
            .leader_us
            .push(cpu.as_secs_f64() * MICROS / placements);
        Ok(())
    }
}
