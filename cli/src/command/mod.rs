//! The commands, one file a noun (one a verb for jobs), each a thin layer over the SDK.

pub(crate) mod audit;
mod blocking;
pub(crate) mod chaos;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod config;
mod configuration;
pub(crate) mod demo;
pub(crate) mod gpu;
mod gpu_check;
pub(crate) mod health;
pub(crate) mod host;
pub(crate) mod inject;
pub(crate) mod job;
mod listing;
pub(crate) mod pipeline;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod scenario;
pub(crate) mod scheduler;
pub(crate) mod simulate;
pub(crate) mod snapshot;
pub(crate) mod task;
mod tickets;
pub(crate) mod topology;
pub(crate) mod worker;
