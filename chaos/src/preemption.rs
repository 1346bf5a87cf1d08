//! Queue policies under which jobs of a higher priority preempt others.

use muster_client::{Client, ClientError};
use muster_proto::v1;

/// Enables preemption by priority in the default queue.
///
/// # Errors
/// If a call fails.
pub(crate) async fn let_priority_preempt(client: &Client, author: &str) -> Result<(), ClientError> {
    let queue = v1::QueueConfig {
        preempt_by_priority: true,
        ..v1::QueueConfig::default()
    };
    let request = v1::ConfigureQueuesRequest {
        author: author.to_owned(),
        tree: Some(v1::QueueTree {
            queues: [("default".to_owned(), queue)].into_iter().collect(),
            ..v1::QueueTree::default()
        }),
        ..v1::ConfigureQueuesRequest::default()
    };
    client.configure_queues(request).await?;
    Ok(())
}
