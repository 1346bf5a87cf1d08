//! Commands, one file per noun (one per verb for jobs), each a thin layer over the SDK.

pub(crate) mod audit;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod command_reference;
mod common;
pub(crate) mod completion;
pub(crate) mod debug;
pub(crate) mod gpu;
pub(crate) mod health;
pub(crate) mod host;
#[cfg(feature = "server")]
pub(crate) mod inject;
pub(crate) mod job;
pub(crate) mod join_token;
#[cfg(feature = "server")]
pub(crate) mod local;
pub(crate) mod pipeline;
pub(crate) mod queue;
pub(crate) mod topology;
pub(crate) mod user;
#[cfg(feature = "server")]
pub(crate) mod worker;
