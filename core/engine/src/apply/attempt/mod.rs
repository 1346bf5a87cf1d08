//! Attempts from placement to verdict.

pub(super) mod accounts;
pub(super) mod barrier;
pub(super) mod binding;
pub(super) mod blame;
pub(super) mod ending;
pub(super) mod members;
pub(super) mod moves;
pub(super) mod placement;
pub(super) mod progress;
pub(super) mod retries;
pub(super) mod standing;
pub(super) mod stopping;
pub(super) mod task_reports;
pub(super) mod verdict;
pub(super) mod words;
