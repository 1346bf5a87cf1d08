//! Commands that run, simulate or test parts of Muster on this machine.

pub(crate) mod chaos;
pub(crate) mod config;
pub(crate) mod demo;
pub(super) mod gpu_check;
pub(crate) mod replay;
pub(crate) mod scenario;
pub(crate) mod scheduler;
pub(crate) mod server;
pub(crate) mod simulate;
pub(crate) mod snapshot;
pub(crate) mod task;
