//! Why a worker did not start or had to stop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_etcd::EtcdError;
use muster_service::settings::BrokenRule;
use muster_tls::TlsError;

use crate::accounts::AccountsError;
use crate::gpu::{GpuError, TimelineError};
use crate::identity::DataDirectoryError;
use crate::joining::JoinError;
use crate::journal::JournalError;

/// Why a worker did not start or had to stop. Its tasks go on until their leases end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting breaks a rule.
    #[error("bad worker settings")]
    Config(#[from] BrokenRule),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The settings of etcd cannot be used. That etcd does not answer is no reason to stop.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The worker has no certificate, and is given none.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The GPUs cannot be used.
    #[error("opening the GPUs failed")]
    Gpus(#[from] GpuError),
    /// The timeline of the simulated GPUs cannot be used.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// Tasks must have cgroups, and cannot have all that is needed.
    #[error(
        "cgroups are required, but this host lets us have none that can limit {missing}: let this user write \
         below /sys/fs/cgroup, or set `cgroups = \"auto\"`"
    )]
    Cgroups {
        /// Controllers that are not there.
        missing: String,
    },
    /// Tasks cannot run as whom they are to.
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    /// The metrics cannot be served.
    #[error("`metrics_listen` {address}: {reason}")]
    Metrics {
        /// Where they were to be served.
        address: SocketAddr,
        /// Why they are not.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{operation} failed")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Tasks' directories cannot be read.
    #[error("looking for running tasks in {} failed", path.display())]
    Adoption {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The leader does not accept this host, and will not unless somebody changes something.
    #[error("the cluster rejects this host: {message} ({reason})")]
    Rejected {
        /// Machine-readable.
        reason: String,
        /// For people.
        message: String,
    },
    /// A part of the agent ended although it should not.
    #[error("the agent's {0} ended unexpectedly")]
    Ended(&'static str),
}
