//! Sockets between agent, supervisor and task, and their protocols.

pub(super) mod connections;
pub(super) mod control;
pub(super) mod lines;
pub(super) mod protocol;
pub mod task_side;
pub(super) mod wake;
