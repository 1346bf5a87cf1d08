//! `muster scheduler`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use muster_core::ids::ReplicaId;
use muster_scheduler::SchedulerConfig;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging::{self, LogFormat};
use crate::service;

/// `muster scheduler`
///
/// Runs until it is told to stop: the first SIGTERM or SIGINT hands leadership over and stops
/// gracefully, the second one ends the process at once.
#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    /// Settings in YAML (or JSON); flags overrule them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This replica's id, one of the peers'
    #[arg(long, value_name = "ID")]
    replica_id: Option<u64>,
    /// Name of the cluster; data of another one is refused
    #[arg(long, value_name = "NAME")]
    cluster_id: Option<String>,
    /// Where to serve gRPC
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// A member of the group, this one included: ID=HOST:PORT; give it once for each
    #[arg(long, value_name = "ID=ADDRESS", value_parser = peer)]
    peer: Vec<(ReplicaId, String)>,
    /// Holds the log and the snapshots
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Where to serve Prometheus metrics
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// Form of log lines; MUSTER_LOG says what is logged
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log: LogFormat,
}

impl Scheduler {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        logging::start(self.log)?;
        let config = self.settings()?;
        service::run(|shutdown| muster_scheduler::run(config, shutdown.requested()))
    }

    fn settings(self) -> Result<SchedulerConfig, Failure> {
        let mut config: SchedulerConfig = service::read_settings(self.config.as_deref())?;
        if let Some(id) = self.replica_id {
            config.replica_id = ReplicaId(id);
        }
        if let Some(name) = self.cluster_id {
            config.cluster_id = name;
        }
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        if !self.peer.is_empty() {
            config.peers = self.peer.into_iter().collect();
        }
        if let Some(folder) = self.data_dir {
            config.data_dir = folder;
        }
        if let Some(listen) = self.metrics_listen {
            config.metrics_listen = Some(listen);
        }
        config
            .validate()
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(config)
    }
}

fn peer(text: &str) -> Result<(ReplicaId, String), String> {
    let unusable = || format!("`{text}` is not ID=HOST:PORT");
    let (id, address) = text.split_once('=').ok_or_else(unusable)?;
    let id = id.parse().map_err(|_| unusable())?;
    Ok((id, address.to_owned()))
}
