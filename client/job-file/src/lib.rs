//! What people write: job files and pipelines in YAML or JSON, with their way to the wire and back, and the texts that stand in
//! them and in flags ([`human`]).
//!
//! `docs/job-file.md` and `docs/pipelines.md` document the formats. Start at [`read_jobs`], [`read_pipeline`] and [`JobFile`].
#![forbid(unsafe_code)]

mod container;
mod execution;
mod group;
pub mod human;
mod lifecycle;
mod pipeline;
mod read;
mod scheduling;
mod schema;
pub mod strict_yaml;

pub use container::{ContainerFile, MountFile, PullFile};
pub use execution::{
    AmountFile, BindingFile, ExecutionFile, SecretFile, SecretFormFile, UlimitFile, UnlimitedFile,
};
pub use group::{GroupFile, ResourcesFile};
pub use lifecycle::{
    CheckpointsFile, EndFile, LifecycleFile, MeaningFile, RecipientFile, RuleFile, SuspendFile,
    WarningFile,
};
pub use pipeline::read_pipeline;
pub use read::{NamedSpec, broken_rules, read_jobs, rule_in_file};
pub use scheduling::{LayoutFile, PackingFile, SchedulingFile, WithinFile};
pub use schema::{JobFile, RetryFile};
