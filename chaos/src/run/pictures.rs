//! The states that replicas came to, to be held against the log: the log tells what they were told, and not what each of them
//! made of it.

use muster_client::Client;
use muster_core::state::State;
use muster_raft_store::backup::Backup;

use super::RunError;

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
    /// Asks one replica for its whole state; none if it does not give it.
    ///
    /// # Errors
    /// If what it gives cannot be read.
    pub(super) async fn of(replica: &str, client: &Client) -> Result<Option<Self>, RunError> {
        let Ok(mut saved) = client.save_snapshot(ADMIN).await else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        loop {
            match saved.next().await {
                Ok(Some(part)) => bytes.extend_from_slice(&part),
                Ok(None) => break,
                Err(_) => return Ok(None),
            }
        }
        let backup = Backup::<State>::read(&mut bytes.as_slice(), None).map_err(|error| {
            RunError::Harness(format!("the state of {replica} cannot be read: {error}"))
        })?;
        Ok(Some(Self {
            replica: replica.to_owned(),
            index: backup.index,
            hash: backup.state.state_hash(),
            is_as_kept: backup.has_known_hash,
        }))
    }
}
