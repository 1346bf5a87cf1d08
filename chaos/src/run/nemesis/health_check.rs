//! Health check of the cluster: there is a leader, every replica answers and has caught up, and every host
//! is up.

use muster_proto::v1;
use tokio::time::{Duration, Instant, timeout};

use crate::run::RunError;
use crate::run::nemesis::Nemesis;
use crate::run::options::{POLL, WHOLE_TIMEOUT, WORKERS};

/// Timeout of one check: a replica that does not answer is not healthy.
pub(super) const LOOK: Duration = Duration::from_secs(2);

impl Nemesis {
    /// Waits until the cluster is healthy; returns false on timeout.
    pub(super) async fn await_recovery(&self) -> bool {
        let deadline = Instant::now() + WHOLE_TIMEOUT;
        while Instant::now() < deadline {
            if self.missing().await.is_none() {
                return true;
            }
            tokio::time::sleep(POLL).await;
        }
        false
    }

    /// Called before an agent is restarted: the cluster is healthy only once the agent has registered
    /// again.
    pub(super) async fn expect_agent(&mut self, worker: usize) -> Result<(), RunError> {
        let name = &self.cluster.workers()[worker].name;
        let (_, hosts) = self
            .client
            .list_hosts(v1::ListHostsRequest::default())
            .await?;
        let known = hosts.into_iter().find(|host| host.name == *name);
        let next = known.map_or(0, |host| host.incarnation) + 1;
        self.incarnations.insert(name.clone(), next);
        Ok(())
    }

    /// A host whose agent has not registered again, if there is one.
    async fn absent_agent(&self) -> Option<String> {
        if self.incarnations.is_empty() {
            return None;
        }
        let listed = self.client.list_hosts(v1::ListHostsRequest::default());
        let Ok(Ok((_, hosts))) = timeout(LOOK, listed).await else {
            return Some("hosts could not be listed".to_owned());
        };
        let mut absent = hosts.into_iter().filter(|host| {
            let expected = self.incarnations.get(&host.name);
            expected.is_some_and(|expected| host.incarnation < *expected)
        });
        absent
            .next()
            .map(|host| format!("the agent of {} has not returned", host.name))
    }

    /// Describes the first failed check.
    pub(super) async fn failed_check(&self) -> String {
        let missing = self.missing().await;
        missing.unwrap_or_else(|| "all checks pass by now".to_owned())
    }

    async fn missing(&self) -> Option<String> {
        let status = self.client.status(v1::Consistency::Linearizable);
        let Ok(Ok(status)) = timeout(LOOK, status).await else {
            return Some("there is no leader".to_owned());
        };
        let up = status.hosts.map_or(0, |hosts| hosts.up);
        if up as usize != WORKERS {
            return Some(format!("{up} of {WORKERS} hosts are up"));
        }
        if let Some(absent) = self.absent_agent().await {
            return Some(absent);
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
