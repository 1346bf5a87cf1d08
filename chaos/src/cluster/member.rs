//! One process of a local cluster: a replica, or a worker's agent.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Signal, kill_process};
use serde::Serialize;
use serde_json::json;

use crate::cluster::{ClusterError, ManagedProcess, Network, failed};

/// Time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Environment variable with the path of the fault library's command file.
const COMMANDS_VARIABLE: &str = "MUSTER_CHAOS_LIBRARY";

/// One process of the cluster, running or not.
#[derive(Debug)]
pub struct Member {
    /// Name such as `replica-1` or `node01`.
    pub name: String,
    /// Folder for everything that it writes.
    pub folder: PathBuf,
    /// Subcommand of the binary.
    pub(super) role: &'static str,
    /// Its number in the cluster's network, if there is one.
    pub(super) host: usize,
    /// Path of the fault library, if it is preloaded.
    pub(super) fault_library: Option<PathBuf>,
    pub(super) process: Option<ManagedProcess>,
}

impl Member {
    /// Process id while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.process
            .as_ref()
            .map(|process| process.pid().as_raw_nonzero().get())
    }

    /// Path of its output.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Path of its configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.join("config.json")
    }

    /// Writes only the settings that differ from the defaults: an older build may not know the others.
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

    /// Path of its data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Path of the fault library's command file.
    pub(super) fn library_commands(&self) -> PathBuf {
        self.folder.join("library-commands")
    }

    /// Sends a signal to its process only, not to its children.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), ClusterError> {
        let operation = format!("sending {signal:?} to {}", self.name);
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let process = self.process.as_ref().ok_or_else(gone);
        let sent = process.and_then(|it| Ok(kill_process(it.pid(), signal)?));
        sent.map_err(failed(operation))
    }

    /// Whether its process runs.
    ///
    /// # Errors
    /// If the kernel does not know the process.
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
        if let Some(library) = &self.fault_library {
            command.env("LD_PRELOAD", library);
            command.env(COMMANDS_VARIABLE, self.library_commands());
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
            .stop(STOP_TIMEOUT)
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
