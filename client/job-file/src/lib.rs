//! Job files and pipeline files in YAML or JSON: parsing, conversion to and from the wire format, and the
//! human-readable values used in files and flags ([`human`]).
//!
//! `docs/job-file.md` and `docs/pipelines.md` document the formats. Start at [`read_jobs`], [`read_pipeline`]
//! and [`JobFile`].
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
