//! The worker: an agent per host that obeys the leader, and a supervisor per task that obeys the clock.
//!
//! | part | what |
//! |---|---|
//! | [`run`] | the agent: recovery, then the loops |
//! | `driver` | the decision loop around `core::agent`, and the executor that journals before it acts |
//! | `session` | the stream to the leader, found again whenever it breaks |
//! | `runner` | the agent's side of the supervisors: start, adopt, pass on, clean up |
//! | [`supervisor`] | one process per task: holds the lease, the output and the end |
//! | [`gpu`] | NVML and simulated GPUs |
//! | [`topology`] | where the host and its GPUs lie |
//! | [`journal`], [`identity`] | what survives the agent |
//! | [`logs`] | what tasks print |
#![deny(unsafe_code)]

pub mod clock;
mod config;
mod driver;
mod error;
mod files;
pub mod gpu;
pub mod identity;
mod inbox;
pub mod journal;
pub mod limits;
pub mod logs;
mod metrics;
pub mod process;
mod run;
mod run_id;
mod runner;
mod session;
pub mod supervisor;
#[expect(unsafe_code, reason = "what a child must do between fork and exec")]
mod sys;
#[cfg(test)]
mod testing;
pub mod topology;

pub use config::{ConfigError, GpuConfig, WorkerConfig};
pub use error::Error;
pub use run::run;
pub use run_id::{InvalidRunId, RunId};
