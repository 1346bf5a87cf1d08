//! What is written down of a task's container, in the task's directory.
//!
//! | name | written by | what |
//! |---|---|---|
//! | `container.json` | its runner | before the container is made: where to look for it; gone when it is |
//! | `image.json` | its runner, or what prepares it | the image that was fetched for it |
//! | `container-end.json` | its runner | what the runner's own end cannot say; where the container is below our cgroup, from before it is made |

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::directory::TaskDirectory;
use crate::files;
use crate::process::ProcessIdentity;
use crate::run_id::RunId;

/// Where a container is, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerRecord {
    /// Socket of its engine.
    pub(super) socket: PathBuf,
    /// Its name.
    pub(super) name: String,
    /// The worker whose it is.
    pub(super) worker: String,
    /// Its first process, as the host sees it, once it was started.
    #[serde(default)]
    pub(super) init: Option<ProcessIdentity>,
}

/// An image that is on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    /// The engine's name for it.
    pub(super) id: String,
}

/// What its runner's own end cannot say of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerEnd {
    /// Why it could not be started, or seen to its end.
    #[serde(default)]
    pub(crate) start_error: Option<String>,
    /// Whether its memory limit ended it, or a process of it, as the engine has it or was seen of its cgroup.
    #[serde(default)]
    pub(crate) out_of_memory: bool,
    /// Whether its cgroup lies below that of the task, which then counts what the container uses.
    #[serde(default)]
    pub(crate) is_below_ours: bool,
}

/// The name of the container of an attempt of a task.
pub(crate) fn container_name(run: RunId) -> String {
    format!("muster-{run}")
}

impl ContainerRecord {
    pub(super) fn read(directory: &TaskDirectory) -> io::Result<Option<Self>> {
        files::read_json(&path(directory, "container.json"))
    }

    pub(super) fn write(&self, directory: &TaskDirectory) -> io::Result<()> {
        write(directory, "container.json", self)
    }

    /// Forgets the container; no error if there is nothing to forget.
    pub(super) fn forget(directory: &TaskDirectory) -> io::Result<()> {
        match std::fs::remove_file(path(directory, "container.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl ImageRecord {
    pub(super) fn read(directory: &TaskDirectory) -> io::Result<Option<Self>> {
        files::read_json(&path(directory, "image.json"))
    }

    pub(super) fn write(&self, directory: &TaskDirectory) -> io::Result<()> {
        write(directory, "image.json", self)
    }
}

impl ContainerEnd {
    /// What the runner left; nothing if it had nothing to say, or cannot be read.
    pub(crate) fn read(directory: &TaskDirectory) -> Self {
        files::read_json(&path(directory, "container-end.json"))
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    pub(super) fn write(&self, directory: &TaskDirectory) -> io::Result<()> {
        write(directory, "container-end.json", self)
    }
}

fn path(directory: &TaskDirectory, name: &str) -> PathBuf {
    directory.path().join(name)
}

fn write(directory: &TaskDirectory, name: &str, value: &impl Serialize) -> io::Result<()> {
    files::replace(&path(directory, name), &files::json_bytes(value)?)
}
