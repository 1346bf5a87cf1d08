//! Cost of a task of an array of 100,000, with a bounded number running at a time, for the engine, from its
//! submit to its end; compared with the same tasks as separate jobs.

use std::time::Duration;

use anyhow::ensure;
use muster_harness::{Cluster, exit_with, single};
use muster_model::command::TaskOutcome;
use muster_model::ids::JobId;
use tokio::time::Instant;

use crate::figures::engine::cluster::{self, HOSTS};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Tasks that may run at a time.
const AT_ONCE: u32 = 1_000;
/// Goal for the submit of the whole array, in milliseconds.
const SUBMIT_GOAL_MS: f64 = 75.0;
const RUNS: usize = 3;

/// Form in which the tasks are submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One array.
    Array,
    /// One job per task.
    Jobs,
}

/// Measures the submit of the array, and a task's life in both forms.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let tasks = bench.pick(100_000, 5_000);
    let (mut submits, mut array, mut jobs) =
        (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..bench.pick(RUNS, 1) {
        let (submitted, lived) = live(Form::Array, tasks)?;
        submits.push_ms(submitted);
        array.push(lived.as_secs_f64() * 1e6 / f64::from(tasks));
        let (submitted, lived) = live(Form::Jobs, tasks)?;
        jobs.push((submitted + lived).as_secs_f64() * 1e6 / f64::from(tasks));
    }
    let row = |what: &str, form: &str, unit, values: &Samples, goal| Row {
        what: what.to_owned(),
        conditions: format!("{form}; 65,536 GPUs; {} runs", values.len()),
        unit,
        values: Values::runs(values),
        goal,
    };
    let one = format!("one array of {tasks} tasks of one GPU, {AT_ONCE} at a time");
    let many =
        format!("{tasks} jobs of one task, {AT_ONCE} waiting at a time; their submits included");
    let life = "life of a task in the engine: decided, placed, started, ended";
    Ok(vec![
        row(
            "submit of an array, applied",
            &one,
            "ms",
            &submits,
            Some(Goal::AtMost(SUBMIT_GOAL_MS)),
        ),
        row(life, &one, "us", &array, None),
        row(life, &many, "us", &jobs, None),
    ])
}

/// Runs all tasks to their end; returns the time of the array's submit, and the time of the rest.
fn live(form: Form, tasks: u32) -> anyhow::Result<(Duration, Duration)> {
    let mut cluster = cluster::cluster(HOSTS)?;
    let (mut submitted, mut lived) = (Duration::ZERO, Duration::ZERO);
    let (mut left, mut ended) = (tasks, 0);
    if form == Form::Array {
        let mut spec = single("array", tasks, 1);
        spec.lifecycle.tasks_at_once_max = Some(AT_ONCE);
        submitted += submit(&mut cluster, spec);
        left = 0;
    }
    while ended < tasks {
        let wave = left.min(AT_ONCE);
        for _ in 0..wave {
            submitted += submit(&mut cluster, single("job", 1, 1));
        }
        left -= wave;
        let began = Instant::now();
        let done = round(&mut cluster)?;
        lived += began.elapsed();
        ensure!((1..=AT_ONCE).contains(&done), "{done} tasks at a time");
        ended += done;
    }
    ensure!(ended == tasks, "{ended} of {tasks} tasks ended");
    Ok((submitted, lived))
}

fn submit(cluster: &mut Cluster, spec: muster_model::spec::JobSpec) -> Duration {
    let began = Instant::now();
    cluster.submit(spec);
    began.elapsed()
}

/// Runs one planning round, and ends all tasks that it placed; returns their number.
fn round(cluster: &mut Cluster) -> anyhow::Result<u32> {
    let planned = cluster.plan();
    let mut placed: Vec<(JobId, _)> = Vec::new();
    cluster.carry_out_plan(&planned)?;
    for placement in planned.placements() {
        placed.extend(
            placement
                .tasks
                .iter()
                .map(|task| (placement.job, task.task)),
        );
    }
    for (job, task) in &placed {
        cluster.report(*job, *task, TaskOutcome::Started);
        let applied = cluster.exit(*job, task.get(), exit_with(0));
        ensure!(applied.result.is_ok(), "{:?}", applied.result);
    }
    Ok(u32::try_from(placed.len())?)
}
