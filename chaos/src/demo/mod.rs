//! `muster demo`: a cluster of real processes trains a real model while its parts are killed.

mod faults;
pub(crate) mod jobs;
pub(crate) mod observer;
pub(crate) mod options;
pub(crate) mod reference;
pub mod scoreboard;
mod stage;
mod stream;
pub mod timeline;

use muster_client::ClientError;

pub use observer::Missed;
pub use options::DemoOptions;
pub use reference::ReferenceError;
pub use scoreboard::Scoreboard;

use crate::cluster::ClusterError;
use crate::workload::TraceError;
use stage::Stage;
use timeline::{Output, Timeline, Voice};

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
    Missed(#[from] Missed),
    /// The cluster did not start.
    #[error(transparent)]
    Dev(#[from] crate::dev::DevError),
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
    let struck = stage.strike().await;
    if let Err(error) = played {
        timeline.say(Voice::Fault, &format!("the demo stopped: {error}"));
        struck?;
        return Err(error);
    }
    struck?;
    timeline.print(&format!("\n{board}"));
    let holds = board.holds();
    let (voice, verdict) = if holds {
        let left = if kept { "" } else { " and no file" };
        let text = format!("every promise held; no process{left} is left behind");
        (Voice::Recovery, text)
    } else {
        let text = "A PROMISE WAS BROKEN, see the table".to_owned();
        (Voice::Fault, text)
    };
    timeline.say(voice, &verdict);
    Ok(holds)
}

async fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let calm = stage.train_undisturbed().await?;
    stage.await_cluster().await?;
    stage.start_training().await?;
    let stream = stage.start_stream()?;
    faults::play_all(stage).await?;
    stream
        .await
        .map_err(|_| DemoError::Broken("the job stream died".to_owned()))??;
    let faulty = stage.await_finish().await?;
    stage.settle_accounts(faulty, calm)
}
