//! `muster dev`: a small cluster of real processes for trials and tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_client::{Client, ClientError};
use muster_proto::v1;
use rustix::process::Pid;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::cluster::{ClusterError, ClusterOptions, LocalCluster, Member, is_alive};

/// Maximum time until the cluster is ready.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval.
const POLL: Duration = Duration::from_millis(50);

/// Failure to run a development cluster.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The local cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Its client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It did not become ready.
    #[error("the cluster was not ready after {} s; its logs are in {folder}", READY_PATIENCE.as_secs())]
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
    /// The description of the cluster could not be delivered.
    #[error("describing the cluster")]
    Describe(#[source] io::Error),
}

/// Description of a development cluster, as JSON for scripts and tests.
#[derive(Clone, Debug, Serialize)]
pub struct DevCluster {
    /// gRPC addresses of the replicas, in order of their ids.
    pub addresses: Vec<String>,
    /// Prometheus addresses of the replicas.
    pub metrics: Vec<String>,
    /// Folder for everything that it writes.
    pub folder: PathBuf,
    /// Replicas, in order of their ids.
    pub replicas: Vec<DevProcess>,
    /// Workers.
    pub workers: Vec<DevProcess>,
}

/// One process of a development cluster.
#[derive(Clone, Debug, Serialize)]
pub struct DevProcess {
    /// Name of the process.
    pub name: String,
    /// Process id while it runs.
    pub pid: Option<i32>,
    /// Configuration file, to restart it with `muster scheduler|worker --config`.
    pub config: PathBuf,
    /// Path of its output.
    pub log: PathBuf,
}

impl From<&Member> for DevProcess {
    fn from(member: &Member) -> Self {
        Self {
            name: member.name.clone(),
            pid: member.pid(),
            config: member.config(),
            log: member.log(),
        }
    }
}

/// Runs a cluster until `shutdown` completes; calls `ready` once it is usable.
///
/// # Errors
/// [`DevError`] names what did not start, and the log with the reason.
pub async fn run(
    options: ClusterOptions,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(&DevCluster) -> io::Result<()>,
) -> Result<(), DevError> {
    let mut cluster = LocalCluster::start(options)?;
    let outcome = serve(&cluster, shutdown, ready).await;
    if matches!(
        outcome,
        Err(DevError::NotReady { .. } | DevError::Ended { .. })
    ) {
        cluster.keep();
    }
    let stopped = tokio::task::spawn_blocking(move || cluster.stop());
    let stopped = stopped
        .await
        .map_err(|error| DevError::Describe(io::Error::other(error)))?;
    outcome?;
    Ok(stopped?)
}

async fn serve(
    cluster: &LocalCluster,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(&DevCluster) -> io::Result<()>,
) -> Result<(), DevError> {
    tokio::pin!(shutdown);
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        up = await_ready(cluster) => up?,
    }
    ready(&describe(cluster)).map_err(DevError::Describe)?;
    shutdown.await;
    Ok(())
}

/// Waits until there is a leader and every worker is registered.
///
/// # Errors
/// [`DevError::NotReady`] after a minute, [`DevError::Ended`] as soon as a process has ended.
pub async fn await_ready(cluster: &LocalCluster) -> Result<(), DevError> {
    let client = cluster.client().await?;
    let workers = cluster.workers().len();
    tokio::select! {
        ready = timeout(READY_PATIENCE, comes_up(&client, workers)) => {
            ready.map_err(|_| DevError::NotReady {
                folder: cluster.folder().to_owned(),
            })
        }
        ended = ends(cluster) => Err(ended),
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
async fn ends(cluster: &LocalCluster) -> DevError {
    loop {
        if let Some(ended) = ended(cluster) {
            return ended;
        }
        sleep(POLL).await;
    }
}

fn ended(cluster: &LocalCluster) -> Option<DevError> {
    let has_ended = |member: &&Member| {
        let pid = member.pid().and_then(Pid::from_raw);
        pid.is_some_and(|pid| !is_alive(pid))
    };
    let mut members = cluster.replicas().iter().chain(cluster.workers());
    let member = members.find(has_ended)?;
    Some(DevError::Ended {
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

fn describe(cluster: &LocalCluster) -> DevCluster {
    DevCluster {
        addresses: cluster.addresses(),
        metrics: cluster.metrics().iter().map(ToString::to_string).collect(),
        folder: cluster.folder().to_owned(),
        replicas: cluster.replicas().iter().map(DevProcess::from).collect(),
        workers: cluster.workers().iter().map(DevProcess::from).collect(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_ends_is_not_waited_for() {
        let options = ClusterOptions::small(PathBuf::from("/bin/false"));
        let cluster = LocalCluster::start(options).unwrap();
        let ended = await_ready(&cluster).await.unwrap_err().to_string();
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
