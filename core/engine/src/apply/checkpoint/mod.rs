//! Checkpoints: commits, retention and removal.

pub(super) mod checkpoints;
pub(super) mod retention;
