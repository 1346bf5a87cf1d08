//! `muster dev`: a small cluster of real processes for trials and tests.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::cluster::{ClusterOptions, LocalCluster, Member, TestbedError};

/// Failure to run a development cluster.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The cluster could not be started or ended.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
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
    let mut cluster = LocalCluster::start(options).map_err(TestbedError::from)?;
    let outcome = serve(&cluster, shutdown, ready).await;
    if matches!(
        outcome,
        Err(DevError::Testbed(
            TestbedError::NotReady { .. } | TestbedError::Ended { .. }
        ))
    ) {
        cluster.keep();
    }
    let stopped = tokio::task::spawn_blocking(move || cluster.stop());
    let stopped = stopped.await.map_err(TestbedError::Panicked)?;
    outcome?;
    Ok(stopped.map_err(TestbedError::from)?)
}

async fn serve(
    cluster: &LocalCluster,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(&DevCluster) -> io::Result<()>,
) -> Result<(), DevError> {
    tokio::pin!(shutdown);
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        up = cluster.await_ready() => up?,
    }
    ready(&describe(cluster)).map_err(DevError::Describe)?;
    shutdown.await;
    Ok(())
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
