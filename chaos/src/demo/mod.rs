//! `muster demo`: a cluster of real processes trains a real model while its parts are killed.

mod faults;
mod jobs;
mod options;
pub mod scoreboard;
mod stage;
mod stream;

use muster_client::ClientError;

pub use options::DemoOptions;
pub use scoreboard::Scoreboard;

use crate::cluster::timeline::{LineKind, Output, Timeline};
use crate::cluster::{ClusterError, EventTimeout, TestbedError};
use crate::workload::{ReferenceError, TraceError};
use stage::Stage;

/// Failure to complete the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The local cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The cluster did not answer a call as expected.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An expected event did not happen.
    #[error(transparent)]
    Timeout(#[from] EventTimeout),
    /// The cluster did not start or end.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The undisturbed run failed.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An invariant was violated during the demo.
    #[error("{0}")]
    Broken(String),
}

/// Runs the demo; prints the timeline and the table; returns true if every invariant held.
///
/// Ends every process that it started, also after a failure.
///
/// # Errors
/// [`DemoError`] gives the reason why it could not be completed.
pub async fn run(options: DemoOptions) -> Result<bool, DemoError> {
    let timeline = Timeline::begin(Output::Stdout);
    let mut stage = Stage::set(options, timeline).await?;
    let played = play(&mut stage).await;
    let board = stage.board();
    let kept = stage.options.keep;
    let ended = stage.tear_down().await;
    if let Err(error) = played {
        timeline.print_line(LineKind::Fault, &format!("the demo stopped: {error}"));
        ended?;
        return Err(error);
    }
    ended?;
    timeline.print(&format!("\n{board}"));
    let holds = board.holds();
    let (kind, verdict) = if holds {
        let left = if kept { "" } else { " and no file" };
        let text = format!("every promise held; no process{left} is left behind");
        (LineKind::Recovery, text)
    } else {
        let text = "A PROMISE WAS BROKEN, see the table".to_owned();
        (LineKind::Fault, text)
    };
    timeline.print_line(kind, &verdict);
    Ok(holds)
}

async fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let calm = stage.train_undisturbed().await?;
    stage.await_cluster().await?;
    stage.start_training().await?;
    let stream = stage.start_stream()?;
    faults::inject_all(stage).await?;
    stream
        .await
        .map_err(|_| DemoError::Broken("the job stream died".to_owned()))??;
    let faulty = stage.await_finish().await?;
    stage.compare_results(faulty, calm)
}
