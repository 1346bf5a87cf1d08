//! Records about a task's container in the task's directory.
//!
//! | name | written by | what |
//! |---|---|---|
//! | `container.json` | its runner | location of the container, before it is created; removed with it |
//! | `image.json` | its runner, or the image preparation | the image that was pulled for it |
//! | `container-end.json` | its runner | details of the end; if below the task's cgroup, written before creation |

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files;
use crate::process::ProcessIdentity;
use crate::task::directory::TaskDirectory;
use crate::task::run_id::RunId;

/// Location of a container and its known state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerRecord {
    /// Socket of its engine.
    pub(super) socket: PathBuf,
    /// Container name.
    pub(super) name: String,
    /// Worker that owns it.
    pub(super) worker: String,
    /// First process, seen from the host, once it was started.
    #[serde(default)]
    pub(super) init: Option<ProcessIdentity>,
}

/// An image that is present on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    /// The engine's id for it.
    pub(super) id: String,
}

/// End details of a container that its runner's exit status cannot carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerEnd {
    /// Why it could not be started or followed to its end.
    #[serde(default)]
    pub(crate) start_error: Option<String>,
    /// Whether its memory limit ended it or one of its processes, as reported by the engine or observed on
    /// its cgroup.
    #[serde(default)]
    pub(crate) out_of_memory: bool,
    /// Whether its cgroup is below the task's, which then accounts for the container.
    #[serde(default)]
    pub(crate) is_below_ours: bool,
}

/// Container name for an attempt of a task.
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

    /// Removes the record of the container; ignored if there is none.
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
    /// The runner's record; empty if there is none, or it cannot be read.
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
