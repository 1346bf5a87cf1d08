//! Benchmarks of the scheduling engine alone: decisions on clusters that exist only in memory, without
//! processes, disk or network.

mod array;
mod cluster;
mod cycle;
mod decision;
mod domain;
mod making_room;
mod rebuild;

use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Measures all of them, off the runtime's threads.
pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let bench = bench.clone();
    tokio::task::spawn_blocking(move || rows(&bench)).await?
}

fn rows(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = decision::single_host(bench)?;
    rows.extend(decision::virtual_clusters(bench)?);
    rows.extend(decision::gangs(bench)?);
    rows.push(domain::measure(bench)?);
    rows.extend(cycle::nothing_placeable(bench)?);
    rows.extend(cycle::nothing_in_time(bench)?);
    rows.extend(cycle::placements(bench)?);
    rows.extend(array::measure(bench)?);
    rows.extend(making_room::preemption(bench)?);
    rows.extend(making_room::moves(bench)?);
    rows.extend(rebuild::measure(bench)?);
    Ok(rows)
}

/// Mean and 99th percentile of decisions, each with a goal.
fn mean_and_p99(
    what: &str,
    conditions: &str,
    spans_us: &Samples,
    bounds: Option<(f64, f64)>,
) -> [Row; 2] {
    let row = |which: &str, value: f64, bound: Option<f64>| Row {
        what: format!("{what}: {which}"),
        conditions: conditions.to_owned(),
        unit: "us",
        values: Values::One(value),
        goal: bound.map(Goal::AtMost),
    };
    let (mean, p99) = bounds.unzip();
    [
        row("mean", spans_us.mean(), mean),
        row("p99", spans_us.quantile(0.99), p99),
    ]
}
