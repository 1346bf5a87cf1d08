//! The worker agent: one per host, controlled by the leader, with a supervisor process per task that holds
//! its lease.
//!
//! | part | purpose |
//! |---|---|
//! | [`run`] | the agent: recovery, then the loops |
//! | `driver` | the decision loop around `core::agent`, and the executor that journals before it acts |
//! | `connection` | finding the replicas, joining the cluster, and the session with the leader |
//! | `tasks` | the agent's side of the supervisors: start, adopt, forward, clean up; output of tasks |
//! | [`journal`], [`identity`] | state that survives the agent |
//! | [`supervisor`] | a separate crate: one process per task, which holds the lease, the output and the exit record |
//! | [`monitor`] | a separate crate: GPUs, health and topology of the host |
#![forbid(unsafe_code)]

mod config;
mod connection;
mod driver;
mod error;
pub mod identity;
mod inbox;
pub mod journal;
pub mod limits;
mod metrics;
mod metrics_page;
mod run;
mod tasks;
#[cfg(test)]
mod testing;

pub use config::{CgroupUse, SharedMemoryUse, TaskLogSettings, WorkerConfig};
pub use connection::joining::JoinError;
pub use error::Error;
pub use muster_monitor as monitor;
pub use muster_monitor::gpu::GpuConfig;
pub use muster_monitor::health::{CheckConvention, Expected, HealthConfig, SiteCheck};
pub use muster_supervisor as supervisor;
pub use muster_supervisor::lease::clock;
pub use muster_supervisor::{InvalidRunId, RunId, process};
pub use run::{run, run_reloading};
pub use tasks::accounts::{AccountsError, RunAs, TasksConfig};
pub use tasks::container_engine::ContainerEngineConfig;
pub use tasks::logs::{self, LogRetention, LogShipping};
