//! Checkpoints of a task: commits, markers and its folder.

pub(super) mod checkpoint_folder;
pub(super) mod checkpoints;
pub(super) mod marker;
