//! A member of the replication group in the public interface.

use std::fmt;

/// Member of the group and its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The replica's id, unique in the group and never 0.
    pub id: u64,
    /// `host:port` of its gRPC server.
    pub address: String,
}

impl Peer {
    /// Builds a peer from id and address.
    pub fn new(id: u64, address: impl Into<String>) -> Self {
        Self {
            id,
            address: address.into(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "replica {} at {}", self.id, self.address)
    }
}
