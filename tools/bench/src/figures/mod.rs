//! Benchmarks, one file per figure.

mod cli;
mod detection;
mod engine;
mod failover;
mod heartbeats;
mod lost;
mod memory;
mod place;
mod report;
mod secure;
mod snapshot;
mod start;
mod submit;

use crate::options::{Bench, Figure};
use crate::row::Row;

/// Measures one figure.
pub(crate) async fn measure(figure: Figure, bench: &Bench) -> anyhow::Result<Vec<Row>> {
    match figure {
        Figure::Submit => submit::measure(bench).await,
        Figure::Secure => secure::measure(bench).await,
        Figure::Place => place::measure(bench).await,
        Figure::Failover => failover::measure(bench).await,
        Figure::Lost => lost::measure(bench).await,
        Figure::Start => start::measure(bench).await,
        Figure::Cli => cli::measure(bench).await,
        Figure::Heartbeats => heartbeats::measure(bench).await,
        Figure::Detection => detection::measure(bench).await,
        Figure::Report => report::measure(bench).await,
        Figure::Memory => memory::measure(bench).await,
        Figure::Engine => engine::measure(bench).await,
        Figure::Snapshot => snapshot::measure(bench).await,
    }
}
