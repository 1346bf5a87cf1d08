//! One process of a local cluster: a replica, or a worker's agent.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde_json::json;

use crate::cluster::{ClusterError, ManagedProcess, Network, failed};

/// How long a process that is asked to end may take before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Tells a preloaded library where its orders are.
const ORDERS_VARIABLE: &str = "MUSTER_CHAOS_ORDERS";

/// One process of the cluster, running or not.
#[derive(Debug)]
pub struct Member {
    /// `replica-1`, `node01`.
    pub name: String,
    /// Everything it writes lies here.
    pub folder: PathBuf,
    /// Subcommand of the binary.
    pub(super) role: &'static str,
    /// Its number in the cluster's network, if there is one.
    pub(super) host: usize,
    /// As in [`ClusterOptions::preload`].
    pub(super) preload: Option<PathBuf>,
    pub(super) process: Option<ManagedProcess>,
}

impl Member {
    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.process
            .as_ref()
            .map(|process| process.pid().as_raw_nonzero().get())
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Its configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.join("config.json")
    }

    /// Writes its settings, those that differ from the defaults: another build may not know all of the others.
    pub(super) fn configure<Config: Serialize + Default>(
        &self,
        config: &Config,
    ) -> Result<(), ClusterError> {
        let (mut settings, defaults) = (json!(config), json!(Config::default()));
        if let Some(settings) = settings.as_object_mut() {
            settings.retain(|name, value| defaults.get(name) != Some(value));
        }
        let path = self.config();
        let text = format!("{settings:#}");
        fs::write(&path, text).map_err(failed(format!("writing {}", path.display())))
    }

    /// The folder of what it stores.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The file that tells a preloaded library what to do.
    #[must_use]
    pub fn orders(&self) -> PathBuf {
        self.folder.join("orders")
    }

    /// Sends a signal to its process, and to nothing that this has started.
    ///
    /// # Errors
    /// If it does not run, or the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), ClusterError> {
        let operation = format!("sending {signal:?} to {}", self.name);
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let process = self.process.as_ref().ok_or_else(gone);
        let sent = process.and_then(|it| Ok(kill_process(it.pid(), signal)?));
        sent.map_err(failed(operation))
    }

    /// Whether its process runs.
    ///
    /// # Errors
    /// If the kernel does not know it.
    pub fn is_running(&mut self) -> Result<bool, ClusterError> {
        let Some(process) = &mut self.process else {
            return Ok(false);
        };
        process
            .is_running()
            .map_err(failed(format!("looking for {}", self.name)))
    }

    pub(super) fn start(
        &mut self,
        binary: &Path,
        network: Option<&Network>,
    ) -> Result<(), ClusterError> {
        let mut command = match network {
            Some(network) => network.command(self.host, binary),
            None => Command::new(binary),
        };
        command.arg(self.role).arg("--config").arg(self.config());
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", library);
            command.env(ORDERS_VARIABLE, self.orders());
        }
        let process = ManagedProcess::start(&mut command, &self.log()).map_err(failed(format!(
            "starting {} ({})",
            self.name,
            binary.display()
        )))?;
        if let Some(network) = network {
            network.started(self.host, process.pid().as_raw_nonzero().get());
        }
        self.process = Some(process);
        Ok(())
    }

    pub(super) fn stop(&mut self) -> Result<(), ClusterError> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process
            .stop(STOP_PATIENCE)
            .map_err(failed(format!("stopping {}", self.name)))?;
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<(), ClusterError> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process
            .kill()
            .map_err(failed(format!("killing {}", self.name)))?;
        Ok(())
    }
}
