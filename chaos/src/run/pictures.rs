//! The states that replicas came to, to be held against the log: the log tells what they were told, and not what each of them
//! made of it.

use muster_client::{Client, ClientError};
use muster_engine::state::State;
use muster_raft_store::backup::Backup;

use crate::run::judge::{Invariant, Violation};

/// An admin of every cluster whose settings name none.
const ADMIN: &str = "root";

/// The state of a replica as it was after an entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// Whose.
    pub(super) replica: String,
    /// Position of the last entry that it covers.
    pub(super) index: u64,
    /// Hash of the state.
    pub(super) hash: u64,
    /// Whether the replica had the same hash in its memory.
    pub(super) is_as_kept: bool,
}

impl Picture {
    /// Asks one replica for its whole state. What it gives whole must be a state: what is wrong with it otherwise.
    ///
    /// # Errors
    /// What it says instead if it does not give it.
    pub(super) async fn of(
        replica: &str,
        client: &Client,
    ) -> Result<Result<Self, Violation>, ClientError> {
        Ok(Self::read(replica, &saved(client).await?))
    }

    fn read(replica: &str, mut bytes: &[u8]) -> Result<Self, Violation> {
        let backup = Backup::<State>::read(&mut bytes, None).map_err(|error| Violation {
            invariant: Invariant::Agreement,
            text: format!("the state that {replica} gave cannot be read: {error}"),
        })?;
        Ok(Self {
            replica: replica.to_owned(),
            index: backup.index,
            hash: backup.state.state_hash(),
            is_as_kept: backup.has_known_hash,
        })
    }
}

/// A snapshot of a replica's state.
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
        let found = Picture::read("replica-1", b"no state").map_err(|it| it.invariant);
        assert_eq!(found, Err(Invariant::Agreement));
    }
}
