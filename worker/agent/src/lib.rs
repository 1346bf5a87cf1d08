//! The worker agent: one per host, controlled by the leader, with a supervisor process per task that holds
//! its lease.
//!
//! | part | purpose |
//! |---|---|
//! | [`run`] | the agent: recovery, then the loops |
//! | `driver` | the decision loop around `core::agent`, and the executor that journals before it acts |
//! | `session` | the stream to the leader, reopened whenever it breaks |
//! | `exec` | commands that users run next to tasks |
//! | `runner` | the agent's side of the supervisors: start, adopt, forward, clean up |
//! | [`supervisor`] | a separate crate: one process per task, which holds the lease, the output and the exit record |
//! | `accounts` | the accounts that tasks run as |
//! | `container_engine` | periodic discovery of podman or docker |
//! | [`gpu`] | NVML and simulated GPUs |
//! | `health` | findings about GPUs and the host, and the repairs and checks ordered by the leader |
//! | [`topology`] | location of the host and its GPUs |
//! | [`journal`], [`identity`] | state that survives the agent |
//! | `task_place` | location of the task directories: in memory, if possible |
//! | [`logs`] | output of tasks |
#![forbid(unsafe_code)]

mod accounts;
mod config;
mod container_engine;
mod cpus;
mod driver;
mod error;
mod etcd;
mod exec;
pub mod gpu;
mod gpu_occupancy;
mod health;
pub mod identity;
mod inbox;
mod joining;
pub mod journal;
pub mod limits;
pub mod logs;
mod metrics;
mod metrics_page;
mod process_group;
mod replicas;
mod run;
mod runner;
mod session;
mod start_spans;
mod starting;
mod task_place;
#[cfg(test)]
mod testing;
pub mod topology;

pub use accounts::{AccountsError, RunAs, TasksConfig};
pub use config::{CgroupUse, GpuConfig, SharedMemoryUse, TaskLogSettings, WorkerConfig};
pub use container_engine::ContainerEngineConfig;
pub use error::Error;
pub use health::{CheckDialect, Expected, HealthConfig, SiteCheck};
pub use joining::JoinError;
pub use logs::{LogRetention, LogShipping};
pub use muster_supervisor as supervisor;
pub use muster_supervisor::lease::clock;
pub use muster_supervisor::{InvalidRunId, RunId, process};
pub use run::{run, run_reloading};
