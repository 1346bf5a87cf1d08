//! Whether a cluster is whole: somebody leads, every replica answers and has caught up, every host is up.

use muster_core::ids::Revision;
use muster_proto::v1;
use tokio::time::{Duration, Instant, timeout};

use super::Nemesis;
use crate::run::RunError;
use crate::run::options::{POLL, WHOLE_PATIENCE, WORKERS};

/// Longest that one look may take: a replica that does not answer is not whole.
const LOOK: Duration = Duration::from_secs(2);

impl Nemesis {
    /// Waits until the cluster is whole; none if that takes too long.
    pub(super) async fn await_whole(&self) -> Option<()> {
        let deadline = Instant::now() + WHOLE_PATIENCE;
        while Instant::now() < deadline {
            if self.missing().await.is_none() {
                return Some(());
            }
            tokio::time::sleep(POLL).await;
        }
        None
    }

    /// Waits until the cluster is whole, in the middle of what is done to it.
    pub(super) async fn require_whole(&self) -> Result<(), RunError> {
        match self.await_whole().await {
            Some(()) => Ok(()),
            None => Err(RunError::Harness(format!(
                "the cluster is not whole: {}",
                self.what_is_missing().await
            ))),
        }
    }

    /// What is missing, for people.
    pub(super) async fn what_is_missing(&self) -> String {
        let missing = self.missing().await;
        missing.unwrap_or_else(|| "nothing by now".to_owned())
    }

    /// The newest revision that anybody was told of.
    pub(in crate::run) async fn revision(&self) -> Result<Revision, RunError> {
        let status = self.client.status(v1::Consistency::Linearizable).await?;
        Ok(Revision(status.revision))
    }

    async fn missing(&self) -> Option<String> {
        let status = self.client.status(v1::Consistency::Linearizable);
        let Ok(Ok(status)) = timeout(LOOK, status).await else {
            return Some("nobody leads".to_owned());
        };
        let up = status.hosts.map_or(0, |hosts| hosts.up);
        if up as usize != WORKERS {
            return Some(format!("{up} of {WORKERS} hosts are up"));
        }
        for (replica, client) in (1..).zip(&self.pinned) {
            match timeout(LOOK, client.status(v1::Consistency::Stale)).await {
                Ok(Ok(seen)) if seen.revision >= status.revision => {}
                Ok(Ok(seen)) => {
                    let (has, lacks) = (seen.revision, status.revision);
                    return Some(format!(
                        "replica {replica} is at {has}, the leader at {lacks}"
                    ));
                }
                _ => return Some(format!("replica {replica} does not answer")),
            }
        }
        None
    }
}
