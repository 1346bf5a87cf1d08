//! State snapshots of replicas, compared with the log: the log records the commands, not the state that
//! each replica derived from them.

use muster_client::{Client, ClientError};
use muster_engine::state::State;
use muster_raft_store::recovery::backup::Backup;

use crate::run::checkers::{Invariant, Violation};

/// An admin of every cluster whose settings name none.
const ADMIN: &str = "root";

/// The state of a replica as of an entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateSnapshot {
    /// Name of the replica.
    pub(super) replica: String,
    /// Index of the last entry covered.
    pub(super) index: u64,
    /// Hash of the state.
    pub(super) hash: u64,
    /// Whether the replica's state in memory has the same hash.
    pub(super) is_as_kept: bool,
}

impl StateSnapshot {
    /// Requests the whole state of one replica. A complete answer must decode as a state: otherwise the
    /// inner result is the violation.
    ///
    /// # Errors
    /// The refusal, if it does not send its state.
    pub(super) async fn of(
        replica: &str,
        client: &Client,
    ) -> Result<Result<Self, Violation>, ClientError> {
        Ok(Self::read(replica, &saved(client).await?))
    }

    fn read(replica: &str, mut bytes: &[u8]) -> Result<Self, Violation> {
        let backup = Backup::<State>::read(&mut bytes, None).map_err(|error| Violation {
            invariant: Invariant::Agreement,
            text: format!("the state sent by {replica} cannot be read: {error}"),
        })?;
        Ok(Self {
            replica: replica.to_owned(),
            index: backup.index,
            hash: backup.state.state_hash(),
            is_as_kept: backup.has_known_hash,
        })
    }
}

/// Downloads a snapshot of a replica's state.
async fn saved(client: &Client) -> Result<Vec<u8>, ClientError> {
    let mut saved = client.save_snapshot(ADMIN).await?;
    let mut bytes = Vec::new();
    while let Some(part) = saved.next().await? {
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_cannot_be_read_is_a_violation() {
        let found = StateSnapshot::read("replica-1", b"no state").map_err(|it| it.invariant);
        assert_eq!(found, Err(Invariant::Agreement));
    }
}
