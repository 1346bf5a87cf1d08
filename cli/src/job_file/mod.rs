//! Job files: what users write in YAML or JSON, and its way to the wire and back.
//!
//! `docs/job-file.md` documents the format.

mod container;
mod execution;
mod group;
mod lifecycle;
mod pipeline;
mod read;
mod scheduling;
mod schema;

pub(crate) use container::{ContainerFile, MountFile, PullFile};
pub(crate) use execution::{
    AmountFile, BindingFile, ExecutionFile, SecretFile, SecretFormFile, UlimitFile,
};
pub(crate) use lifecycle::{LifecycleFile, RecipientFile, SuspendFile, WarningFile};
pub(crate) use pipeline::read_pipeline;
pub(crate) use read::{NamedSpec, broken_rules, read_jobs, rule_in_file};
pub(crate) use scheduling::PackingFile;
pub(crate) use schema::JobFile;
