//! Harness of the end-to-end tests: clusters of real processes, driven through the public SDK and the built
//! `muster` binary, with fault injection.
//!
//! Every [`Cluster`] is started by `muster dev`, has its own ports and folder, and ends all its processes
//! when it is dropped, also on a panic. Tests wait for states with [`eventually`], never for a fixed time.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod binary;
mod cluster;
mod cluster_folder;
mod collector;
mod command;
mod etcd;
mod eventually;
mod fake_worker;
mod identity_provider;
mod jobs;
mod member;
mod note;
mod processes;
mod prometheus;
mod secured;
mod tmpfs;
mod watchdog;

pub use binary::{muster_binary, trainer_binary};
pub use cluster::{Cluster, Shape};
pub use collector::{Collected, Collector};
pub use command::{Run, muster};
pub use etcd::{EtcdServer, has_etcd};
pub use eventually::{TIMEOUT, eventually};
pub use fake_worker::{FakeWorker, Greeting};
pub use identity_provider::IdentityProvider;
pub use jobs::{only_attempt, output, printed, shell, submit, with_gpus};
pub use member::Member;
pub use note::{note, skip};
pub use processes::{is_alive, kill, processes_naming, resident_mib, variable_of};
pub use prometheus::{Prometheus, has_prometheus, page};
pub use secured::{SECURED_WORKER, SecuredCluster};
pub use tmpfs::{Tmpfs, is_root};
