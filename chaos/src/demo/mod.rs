//! `muster demo`: a real cluster of processes trains a real model while its parts are killed.

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

/// A demo that could not be played to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The local cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A call that the cluster did not answer as it must.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something expected did not happen.
    #[error(transparent)]
    Missed(#[from] Missed),
    /// The cluster did not come up.
    #[error(transparent)]
    Dev(#[from] crate::dev::DevError),
    /// The undisturbed run.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A promise that was broken in the middle.
    #[error("{0}")]
    Broken(String),
}

/// Plays the demo; prints the timeline and the table; true if every promise held.
///
/// Ends every process that it started, also when something fails.
///
/// # Errors
/// Why it could not be played to its end.
pub async fn run(options: DemoOptions) -> Result<bool, DemoError> {
    let timeline = Timeline::begin(Output::Stdout);
    let mut stage = Stage::set(options, timeline).await?;
    let played = play(&mut stage).await;
    let board = stage.board();
    let kept = stage.options.keep;
    let struck = stage.strike().await;
    if let Err(error) = played {
        timeline.say(Voice::Fault, &format!("the demo stops: {error}"));
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
