//! Commands of jobs: submission, pipelines, dependencies, suspension.

pub(super) mod admission;
pub(super) mod dependencies;
pub(super) mod jobs;
pub(super) mod pipelines;
pub(super) mod suspension;
pub(super) mod unsatisfiable;
