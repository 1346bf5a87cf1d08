//! Monitor of a host: its GPUs, its health, and its location.
//!
//! The agent depends on this crate, never the reverse: it passes in settings and input, and receives
//! [`reports`].
//!
//! | part | purpose |
//! |---|---|
//! | [`gpu`] | NVML in a helper process, simulated GPUs, handover between tasks, occupancy |
//! | [`health`] | findings about GPUs and the host, and the repairs and checks ordered by the leader |
//! | [`topology`] | location of the host and its GPUs |
//! | [`reports`] | what the monitor reports to the agent |
//! | [`replicas`] | replicas of the scheduler, from which the health rules are fetched |
#![forbid(unsafe_code)]

pub mod gpu;
pub mod health;
pub mod limits;
mod metrics;
pub mod process_group;
mod rates;
pub mod replicas;
pub mod reports;
pub mod topology;

pub use crate::metrics::describe as describe_metrics;
