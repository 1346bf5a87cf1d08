//! Source replica: the replica that remains when the majority of its group is permanently lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use openraft::impls::EntryPayload;

use crate::apply::shared::Applied;
use crate::apply::state_machine::StateMachine;
use crate::error::OpenError;
use crate::member::peer::Peer;
use crate::recovery::disaster_recovery::owner::DirectoryOwner;
use crate::recovery::disaster_recovery::rebuild::RebuildTarget;
use crate::recovery::disaster_recovery::{RecoveryError, disk, staging};
use crate::recovery::offline_log;
use crate::replica::environment::{Clock as _, WallClock};
use crate::replica::identity;
use crate::replica::open::{LOG_FOLDER, SNAPSHOT_FOLDER};
use crate::storage::codec::{convert, frame, record};
use crate::storage::disk::{LogDisk as _, MetaKey, RocksLog, SnapshotDirectory};
use crate::storage::snapshot::SnapshotStore;
use crate::types::{Entry, StoredMembership};

/// Bytes of log read at a time.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Name prefix of the folder that keeps the original data.
const KEPT: &str = "before-recovery";

/// Data of a source replica, with every entry of its log applied.
///
/// Entries not known to be committed are applied as well: the other members may have acknowledged them.
pub struct SourceReplica<M: StateMachine> {
    directory: PathBuf,
    identity: proto::Identity,
    state: M,
    membership: StoredMembership,
    loss: PossibleLoss,
    log: RocksLog,
    // Dropped last: an open database creates files.
    owner: DirectoryOwner,
}

/// Bounds of what the group may have decided beyond the source replica's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PossibleLoss {
    /// Raft term of the last entry of this replica.
    pub term: u64,
    /// Log index of that entry.
    pub index: u64,
    /// The leader's clock when it wrote the newest entry with commands on this replica, in milliseconds
    /// since 1970. Anything acknowledged later is lost.
    pub time_ms: u64,
    /// Entries at the end of the log not known to be committed. They are kept: some of their commands may
    /// take effect although no client received an answer.
    pub unconfirmed: u64,
    /// Highest term in which this replica voted: if above `term`, there was an election after its last
    /// entry, and that leader may have acknowledged more.
    pub voted_term: u64,
}

impl<M: StateMachine> SourceReplica<M> {
    /// Reads the data directory of a stopped replica. The database recovers as it does at every start;
    /// nothing else is changed, and the ownership of all files is kept.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while a replica holds the directory; [`RecoveryError::NoGroup`];
    /// [`RecoveryError::Finished`] if an interrupted run only had to be finished; [`RecoveryError::Foreign`];
    /// read errors.
    pub fn read(directory: &Path) -> Result<Self, RecoveryError> {
        let mut owner = DirectoryOwner::of(directory)?;
        for folder in [LOG_FOLDER, SNAPSHOT_FOLDER] {
            if !directory.join(folder).is_dir() && !staging::is_complete(directory) {
                let directory = directory.to_owned();
                return Err(RecoveryError::Nothing { directory });
            }
        }
        let lock = owner.lock()?;
        if staging::is_complete(directory) {
            // An earlier run was already confirmed: no question remains.
            staging::move_into_place(directory, &staging::kept_name(directory, KEPT), &owner)?;
            let directory = directory.to_owned();
            return Err(RecoveryError::Finished { directory });
        }
        let path = directory.join(LOG_FOLDER);
        let log = RocksLog::open(&path)
            .map_err(|source| disk(format!("opening {}", path.display()), source))?
            .guarded_by(lock);
        owner.hand_over(&[LOG_FOLDER])?;
        let identity = identity::stored(&log)?.ok_or(RecoveryError::NoGroup)?;
        let path = directory.join(SNAPSHOT_FOLDER);
        let snapshots = SnapshotDirectory::open(&path)
            .map_err(|source| disk(format!("opening {}", path.display()), source))?;
        let purged = offline_log::position(&log, MetaKey::Purged)?;
        let snapshots = SnapshotStore::new(Arc::new(snapshots), identity.cluster_id.clone());
        let mut applied = offline_log::newest_base::<M>(&snapshots, purged)?;
        let time_ms = apply_all(&log, &mut applied)?;
        let last = applied.last.ok_or(RecoveryError::NoGroup)?;
        if applied.membership.membership().voter_ids().next().is_none() {
            return Err(RecoveryError::NoGroup);
        }
        let committed = offline_log::position(&log, MetaKey::Committed)?.unwrap_or_default();
        // Hands over files created by the database since: the operator is prompted next, and may abort by a
        // signal.
        owner.hand_over(&[LOG_FOLDER])?;
        Ok(Self {
            directory: directory.to_owned(),
            identity,
            loss: PossibleLoss {
                term: last.leader_id.term,
                index: last.index,
                time_ms: time_ms.max(applied.state.time_ms()),
                unconfirmed: last.index.saturating_sub(committed),
                voted_term: voted_term(&log)?,
            },
            state: applied.state,
            membership: applied.membership,
            log,
            owner,
        })
    }

    /// The group's cluster.
    pub fn cluster_id(&self) -> &str {
        &self.identity.cluster_id
    }

    /// The replica's id.
    pub fn replica_id(&self) -> u64 {
        self.identity.replica_id
    }

    /// State after every entry of the log.
    pub fn state(&self) -> &M {
        &self.state
    }

    /// Bounds of the possible loss.
    pub fn loss(&self) -> PossibleLoss {
        self.loss
    }

    /// Members of the group known to this replica; true marks a voter.
    pub fn members(&self) -> Vec<(Peer, bool)> {
        let membership = self.membership.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let member = |(id, node): (&u64, &crate::types::Node)| {
            (Peer::new(*id, node.address.clone()), voters.contains(id))
        };
        membership.nodes().map(member).collect()
    }

    /// Makes this replica the only member of its group, with all of its data; returns the folder that keeps
    /// the original data. The other members can never rejoin the group, even if they return with their
    /// data.
    ///
    /// # Errors
    /// Write errors. Until the new data is complete nothing has changed.
    pub fn recover(mut self) -> Result<PathBuf, RecoveryError> {
        let members = self.members();
        let own = members
            .iter()
            .find(|(peer, _)| peer.id == self.identity.replica_id);
        let Some((own, _)) = own.cloned() else {
            return Err(RecoveryError::Refused(format!(
                "replica {} is no longer a member of its group: recover from one that is",
                self.identity.replica_id
            )));
        };
        let now_ms = WallClock.now_ms();
        self.state.carry_over(&members, now_ms);
        let target = RebuildTarget {
            data_dir: self.directory.clone(),
            cluster_id: self.identity.cluster_id.clone(),
            replica: own,
        };
        let staged = staging::clear(&self.directory)?;
        let term = self.loss.term.max(self.loss.voted_term);
        target.write(&staged, term, self.loss.index, now_ms, self.state)?;
        staging::seal(&self.directory)?;
        // The database must be closed before its folder moves; that also releases the directory lock.
        drop(self.log);
        let _lock = self.owner.lock()?;
        let kept = staging::kept_name(&self.directory, KEPT);
        staging::move_into_place(&self.directory, &kept, &self.owner)?;
        Ok(self.directory.join(kept))
    }
}

/// Applies every entry after the state's; returns the time of the newest one with commands.
fn apply_all<M: StateMachine>(log: &RocksLog, applied: &mut Applied<M>) -> Result<u64, OpenError> {
    let mut time_ms = 0;
    loop {
        let next = applied.last.map_or(0, |last| last.index + 1);
        let part = log
            .read_entries(next, u64::MAX, PART_BYTES)
            .map_err(|source| disk(format!("reading log entry {next}"), source))?;
        if part.is_empty() {
            return Ok(time_ms);
        }
        for (position, (index, bytes)) in (next..).zip(part) {
            if index != position {
                return Err(OpenError::Corrupt {
                    what: format!("log entry {position}"),
                    detail: "it is missing".to_owned(),
                });
            }
            let entry: Entry<M> = record::decode(Bytes::from(bytes))
                .map_err(|error| OpenError::from_decode(format!("log entry {index}"), error))?;
            applied.last = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(batch) => {
                    time_ms = batch.time_ms();
                    for command in batch.commands() {
                        applied.state.apply(batch.time_ms(), command);
                    }
                }
                EntryPayload::Membership(membership) => {
                    applied.membership = StoredMembership::new(applied.last, membership);
                }
            }
        }
    }
}

fn voted_term(log: &RocksLog) -> Result<u64, OpenError> {
    let what = || "the log's record \"vote\"".to_owned();
    let read = log.read_meta(MetaKey::Vote);
    let Some(bytes) = read.map_err(|source| disk(format!("reading {}", what()), source))? else {
        return Ok(0);
    };
    let vote = frame::decode::<proto::Vote>(Bytes::from(bytes))
        .and_then(|vote| convert::vote_from_proto(Some(vote)))
        .map_err(|error| OpenError::from_decode(what(), error))?;
    Ok(vote.leader_id.term)
}
