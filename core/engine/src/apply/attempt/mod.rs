//! Attempts from placement to verdict.

pub(super) mod accounts;
pub(super) mod allocation_basis;
pub(super) mod attribution;
pub(super) mod barrier;
pub(super) mod cell_binding;
pub(super) mod ending;
pub(super) mod members;
pub(super) mod moves;
pub(super) mod placement;
pub(super) mod progress;
pub(super) mod retries;
pub(super) mod stopping;
pub(super) mod task_reports;
pub(super) mod texts;
pub(super) mod verdict;
