//! The stream of small jobs beside the training.

use std::time::Duration;

use muster_client::{Client, ClientError};
use muster_core::ids::JobId;
use muster_proto::v1;

/// Pause between two submissions.
const PAUSE: Duration = Duration::from_millis(350);

/// Submits every job, through whatever happens to the cluster; returns the acknowledged ids.
///
/// # Errors
/// A refusal, or silence for longer than the client's deadline.
pub(super) async fn submit_all(
    client: Client,
    jobs: Vec<v1::JobSpec>,
) -> Result<Vec<JobId>, ClientError> {
    let mut acknowledged = Vec::with_capacity(jobs.len());
    for job in jobs {
        acknowledged.push(client.submit_job(job).await?.job);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(acknowledged)
}
