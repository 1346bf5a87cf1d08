//! Client for the API that podman and docker have in common.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::container::http::{Exchange, Reply, Request, encoded};
use crate::container::login::Login;
use crate::task::run_id::RunId;

/// Maximum silence of an engine before an answer: starting and removing a container takes seconds on a slow
/// disk.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Maximum silence of an engine when it is asked for its identity.
const GREETING_MAX: Duration = Duration::from_secs(30);
/// Maximum silence of an engine while it pulls an image: it unpacks a layer of many GB without output.
const PULL_SILENCE_MAX: Duration = Duration::from_secs(1_800);

/// Container label with the id of the worker that owns it.
pub(super) const WORKER_LABEL: &str = "muster.worker";
/// Container label with the attempt of the task that runs in it.
pub(super) const RUN_LABEL: &str = "muster.run";

/// A container engine behind a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    socket: PathBuf,
}

/// Failure of an engine request.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No process serves the socket.
    #[error("no container engine at {}: {source}", socket.display())]
    Absent {
        /// Path of the socket.
        socket: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{operation}: lost the container engine: {source}")]
    Broken {
        /// Requested operation.
        operation: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The engine refused.
    #[error("{operation}: container engine: {message} ({status})")]
    Refused {
        /// Requested operation.
        operation: &'static str,
        /// HTTP status of the answer.
        status: u16,
        /// Message of the engine.
        message: String,
    },
}

impl EngineError {
    /// Whether no process serves the socket: then the engine cannot have started anything either.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    pub(super) fn broken(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Broken { operation, source }
    }
}

/// Identity of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineIdentity {
    /// Whether it is podman, which has a second API of its own.
    pub is_podman: bool,
    /// Its version.
    pub version: String,
}

impl EngineIdentity {
    /// Display name: `podman 4.3.1`.
    #[must_use]
    pub fn text(&self) -> String {
        let name = if self.is_podman { "podman" } else { "docker" };
        format!("{name} {}", self.version)
    }
}

/// State of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerState {
    /// Process id of its first process, if it runs.
    pub(super) pid: Option<i32>,
    /// Whether it runs or is about to, including while paused.
    pub(super) is_running: bool,
    /// Whether it is paused.
    pub(super) is_paused: bool,
    /// Exit code by shell conventions.
    pub(super) exit_code: i32,
    /// Whether its memory limit ended it.
    pub(super) out_of_memory: bool,
    /// Worker that owns it.
    pub(super) worker: Option<String>,
}

/// A container of ours in the engine's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The engine's id for it.
    pub id: String,
    /// The attempt that it was created for.
    pub run: Option<RunId>,
}

#[derive(Deserialize)]
struct MessageAnswer {
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct IdAnswer {
    pub(super) id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectAnswer {
    state: StateAnswer,
    config: ConfigAnswer,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StateAnswer {
    status: String,
    #[serde(default)]
    pid: i32,
    #[serde(default)]
    exit_code: i32,
    #[serde(rename = "OOMKilled", default)]
    out_of_memory: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigAnswer {
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListAnswer {
    id: String,
    #[serde(default)]
    labels: Option<std::collections::BTreeMap<String, String>>,
}

impl Engine {
    /// Client of the engine behind a socket, reachable or not.
    #[must_use]
    pub fn at(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// Queries the engine's identity.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn identify(&self) -> Result<EngineIdentity, EngineError> {
        let operation = "identifying the engine";
        let exchange = self.begin(operation, "GET", "/_ping", None, GREETING_MAX)?;
        let reply = accepted(operation, exchange)?;
        Ok(match reply.header("libpod-api-version") {
            Some(version) => EngineIdentity {
                is_podman: true,
                version: version.to_owned(),
            },
            None => EngineIdentity {
                is_podman: false,
                version: docker_version(reply.header("server").unwrap_or_default()).to_owned(),
            },
        })
    }

    /// Whether containers can be placed below a given cgroup: with the systemd cgroup driver, they go into
    /// slices instead.
    pub(super) fn takes_cgroup_paths(&self) -> Result<bool, EngineError> {
        let operation = "querying cgroup support";
        let reply = self.ask(operation, "GET", "/info", None)?;
        let info: Value = read(operation, &reply)?;
        Ok(info["CgroupDriver"] == "cgroupfs")
    }

    /// The engine's id for an image; `None` if the image is not present.
    pub(super) fn image(&self, name: &str) -> Result<Option<String>, EngineError> {
        let operation = "inspecting the image";
        let target = format!("/images/{}/json", encoded(name, true));
        match self.ask(operation, "GET", &target, None) {
            Ok(reply) => Ok(Some(read::<IdAnswer>(operation, &reply)?.id)),
            Err(EngineError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Begins to pull an image, with the engine's own login if none is given: the answer is a stream of JSON
    /// objects.
    pub(super) fn pull(&self, name: &str, login: Option<&Login>) -> Result<Exchange, EngineError> {
        let operation = "pulling the image";
        // Without a tag, docker would pull all tags.
        let tag = if is_tagged(name) { "" } else { "&tag=latest" };
        let target = format!("/images/create?fromImage={}{tag}", encoded(name, false));
        let request = Request {
            method: "POST",
            target: &target,
            body: None,
            upgrade: false,
            login,
        };
        let mut exchange = self.send(operation, &request, PULL_SILENCE_MAX)?;
        match exchange.status().map_err(EngineError::broken(operation))? {
            200..300 => Ok(exchange),
            _ => Err(refused(operation, exchange)),
        }
    }

    /// Creates a container by a request body for this API target; returns the engine's id for it.
    pub(super) fn create(&self, target: &str, body: &Value) -> Result<String, EngineError> {
        let operation = "creating the container";
        let body = body.to_string();
        let reply = self.ask(operation, "POST", target, Some(body.as_bytes()))?;
        Ok(read::<IdAnswer>(operation, &reply)?.id)
    }

    /// Begins to read a container's output.
    pub(super) fn attach(&self, id: &str) -> Result<Exchange, EngineError> {
        let operation = "reading the container's output";
        let target = format!("/containers/{id}/attach?stream=1&stdout=1&stderr=1");
        let request = Request {
            method: "POST",
            target: &target,
            body: None,
            upgrade: true,
            login: None,
        };
        let mut exchange = self.send(operation, &request, ANSWER_MAX)?;
        match exchange.status().map_err(EngineError::broken(operation))? {
            101 | 200 => Ok(exchange),
            _ => Err(refused(operation, exchange)),
        }
    }

    /// Starts a container.
    pub(super) fn start(&self, id: &str) -> Result<(), EngineError> {
        let target = format!("/containers/{id}/start");
        self.ask("starting the container", "POST", &target, None)
            .map(|_| ())
    }

    /// State of a container; `None` if it does not exist.
    pub(super) fn inspect(&self, name: &str) -> Result<Option<ContainerState>, EngineError> {
        let operation = "inspecting the container";
        let target = format!("/containers/{}/json", encoded(name, false));
        let answer: InspectAnswer = match self.ask(operation, "GET", &target, None) {
            Ok(reply) => read(operation, &reply)?,
            Err(EngineError::Refused { status: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let state = answer.state;
        let labels = answer.config.labels.unwrap_or_default();
        Ok(Some(ContainerState {
            pid: (state.pid > 0).then_some(state.pid),
            is_running: !matches!(&*state.status, "exited" | "dead" | "stopped"),
            is_paused: state.status == "paused",
            exit_code: state.exit_code,
            out_of_memory: state.out_of_memory,
            worker: labels.get(WORKER_LABEL).cloned(),
        }))
    }

    /// Begins to wait for a container's end.
    pub(super) fn wait(&self, id: &str) -> Result<Exchange, EngineError> {
        let target = format!("/containers/{id}/wait");
        let operation = "waiting for the container";
        self.begin(operation, "POST", &target, None, ANSWER_MAX)
    }

    /// Sends a signal to a container's first process; ignored if it has ended.
    pub(super) fn signal(&self, id: &str, signal: i32) -> Result<(), EngineError> {
        let target = format!("/containers/{id}/kill?signal={signal}");
        match self.ask("signalling the container", "POST", &target, None) {
            Err(EngineError::Refused {
                status: 404 | 409, ..
            })
            | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Pauses or resumes a container; ignored if it is in that state already.
    pub(super) fn set_paused(&self, id: &str, paused: bool) -> Result<(), EngineError> {
        let (operation, action) = match paused {
            true => ("pausing the container", "pause"),
            false => ("resuming the container", "unpause"),
        };
        let target = format!("/containers/{id}/{action}");
        match self.ask(operation, "POST", &target, None) {
            Ok(_) => Ok(()),
            // Engines report this state differently: by 304, 409 or 500.
            Err(error @ EngineError::Refused { .. }) => match self.inspect(id)? {
                Some(state) if state.is_paused != paused => Err(error),
                _ => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    /// Kills and removes a container; ignored if it does not exist.
    ///
    /// # Errors
    /// See [`EngineError`]: it may still run.
    pub fn remove(&self, name: &str) -> Result<(), EngineError> {
        let target = format!("/containers/{}?force=true&v=true", encoded(name, false));
        match self.ask("removing the container", "DELETE", &target, None) {
            Err(EngineError::Refused { status: 404, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lists all containers of a worker, running or not.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn list(&self, worker: &str) -> Result<Vec<Listed>, EngineError> {
        let operation = "listing containers";
        let label = serde_json::json!({"label": [format!("{WORKER_LABEL}={worker}")]});
        let filters = encoded(&label.to_string(), false);
        let target = format!("/containers/json?all=true&filters={filters}");
        let reply = self.ask(operation, "GET", &target, None)?;
        let answers: Vec<ListAnswer> = read(operation, &reply)?;
        let listed = answers.into_iter().map(|one| Listed {
            run: one
                .labels
                .as_ref()
                .and_then(|labels| labels.get(RUN_LABEL)?.parse().ok()),
            id: one.id,
        });
        Ok(listed.collect())
    }

    /// Sends a request and reads its complete answer.
    pub(super) fn ask(
        &self,
        operation: &'static str,
        method: &'static str,
        target: &str,
        body: Option<&[u8]>,
    ) -> Result<Reply, EngineError> {
        let exchange = self.begin(operation, method, target, body, ANSWER_MAX)?;
        accepted(operation, exchange)
    }

    /// Sends a request; the answer is to be read from the exchange.
    fn begin(
        &self,
        operation: &'static str,
        method: &'static str,
        target: &str,
        body: Option<&[u8]>,
        silence_max: Duration,
    ) -> Result<Exchange, EngineError> {
        let request = Request {
            method,
            target,
            body,
            upgrade: false,
            login: None,
        };
        self.send(operation, &request, silence_max)
    }

    pub(super) fn send(
        &self,
        operation: &'static str,
        request: &Request<'_>,
        silence_max: Duration,
    ) -> Result<Exchange, EngineError> {
        Exchange::send(&self.socket, request, silence_max).map_err(|source| match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => EngineError::Absent {
                socket: self.socket.clone(),
                source,
            },
            _ => EngineError::Broken { operation, source },
        })
    }
}

/// The complete answer, unless it is a refusal.
fn accepted(operation: &'static str, exchange: Exchange) -> Result<Reply, EngineError> {
    let reply = exchange.finish().map_err(EngineError::broken(operation))?;
    granted(operation, reply)
}

/// The answer, unless it is a refusal.
pub(super) fn granted(operation: &'static str, reply: Reply) -> Result<Reply, EngineError> {
    match reply.status {
        200..400 => Ok(reply),
        status => Err(EngineError::Refused {
            operation,
            status,
            message: refusal_message(&reply.body),
        }),
    }
}

/// Converts an answer to a refusal.
fn refused(operation: &'static str, exchange: Exchange) -> EngineError {
    match exchange.finish() {
        Ok(reply) => EngineError::Refused {
            operation,
            status: reply.status,
            message: refusal_message(&reply.body),
        },
        Err(source) => EngineError::Broken { operation, source },
    }
}

/// Message of a refusal, normally `{"message": "..."}`.
fn refusal_message(body: &[u8]) -> String {
    match serde_json::from_slice::<MessageAnswer>(body) {
        Ok(answer) => answer.message,
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

pub(super) fn read<T: DeserializeOwned>(
    operation: &'static str,
    reply: &Reply,
) -> Result<T, EngineError> {
    serde_json::from_slice(&reply.body).map_err(|error| EngineError::Broken {
        operation,
        source: io::Error::new(ErrorKind::InvalidData, error),
    })
}

/// Version in docker's server name: `Docker/27.3.1 (linux)`.
fn docker_version(server: &str) -> &str {
    let rest = server.split_once('/').map_or(server, |(_, rest)| rest);
    rest.split(' ').next().unwrap_or(rest)
}

/// Whether an image's name has a tag or a digest.
fn is_tagged(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.contains(':') || last.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_tag() {
        assert!(is_tagged("python:3") && is_tagged("r:5000/a/b:1") && is_tagged("a@sha256:00"));
        assert!(!is_tagged("python") && !is_tagged("r:5000/a/b"));
    }

    #[test]
    fn the_version_of_docker_is_parsed() {
        assert_eq!(docker_version("Docker/27.3.1 (linux)"), "27.3.1");
        assert_eq!(docker_version(""), "");
    }

    #[test]
    fn a_refusal_has_the_message_of_the_engine() {
        assert_eq!(
            refusal_message(br#"{"message": "no such image", "response": 404}"#),
            "no such image"
        );
        assert_eq!(refusal_message(b" page not found\n"), "page not found");
    }
}
