//! How the tasks of a job are run, by flags.

use clap::Args;
use muster_proto::v1;

use super::container_flags::{self, ContainerFlags};
use crate::job_file::ExecutionFile;

/// How tasks are run, beside their command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Execution")]
pub(super) struct ExecutionFlags {
    #[command(flatten)]
    container: ContainerFlags,
}

impl ExecutionFlags {
    /// Each flag, and whether it is given.
    pub(super) const fn given(&self) -> [(&'static str, bool); 4] {
        self.container.given()
    }

    /// The image of the tasks' container, if they run in one.
    pub(super) fn image(&self) -> Option<&str> {
        self.container.image()
    }

    /// What the job says.
    pub(super) fn execution(&self) -> v1::Execution {
        ExecutionFile {
            container: self.container.container(),
        }
        .into()
    }
}

/// The flag that sets a field of the specification.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    container_flags::flag_of(field.strip_prefix("groups[0].execution.")?)
}
