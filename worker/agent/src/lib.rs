//! The worker: an agent per host that obeys the leader, and a supervisor per task that obeys the clock.
//!
//! | part | what |
//! |---|---|
//! | [`run`] | the agent: recovery, then the loops |
//! | `driver` | the decision loop around `core::agent`, and the executor that journals before it acts |
//! | `session` | the stream to the leader, found again whenever it breaks |
//! | `exec` | commands that users run beside tasks |
//! | `runner` | the agent's side of the supervisors: start, adopt, pass on, clean up |
//! | [`supervisor`] | a crate of its own: one process per task, which holds the lease, the output and the end |
//! | `accounts` | whom tasks run as |
//! | `container_engine` | podman or docker, looked for again and again |
//! | [`gpu`] | NVML and simulated GPUs |
//! | `health` | findings about GPUs and the host, and the repairs and checks that are ordered |
//! | [`topology`] | where the host and its GPUs lie |
//! | [`journal`], [`identity`] | what survives the agent |
//! | `task_place` | where the tasks' directories lie: in memory, if they can |
//! | [`logs`] | what tasks print |
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
pub use muster_supervisor::{InvalidRunId, RunId, clock, process};
pub use run::{run, run_reloading};
