//! Commands, one file per noun (one per verb for jobs), each a thin layer over the SDK.

pub(crate) mod audit;
mod blocking;
pub(crate) mod cert;
#[cfg(feature = "server")]
pub(crate) mod chaos;
pub(crate) mod cluster;
pub(crate) mod command_reference;
pub(crate) mod completion;
#[cfg(feature = "server")]
pub(crate) mod config;
mod configuration;
pub(crate) mod debug;
#[cfg(feature = "server")]
pub(crate) mod demo;
pub(crate) mod gpu;
#[cfg(feature = "server")]
mod gpu_check;
pub(crate) mod health;
pub(crate) mod host;
#[cfg(feature = "server")]
pub(crate) mod inject;
pub(crate) mod job;
pub(crate) mod join_token;
mod listing;
pub(crate) mod pipeline;
pub(crate) mod queue;
#[cfg(feature = "server")]
pub(crate) mod replay;
#[cfg(feature = "server")]
pub(crate) mod scenario;
#[cfg(feature = "server")]
pub(crate) mod scheduler;
#[cfg(feature = "server")]
pub(crate) mod server;
#[cfg(feature = "server")]
pub(crate) mod simulate;
#[cfg(feature = "server")]
pub(crate) mod snapshot;
#[cfg(feature = "server")]
pub(crate) mod task;
mod tickets;
pub(crate) mod topology;
pub(crate) mod user;
#[cfg(feature = "server")]
pub(crate) mod worker;
