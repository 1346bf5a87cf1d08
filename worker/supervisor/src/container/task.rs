//! The task whose container is to be made, and what keeps it from being made or seen to its end.

use std::os::unix::fs::lchown;
use std::{fs, io};

use muster_model::spec::Container;

use crate::container::engine::{Engine, EngineError};
use crate::container::image::{ImageUnavailable, obtain};
use crate::container::record::ImageRecord;
use crate::container::rights;
use crate::directory::TaskDirectory;
use crate::output::complain;
use crate::spec::{EngineAccess, TaskSpec};

/// Why a container was not seen to its end, in words for the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The system refused something.
    #[error("{operation} failed: {source}")]
    System {
        operation: &'static str,
        source: io::Error,
    },
    /// Somebody asked for a container of a task without one.
    #[error("the task runs in no container")]
    NoContainer,
    /// Its worker knew of no engine when it started the task.
    #[error(
        "NO_CONTAINER_ENGINE: the worker of this host knows no container engine (container_engine)"
    )]
    NoEngine,
    /// No image, no container.
    #[error(transparent)]
    Image(#[from] ImageUnavailable),
    /// The task's account may not come to what is to be mounted, or may not any more.
    #[error("{0}")]
    Mount(String),
    /// The engine refused, or broke the conversation off.
    #[error("CONTAINER_FAILED: {0}")]
    Engine(#[from] EngineError),
    /// Nobody can tell how it ended.
    #[error("CONTAINER_LOST: {0}")]
    Lost(String),
}

pub(super) fn during(operation: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |source| RunError::System { operation, source }
}

/// What is to be run.
pub(super) struct Task {
    pub(super) spec: TaskSpec,
    pub(super) container: Container,
    pub(super) access: EngineAccess,
    pub(super) engine: Engine,
}

impl Task {
    pub(super) fn read(directory: &TaskDirectory) -> Result<Self, RunError> {
        let spec = directory.read_spec().map_err(during("reading spec.json"))?;
        let spec = spec.ok_or(RunError::NoContainer)?;
        let container = spec.assignment.execution.container.clone();
        let container = container.ok_or(RunError::NoContainer)?;
        let access = spec.engine.clone().ok_or(RunError::NoEngine)?;
        Ok(Self {
            engine: Engine::at(&access.socket),
            spec,
            container,
            access,
        })
    }

    /// The engine's name for the image: the one that was prepared, or it is obtained now.
    pub(super) fn image(&self, directory: &TaskDirectory) -> Result<String, RunError> {
        let prepared = ImageRecord::read(directory).map_err(during("reading image.json"))?;
        if let Some(prepared) = prepared {
            return Ok(prepared.id);
        }
        let id = obtain(
            &self.engine,
            &self.container,
            self.access.registry_auth_file.as_deref(),
        )?;
        let record = ImageRecord { id };
        record
            .write(directory)
            .map_err(during("writing image.json"))?;
        Ok(record.id)
    }

    /// Lets the user inside write into the folders of the task contract, unless that is the task's account, which has them
    /// already. By name nobody knows here who that is.
    ///
    /// What is given may lie in a folder of the account's, which can put a link in its place: none is followed.
    pub(super) fn give_folders(&self, directory: &TaskDirectory) {
        if rights::whose(&self.container, &self.spec.identity).is_some() {
            return;
        }
        let user = self.container.user.as_deref().unwrap_or_default();
        let (user, group) = user.split_once(':').unwrap_or((user, ""));
        let (Ok(user), None) = (user.parse::<u32>(), &self.container.userns) else {
            return;
        };
        // A group that is not said stays as it is.
        let group = group.parse::<u32>().ok();
        // This link is the agent's, and lies in a folder of its own.
        let scratch = directory.scratch();
        let scratch = fs::read_link(&scratch).unwrap_or(scratch);
        let folders = [
            directory.control(),
            directory.control_socket(),
            scratch,
            self.spec.checkpoint_directory.clone(),
        ];
        let secrets = self.spec.secrets.target.iter();
        let files = secrets.clone().flat_map(|folder| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path())
        });
        let secrets = secrets.filter(|folder| folder.is_dir()).cloned();
        let folders = folders.into_iter().chain(secrets).chain(files);
        for folder in folders {
            if let Err(error) = lchown(&folder, Some(user), group) {
                let folder = folder.display();
                complain(&format!("giving {folder} to user {user} failed: {error}"));
            }
        }
    }
}
