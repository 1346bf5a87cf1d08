//! Errors that prevent a worker from starting or stop it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_etcd::EtcdError;
use muster_monitor::gpu::GpuError;
use muster_service::settings::BrokenRule;
use muster_tls::TlsError;

use crate::connection::joining::JoinError;
use crate::identity::DataDirectoryError;
use crate::journal::JournalError;
use crate::tasks::accounts::AccountsError;

/// Errors that prevent a worker from starting or stop it. Its tasks continue until their leases end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting breaks a rule.
    #[error("bad worker settings")]
    Config(#[from] BrokenRule),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The etcd settings cannot be used. An etcd that does not answer is not an error.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The worker has no certificate and cannot obtain one.
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
    /// Cgroups are required, but controllers are missing.
    #[error(
        "cgroups are required, but this host offers none that can limit {missing}: allow this user to write \
         below /sys/fs/cgroup, or set `cgroups = \"auto\"`"
    )]
    Cgroups {
        /// Missing controllers.
        missing: String,
    },
    /// Tasks cannot run as the configured account.
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    /// The metrics cannot be served.
    #[error("`metrics_listen` {address}: {reason}")]
    Metrics {
        /// The listen address.
        address: SocketAddr,
        /// The cause.
        reason: String,
    },
    /// An operation of the operating system failed.
    #[error("{operation} failed")]
    System {
        /// The failed operation.
        operation: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The task directories cannot be read.
    #[error("looking for running tasks in {} failed", path.display())]
    Adoption {
        /// Their parent directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The leader rejects this host, and will until an operator changes something.
    #[error("the cluster rejects this host: {message} ({reason})")]
    Rejected {
        /// Machine-readable reason.
        reason: String,
        /// Message for operators.
        message: String,
    },
    /// A part of the agent ended unexpectedly.
    #[error("the agent's {0} ended unexpectedly")]
    Ended(&'static str),
}
