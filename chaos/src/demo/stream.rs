//! The stream of small jobs beside the training.

use std::sync::Arc;
use std::time::Duration;

use muster_client::{Client, ClientError};
use muster_proto::v1;

use super::observer::{Observed, lock};

/// Pause between two submissions.
const PAUSE: Duration = Duration::from_millis(350);

/// Submits every job, through whatever happens to the cluster, and counts the acknowledged ones.
///
/// # Errors
/// A refusal, or silence for longer than the client's deadline.
pub(super) async fn submit_all(
    client: Client,
    observed: Arc<Observed>,
    jobs: Vec<v1::JobSpec>,
) -> Result<(), ClientError> {
    for job in jobs {
        let job = client.submit_job(job).await?.job;
        lock(&observed.board).acknowledged(job);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
