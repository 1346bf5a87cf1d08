//! A task from its specification to its stop.

pub(super) mod child;
pub(super) mod directory;
pub(super) mod environment;
pub(super) mod flag;
pub(super) mod hold;
pub(super) mod hostfile;
pub(super) mod port;
pub(super) mod program;
pub(super) mod ready;
pub(super) mod run_id;
pub(super) mod secrets;
pub(super) mod spec;
pub(super) mod start;
pub(super) mod stopping;
pub(super) mod task_reports;
