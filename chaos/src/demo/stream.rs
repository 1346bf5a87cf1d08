//! The stream of small jobs beside the training.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_client::{Client, ClientError};
use muster_proto::v1;
use tokio::time::Instant;

use crate::cluster::observer::lock;
use crate::demo::scoreboard::Scoreboard;

/// A job and its submission time relative to the start of the stream.
pub(super) type Submission = (Duration, v1::JobSpec);

/// Submits every job despite the faults, and counts the acknowledged ones.
///
/// # Errors
/// If a submission is refused, or unanswered for longer than the client's deadline.
pub(super) async fn submit_all(
    client: Client,
    board: Arc<Mutex<Scoreboard>>,
    jobs: Vec<Submission>,
) -> Result<(), ClientError> {
    let began = Instant::now();
    for (after, job) in jobs {
        tokio::time::sleep_until(began + after).await;
        let job = client.submit_job(job).await?.job;
        lock(&board).acknowledged(job);
    }
    Ok(())
}
