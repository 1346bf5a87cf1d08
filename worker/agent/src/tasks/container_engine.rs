//! Discovery of this host's container engine. Repeated while the agent runs, since engines are installed,
//! stopped and upgraded meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_supervisor::container::Engine;
use muster_supervisor::{EngineAccess, TaskDirectory};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// Default sockets. Podman first: it needs no daemon whose failure could stop all containers.
const SOCKETS: [&str; 2] = ["/run/podman/podman.sock", "/var/run/docker.sock"];
/// Interval of the discovery.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(60);

/// The container engine that a worker uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ContainerEngineConfig {
    /// The engine that listens on the default socket of podman or docker, if any.
    #[default]
    Auto,
    /// No engine: this host runs no tasks in containers.
    None,
    /// The engine behind this socket.
    Socket(PathBuf),
}

impl From<String> for ContainerEngineConfig {
    /// Parses `auto` or `none`; anything else is the path of a socket.
    fn from(text: String) -> Self {
        match &*text {
            "auto" => Self::Auto,
            "none" => Self::None,
            _ => Self::Socket(PathBuf::from(text)),
        }
    }
}

impl From<ContainerEngineConfig> for String {
    fn from(config: ContainerEngineConfig) -> Self {
        match config {
            ContainerEngineConfig::Auto => "auto".to_owned(),
            ContainerEngineConfig::None => "none".to_owned(),
            ContainerEngineConfig::Socket(path) => path.display().to_string(),
        }
    }
}

impl ContainerEngineConfig {
    /// Whether this host runs tasks in containers, if it has an engine.
    #[must_use]
    pub fn runs_containers(&self) -> bool {
        *self != Self::None
    }
}

/// An engine that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundEngine {
    /// Access to the engine.
    pub(crate) access: EngineAccess,
    /// Name and version, for the host's label.
    pub(crate) identity: String,
}

/// Finds this host's engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineFinder {
    sockets: Vec<PathBuf>,
    worker: String,
    has_real_gpus: bool,
    registry_auth_file: Option<PathBuf>,
    /// The parent of all task directories.
    tasks: PathBuf,
}

impl EngineFinder {
    pub(crate) fn new(
        config: &ContainerEngineConfig,
        registry_auth_file: Option<PathBuf>,
        worker: String,
        has_real_gpus: bool,
        tasks: PathBuf,
    ) -> Self {
        let sockets = match config {
            ContainerEngineConfig::Auto => SOCKETS.map(PathBuf::from).to_vec(),
            ContainerEngineConfig::None => Vec::new(),
            ContainerEngineConfig::Socket(socket) => vec![socket.clone()],
        };
        Self {
            sockets,
            worker,
            has_real_gpus,
            registry_auth_file,
            tasks,
        }
    }

    /// Looks for an engine once; removes containers of dead tasks if the engine is a new one. Blocks.
    fn find_blocking(&self, known: Option<&FoundEngine>) -> Option<FoundEngine> {
        let found = self
            .sockets
            .iter()
            .find_map(|socket| self.greet(socket, known));
        if let Some(found) = found.as_ref().filter(|_| known.is_none()) {
            self.sweep(&found.access.socket);
        }
        found
    }

    /// The engine behind a socket. An engine that is only slow stays the known one.
    fn greet(&self, socket: &Path, known: Option<&FoundEngine>) -> Option<FoundEngine> {
        let access = EngineAccess {
            socket: socket.to_owned(),
            worker: self.worker.clone(),
            has_real_gpus: self.has_real_gpus,
            registry_auth_file: self.registry_auth_file.clone(),
        };
        match Engine::at(socket).identify() {
            Ok(identity) => Some(FoundEngine {
                access,
                identity: identity.text(),
            }),
            Err(error) if error.is_absent() => None,
            Err(error) => {
                let socket = socket.display();
                tracing::warn!(%socket, %error, "unexpected answer of a container engine");
                known.filter(|known| known.access == access).cloned()
            }
        }
    }

    /// Removes containers of this worker whose tasks have no directory any more.
    fn sweep(&self, socket: &Path) {
        let engine = Engine::at(socket);
        let listed = match engine.list(&self.worker) {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(%error, "looking for containers of dead tasks failed");
                return;
            }
        };
        for container in listed {
            let directory = container
                .run
                .map(|run| TaskDirectory::below(&self.tasks, run));
            if directory.is_some_and(|directory| directory.path().exists()) {
                continue;
            }
            let run = container.run.map(|run| run.to_string());
            match engine.remove(&container.id) {
                Ok(()) => tracing::info!(run, "removed the container of a dead task"),
                Err(error) => {
                    tracing::warn!(run, %error, "removing the container of a dead task failed");
                }
            }
        }
    }

    /// Like `find_blocking`, on a thread for blocking calls.
    pub(crate) async fn find(&self, known: Option<FoundEngine>) -> Option<FoundEngine> {
        let finder = self.clone();
        let found = tokio::task::spawn_blocking(move || finder.find_blocking(known.as_ref()))
            .await
            .unwrap_or_else(|error| {
                tracing::error!(%error, "looking for a container engine failed");
                None
            });
        metrics::container_engine(found.is_some());
        found
    }

    /// Repeats the discovery until shutdown and reports changes.
    pub(crate) async fn watch(
        self,
        engine: watch::Sender<Option<FoundEngine>>,
        shutdown: CancellationToken,
    ) {
        while !self.sockets.is_empty() {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(DISCOVERY_INTERVAL) => {}
            }
            let known = engine.borrow().clone();
            let found = self.find(known).await;
            engine.send_if_modified(|known| {
                let is_other = *known != found;
                if is_other {
                    let engine = found.as_ref().map(|found| &found.identity);
                    tracing::info!(?engine, "the container engine of this host changed");
                    *known = found;
                }
                is_other
            });
        }
    }
}
