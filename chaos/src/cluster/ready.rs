//! Waiting until a cluster is ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_client::{Client, ClientError};
use muster_proto::v1;
use rustix::process::Pid;
use tokio::task::JoinError;
use tokio::time::{sleep, timeout};

use crate::cluster::{ClusterError, LocalCluster, Member, is_alive};

/// Maximum time until the cluster is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval.
const POLL: Duration = Duration::from_millis(50);

/// Failure to start or to end a local cluster under test.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The local cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Its client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It did not become ready.
    #[error("the cluster was not ready after {} s; its logs are in {folder}", READY_TIMEOUT.as_secs())]
    NotReady {
        /// Folder with the logs, kept for inspection.
        folder: PathBuf,
    },
    /// One of its processes has ended.
    #[error("{name} has ended: {why}; its log is {}", log.display())]
    Ended {
        /// Name of the process.
        name: String,
        /// The reason, from its log.
        why: String,
        /// Path of its log, kept for inspection.
        log: PathBuf,
    },
    /// Stopping the cluster panicked.
    #[error("stopping the cluster")]
    Panicked(#[source] JoinError),
    /// Processes or files of the cluster remained after its end.
    #[error("{0}")]
    Left(String),
}

impl LocalCluster {
    /// Waits until there is a leader and every worker is registered.
    ///
    /// # Errors
    /// [`TestbedError::NotReady`] after a minute, [`TestbedError::Ended`] as soon as a process has ended.
    pub async fn await_ready(&self) -> Result<(), TestbedError> {
        let client = self.client().await?;
        let workers = self.workers().len();
        tokio::select! {
            ready = timeout(READY_TIMEOUT, comes_up(&client, workers)) => {
                ready.map_err(|_| TestbedError::NotReady {
                    folder: self.folder().to_owned(),
                })
            }
            ended = ends(self) => Err(ended),
        }
    }
}

async fn comes_up(client: &Client, workers: usize) {
    loop {
        if let Ok(status) = client.status(v1::Consistency::Linearizable).await
            && status
                .hosts
                .is_some_and(|hosts| hosts.up as usize == workers)
        {
            return;
        }
        sleep(POLL).await;
    }
}

/// Resolves with the reason once a started process has ended.
async fn ends(cluster: &LocalCluster) -> TestbedError {
    loop {
        if let Some(ended) = ended(cluster) {
            return ended;
        }
        sleep(POLL).await;
    }
}

fn ended(cluster: &LocalCluster) -> Option<TestbedError> {
    let has_ended = |member: &&Member| {
        let pid = member.pid().and_then(Pid::from_raw);
        pid.is_some_and(|pid| !is_alive(pid))
    };
    let mut members = cluster.replicas().iter().chain(cluster.workers());
    let member = members.find(has_ended)?;
    Some(TestbedError::Ended {
        name: member.name.clone(),
        why: last_words(&member.log()),
        log: member.log(),
    })
}

/// Reason for the end of a process from its output: an error line, or the last line.
fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let is_error = |line: &&str| line.starts_with("error:");
    let line = text.lines().find(is_error).or(text.lines().next_back());
    line.unwrap_or("its log is empty").to_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cluster::ClusterOptions;

    #[tokio::test]
    async fn a_process_that_ends_is_not_waited_for() {
        let options = ClusterOptions::small(PathBuf::from("/bin/false"));
        let cluster = LocalCluster::start(options).unwrap();
        let ended = cluster.await_ready().await.unwrap_err().to_string();
        assert!(ended.contains(" has ended: "), "{ended}");
        cluster.stop().unwrap();
    }

    #[test]
    fn the_error_that_a_process_names_are_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(last_words(&log), "its log is empty");
        fs::write(&log, "INFO starting\nINFO running\n").unwrap();
        assert_eq!(last_words(&log), "INFO running");
        fs::write(&log, "INFO starting\nerror: gpus: too many\n help: fewer\n").unwrap();
        assert_eq!(last_words(&log), "error: gpus: too many");
    }
}
