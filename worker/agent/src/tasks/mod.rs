//! Tasks on this host: their supervisors, resources and output.
//!
//! | part | purpose |
//! |---|---|
//! | `runner` | the agent's side of the supervisors: start, adopt, forward, clean up |
//! | `start_spans` | trace spans of starts |
//! | `directories` | location of the task directories: in memory, if possible |
//! | `accounts` | the accounts that tasks run as |
//! | `cpus` | the CPUs that tasks are bound to |
//! | `container_engine` | periodic discovery of podman or docker |
//! | `exec` | commands that users run next to tasks |
//! | [`logs`] | output of tasks |

pub(crate) mod accounts;
pub(crate) mod container_engine;
pub(crate) mod cpus;
pub(crate) mod directories;
pub(crate) mod exec;
pub mod logs;
pub(crate) mod runner;
pub(crate) mod start_spans;
