//! `muster dev`: a small cluster of real processes to play with, and to test against.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use muster_client::{Client, ClientConfig, ClientError};
use muster_proto::v1;
use serde::Serialize;
use tokio::time::Instant;

use crate::cluster::{ClusterError, ClusterOptions, LocalCluster, Member};

/// Longest that the cluster may take to be ready.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at it.
const POLL: Duration = Duration::from_millis(50);

/// A development cluster that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The local cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Its client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It did not come up.
    #[error("the cluster was not ready after {} s; its logs are in {folder}", READY_PATIENCE.as_secs())]
    NotReady {
        /// Where the logs are; kept for reading.
        folder: PathBuf,
    },
    /// Its description could not be handed over.
    #[error("describing the cluster")]
    Describe(#[source] io::Error),
}

/// Where a development cluster is, as JSON for scripts and tests.
#[derive(Clone, Debug, Serialize)]
pub struct DevCluster {
    /// gRPC addresses of the replicas, in order of their ids.
    pub addresses: Vec<String>,
    /// Prometheus addresses of the replicas.
    pub metrics: Vec<String>,
    /// Folder of everything that it writes.
    pub folder: PathBuf,
    /// Replicas, in order of their ids.
    pub replicas: Vec<DevProcess>,
    /// Workers.
    pub workers: Vec<DevProcess>,
}

/// One process of a development cluster.
#[derive(Clone, Debug, Serialize)]
pub struct DevProcess {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: Option<i32>,
    /// Its configuration, to start it again with `muster scheduler|worker --config`.
    pub config: PathBuf,
    /// Its output.
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

/// Runs a cluster until `shutdown` completes; calls `ready` once it can be used.
///
/// # Errors
/// [`DevError`] says what did not come up, and where to read why.
pub async fn run(
    options: ClusterOptions,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(&DevCluster) -> io::Result<()>,
) -> Result<(), DevError> {
    let cluster = LocalCluster::start(options)?;
    let outcome = serve(&cluster, shutdown, ready).await;
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

/// Waits until somebody leads and every worker is registered.
///
/// # Errors
/// [`DevError::NotReady`] after a minute.
pub async fn await_ready(cluster: &LocalCluster) -> Result<(), DevError> {
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new(cluster.addresses())
    };
    let client = Client::connect(config).await?;
    let deadline = Instant::now() + READY_PATIENCE;
    while Instant::now() < deadline {
        if let Ok(status) = client.status(v1::Consistency::Linearizable).await
            && status
                .hosts
                .is_some_and(|hosts| hosts.up as usize == cluster.workers().len())
        {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    Err(DevError::NotReady {
        folder: cluster.folder().to_owned(),
    })
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
