//! Messages of jobs, their attempts and their tasks.

pub(super) mod claim;
pub(super) mod container;
pub(super) mod execution;
pub(super) mod job;
pub(super) mod job_life;
pub(super) mod ledger;
pub(super) mod lifecycle;
pub(super) mod outcome;
pub(super) mod pipeline;
pub(super) mod scheduling;
pub(super) mod spec;
