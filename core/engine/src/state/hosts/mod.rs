//! Reliability and restrictions of hosts, derived from jobs.

pub(super) mod accusers;
pub(super) mod avoided;
pub(super) mod excludes;
pub(super) mod pools;
pub(super) mod reliability;
