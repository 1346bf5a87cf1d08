//! A container engine by its API: what podman and docker have in common.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::container::http::{Exchange, Reply, Request, encoded};
use crate::container::login::Login;
use crate::run_id::RunId;

/// How long an engine may be silent while it answers: starting and removing a container takes seconds where its disk is
/// slow.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(120);
/// How long an engine may be silent when it is asked who it is.
const GREETING_MAX: Duration = Duration::from_secs(30);
/// How long an engine may be silent while it fetches an image: it unpacks a layer of many GB without a word.
const PULL_SILENCE_MAX: Duration = Duration::from_secs(1_800);

/// The label of every container of ours that says whose it is: the worker's id.
pub(super) const WORKER_LABEL: &str = "muster.worker";
/// The label of every container of ours that says which attempt of a task runs in it.
pub(super) const RUN_LABEL: &str = "muster.run";

/// A container engine behind a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    socket: PathBuf,
}

/// Why an engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Nobody serves the socket.
    #[error("no container engine answers at {}: {source}", socket.display())]
    Absent {
        /// Where it should.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The conversation broke.
    #[error("{operation}: talking to the container engine failed: {source}")]
    Broken {
        /// What was asked for.
        operation: &'static str,
        /// What went wrong.
        source: io::Error,
    },
    /// The engine says no.
    #[error("{operation}: the container engine says: {message} ({status})")]
    Refused {
        /// What was asked for.
        operation: &'static str,
        /// The status of its answer.
        status: u16,
        /// Its words.
        message: String,
    },
}

impl EngineError {
    /// Whether nobody serves the socket: then nothing is started by it either.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    pub(super) fn broken(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Broken { operation, source }
    }
}

/// Who an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineIdentity {
    /// Whether it is podman, which has a second API of its own.
    pub is_podman: bool,
    /// Its version.
    pub version: String,
}

impl EngineIdentity {
    /// For people: `podman 4.3.1`.
    #[must_use]
    pub fn text(&self) -> String {
        let name = if self.is_podman { "podman" } else { "docker" };
        format!("{name} {}", self.version)
    }
}

/// How a container stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Its first process, if it runs.
    pub(super) pid: Option<i32>,
    /// Whether it runs, or is about to, also if it stands still now.
    pub(super) is_running: bool,
    /// Whether it stands still.
    pub(super) is_paused: bool,
    /// How it ended, by a shell's conventions.
    pub(super) exit_code: i32,
    /// Whether its memory limit ended it.
    pub(super) out_of_memory: bool,
    /// Whose it is.
    pub(super) worker: Option<String>,
}

/// A container of ours in the engine's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The engine's name for it.
    pub id: String,
    /// The attempt that it was made for.
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
    /// The engine behind a socket, whether it answers or not.
    #[must_use]
    pub fn at(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// Asks who it is.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn identify(&self) -> Result<EngineIdentity, EngineError> {
        let operation = "asking who it is";
        let exchange = self.begin(operation, ("GET", "/_ping"), None, GREETING_MAX)?;
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

    /// Whether containers can be put below a cgroup that we made: a systemd that manages them has slices instead.
    pub(super) fn takes_cgroup_paths(&self) -> Result<bool, EngineError> {
        let info = self.ask("asking about cgroups", ("GET", "/info"), None)?;
        let info: Value = read("asking about cgroups", &info)?;
        Ok(info["CgroupDriver"] == "cgroupfs")
    }

    /// The engine's name for an image that it has; none if it does not have it.
    pub(super) fn image(&self, name: &str) -> Result<Option<String>, EngineError> {
        let operation = "looking for the image";
        let target = format!("/images/{}/json", encoded(name, true));
        match self.ask(operation, ("GET", &target), None) {
            Ok(reply) => Ok(Some(read::<IdAnswer>(operation, &reply)?.id)),
            Err(EngineError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Begins to fetch an image, without a login as far as the engine has none itself: the answer is a stream of JSON objects.
    pub(super) fn pull(&self, name: &str, login: Option<&Login>) -> Result<Exchange, EngineError> {
        let operation = "fetching the image";
        // Without a tag, docker would fetch all there are.
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

    /// Makes a container by a body of the API that has this target; gives the engine's name for it.
    pub(super) fn create(&self, target: &str, body: &Value) -> Result<String, EngineError> {
        let operation = "making the container";
        let body = body.to_string();
        let reply = self.ask(operation, ("POST", target), Some(body.as_bytes()))?;
        Ok(read::<IdAnswer>(operation, &reply)?.id)
    }

    /// Begins to read what a container prints.
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
        self.ask("starting the container", ("POST", &target), None)
            .map(|_| ())
    }

    /// How a container stands; none if there is none.
    pub(super) fn inspect(&self, name: &str) -> Result<Option<Standing>, EngineError> {
        let operation = "asking for the container";
        let target = format!("/containers/{}/json", encoded(name, false));
        let answer: InspectAnswer = match self.ask(operation, ("GET", &target), None) {
            Ok(reply) => read(operation, &reply)?,
            Err(EngineError::Refused { status: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let state = answer.state;
        let labels = answer.config.labels.unwrap_or_default();
        Ok(Some(Standing {
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
        let request = ("POST", target.as_str());
        self.begin("waiting for the container", request, None, ANSWER_MAX)
    }

    /// Sends a signal to a container's first process; no error if it has ended.
    pub(super) fn signal(&self, id: &str, signal: i32) -> Result<(), EngineError> {
        let target = format!("/containers/{id}/kill?signal={signal}");
        match self.ask("signalling the container", ("POST", &target), None) {
            Err(EngineError::Refused {
                status: 404 | 409, ..
            })
            | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has a container's processes stand still, or go on; no error if they do already.
    pub(super) fn hold(&self, id: &str, still: bool) -> Result<(), EngineError> {
        let (operation, action) = match still {
            true => ("having the container stand still", "pause"),
            false => ("letting the container go on", "unpause"),
        };
        let target = format!("/containers/{id}/{action}");
        match self.ask(operation, ("POST", &target), None) {
            Ok(_) => Ok(()),
            // Engines differ in how they say that it does: by 304, 409 or 500.
            Err(error @ EngineError::Refused { .. }) => match self.inspect(id)? {
                Some(standing) if standing.is_paused != still => Err(error),
                _ => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    /// Kills and removes a container; no error if there is none.
    ///
    /// # Errors
    /// See [`EngineError`]: it may still run.
    pub fn remove(&self, name: &str) -> Result<(), EngineError> {
        let target = format!("/containers/{}?force=true&v=true", encoded(name, false));
        match self.ask("removing the container", ("DELETE", &target), None) {
            Err(EngineError::Refused { status: 404, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All containers of a worker, whether they run or not.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn list(&self, worker: &str) -> Result<Vec<Listed>, EngineError> {
        let operation = "listing containers";
        let filters = serde_json::json!({"label": [format!("{WORKER_LABEL}={worker}")]});
        let filters = encoded(&filters.to_string(), false);
        let target = format!("/containers/json?all=true&filters={filters}");
        let reply = self.ask(operation, ("GET", &target), None)?;
        let listed: Vec<ListAnswer> = read(operation, &reply)?;
        let listed = listed.into_iter().map(|one| Listed {
            run: { one.labels.as_ref() }.and_then(|labels| labels.get(RUN_LABEL)?.parse().ok()),
            id: one.id,
        });
        Ok(listed.collect())
    }

    pub(super) fn ask(
        &self,
        operation: &'static str,
        request: (&'static str, &str),
        body: Option<&[u8]>,
    ) -> Result<Reply, EngineError> {
        let exchange = self.begin(operation, request, body, ANSWER_MAX)?;
        accepted(operation, exchange)
    }

    fn begin(
        &self,
        operation: &'static str,
        (method, target): (&'static str, &str),
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

/// The whole answer, if it is not a refusal.
fn accepted(operation: &'static str, exchange: Exchange) -> Result<Reply, EngineError> {
    let reply = exchange.finish().map_err(EngineError::broken(operation))?;
    granted(operation, reply)
}

/// An answer, if it is not a refusal.
pub(super) fn granted(operation: &'static str, reply: Reply) -> Result<Reply, EngineError> {
    match reply.status {
        200..400 => Ok(reply),
        status => Err(EngineError::Refused {
            operation,
            status,
            message: words(&reply.body),
        }),
    }
}

/// The refusal that an answer is.
fn refused(operation: &'static str, exchange: Exchange) -> EngineError {
    match exchange.finish() {
        Ok(reply) => EngineError::Refused {
            operation,
            status: reply.status,
            message: words(&reply.body),
        },
        Err(source) => EngineError::Broken { operation, source },
    }
}

/// What an engine says of a refusal, which should be `{"message": "..."}`.
fn words(body: &[u8]) -> String {
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

/// The version in docker's name for itself: `Docker/27.3.1 (linux)`.
fn docker_version(server: &str) -> &str {
    let rest = server.split_once('/').map_or(server, |(_, rest)| rest);
    rest.split(' ').next().unwrap_or(rest)
}

/// Whether an image's name says which one of its versions: by tag or by digest.
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
    fn docker_says_its_version() {
        assert_eq!(docker_version("Docker/27.3.1 (linux)"), "27.3.1");
        assert_eq!(docker_version(""), "");
    }

    #[test]
    fn refusals_are_told_in_the_engines_words() {
        assert_eq!(
            words(br#"{"message": "no such image", "response": 404}"#),
            "no such image"
        );
        assert_eq!(words(b" page not found\n"), "page not found");
    }
}
