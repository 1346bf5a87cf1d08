//! How tasks are run, as it is written in a job file.

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use super::container::ContainerFile;

/// How tasks are run, beside their command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExecutionFile {
    /// The container that each task runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<ContainerFile>,
}

impl From<ExecutionFile> for v1::Execution {
    fn from(file: ExecutionFile) -> Self {
        Self {
            container: file.container.map(Into::into),
        }
    }
}

impl From<&v1::Execution> for ExecutionFile {
    fn from(execution: &v1::Execution) -> Self {
        Self {
            container: execution.container.as_ref().map(Into::into),
        }
    }
}
