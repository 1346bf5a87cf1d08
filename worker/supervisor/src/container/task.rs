//! The task whose container is to be created, and errors that prevent its creation or completion.

use std::os::unix::fs::lchown;
use std::{fs, io};

use muster_model::spec::Container;

use crate::container::engine::{Engine, EngineError};
use crate::container::image::{ImageUnavailable, obtain};
use crate::container::record::ImageRecord;
use crate::container::rights;
use crate::output::log_error;
use crate::task::directory::TaskDirectory;
use crate::task::spec::{EngineAccess, TaskSpec};

/// Why a container was not run to its end; shown to the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The system refused something.
    #[error("{operation} failed: {source}")]
    System {
        operation: &'static str,
        source: io::Error,
    },
    /// A container was requested for a task without one.
    #[error("the task has no container")]
    NoContainer,
    /// The worker had no container engine when it started the task.
    #[error("NO_CONTAINER_ENGINE: no container engine configured on this host (container_engine)")]
    NoEngine,
    /// The image is unavailable.
    #[error(transparent)]
    Image(#[from] ImageUnavailable),
    /// The task's account cannot access a mount source, or can no longer.
    #[error("{0}")]
    Mount(String),
    /// The engine refused, or the connection broke.
    #[error("CONTAINER_FAILED: {0}")]
    Engine(#[from] EngineError),
    /// The exit status cannot be determined.
    #[error("CONTAINER_LOST: {0}")]
    Lost(String),
}

pub(super) fn during(operation: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |source| RunError::System { operation, source }
}

/// The task to be run.
pub(super) struct Task {
    pub(super) spec: TaskSpec,
    pub(super) container: Container,
    pub(super) access: EngineAccess,
    pub(super) engine: Engine,
}

impl Task {
    pub(super) fn read(directory: &TaskDirectory) -> Result<Self, RunError> {
        let spec = directory
            .read_spec()
            .map_err(during("reading spec.json"))?
            .ok_or(RunError::NoContainer)?;
        let container = spec
            .assignment
            .execution
            .container
            .clone()
            .ok_or(RunError::NoContainer)?;
        let access = spec.engine.clone().ok_or(RunError::NoEngine)?;
        Ok(Self {
            engine: Engine::at(&access.socket),
            spec,
            container,
            access,
        })
    }

    /// The engine's id for the image: the prepared one, or it is obtained now.
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

    /// Lets the user inside write into the folders of the task contract, unless that is the task's account,
    /// which owns them already. User names cannot be resolved here.
    /// A folder may be inside one of the account's, which can replace it by a link: links are not followed.
    pub(super) fn give_folders(&self, directory: &TaskDirectory) {
        if rights::whose(&self.container, &self.spec.identity).is_some() {
            return;
        }
        let user = self.container.user.as_deref().unwrap_or_default();
        let (user, group) = user.split_once(':').unwrap_or((user, ""));
        let (Ok(user), None) = (user.parse::<u32>(), &self.container.userns) else {
            return;
        };
        // An unspecified group stays as it is.
        let group = group.parse::<u32>().ok();
        // This link was made by the agent, in a folder of its own.
        let link = directory.scratch();
        let scratch = fs::read_link(&link).unwrap_or(link);
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
                log_error(&format!("giving {folder} to user {user} failed: {error}"));
            }
        }
    }
}
