//! Why a replica does not start, or stops.

use std::io;
use std::net::SocketAddr;

use muster_etcd::{EtcdError, FoundingError};
use muster_raft_store::{MembershipError, OpenError};
use muster_service::settings::BrokenRule;
use muster_tls::TlsError;
use muster_tls::issue::IssueError;
use muster_tls::jwt::JwksError;
use tokio::task::JoinError;

/// Why [`run`](crate::run) returned without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot work; nothing was opened.
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
        /// What for: `gRPC` or `metrics`.
        purpose: &'static str,
        /// Why it failed.
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
    /// The group could not be founded.
    #[error("founding the group failed")]
    Bootstrap(#[source] MembershipError),
    /// The settings of etcd cannot be used. That etcd does not answer is no reason to stop.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The cluster is not founded through etcd.
    #[error("the cluster is not founded through etcd")]
    Founding(#[from] FoundingError),
    /// The gRPC server failed.
    #[error("serving gRPC failed")]
    Serve(#[source] tonic::transport::Error),
    /// A part of the replica panicked.
    #[error("a part of the replica has failed; this is a bug, please report it")]
    Part(#[source] JoinError),
    /// The group that this replica was to join does not take it.
    #[error("the group does not take this replica (asked at {address}): {reason}")]
    Join {
        /// Who was asked.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The group has removed this replica.
    #[error(
        "the group has removed this replica, and is now: {members}. The id is never used again: delete its data directory; \
         a new replica needs a new id"
    )]
    Removed {
        /// Who belongs to the group, for people.
        members: String,
    },
    /// Replication stopped by itself: its disk failed or its data is corrupt.
    #[error("replication stopped: {0}")]
    Stopped(String),
}
