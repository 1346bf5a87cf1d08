//! Reasons why a replica does not start, or stops.

use std::io;
use std::net::SocketAddr;

use muster_etcd::{BootstrapError, EtcdError};
use muster_raft_store::{MembershipError, OpenError};
use muster_service::settings::BrokenRule;
use muster_tls::TlsError;
use muster_tls::issue::IssueError;
use muster_tls::jwt::JwksError;
use tokio::task::JoinError;

/// Reason why [`run`](crate::run) returned without a shutdown request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid; nothing was opened.
    #[error(transparent)]
    Config(#[from] BrokenRule),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The authority's key cannot be used.
    #[error(transparent)]
    Authority(#[from] IssueError),
    /// The identity provider's keys cannot be used.
    #[error(transparent)]
    Provider(#[from] JwksError),
    /// An address cannot be listened on.
    #[error("listening on {address} for {purpose} failed")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Purpose of the listener: `gRPC` or `metrics`.
        purpose: &'static str,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },
    /// The metrics recorder could not be installed.
    #[error("installing the metrics recorder failed: {0}")]
    Metrics(String),
    /// The audit log could not be opened.
    #[error("opening the audit log failed")]
    Audit(#[source] io::Error),
    /// The descriptions of the services could not be read.
    #[error("preparing gRPC reflection failed: {0}")]
    Reflection(String),
    /// The data directory was refused, or replication could not start.
    #[error("opening the replica failed")]
    Open(#[from] OpenError),
    /// The group could not be bootstrapped.
    #[error("bootstrapping the group failed")]
    Bootstrap(#[source] MembershipError),
    /// The etcd settings are invalid. An unreachable etcd does not stop the replica.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The cluster was not bootstrapped through etcd.
    #[error("bootstrapping the cluster through etcd failed")]
    Founding(#[from] BootstrapError),
    /// The gRPC server failed.
    #[error("serving gRPC failed")]
    Serve(#[source] tonic::transport::Error),
    /// A part of the replica panicked.
    #[error("a task of the replica panicked; this is a bug, please report it")]
    Part(#[source] JoinError),
    /// The group refused to add this replica.
    #[error("the group refused to add this replica (asked {address}): {reason}")]
    Join {
        /// Address of the member that was asked.
        address: String,
        /// Reason of the refusal.
        reason: String,
    },
    /// The group has removed this replica.
    #[error(
        "this replica was removed from the group (now: {members}). Its id is never reused: delete its \
         data directory and use a new id for a new replica"
    )]
    Removed {
        /// Current members of the group, as text.
        members: String,
    },
    /// Replication stopped: the disk failed or data is corrupt.
    #[error("replication stopped: {0}")]
    Stopped(String),
}
