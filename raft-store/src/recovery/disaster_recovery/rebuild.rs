//! Data of a new group's first replica.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use muster_proto::raft::v1 as proto;

use crate::apply::shared::Applied;
use crate::apply::state_machine::StateMachine;
use crate::error::OpenError;
use crate::member::peer::Peer;
use crate::recovery::backup::Backup;
use crate::recovery::disaster_recovery::owner::DirectoryOwner;
use crate::recovery::disaster_recovery::{
    ENTRIES_PER_MS, ENTRIES_SKIPPED, RecoveryError, TERMS_PER_MS, TERMS_SKIPPED, above, disk,
    staging,
};
use crate::replica::environment::{Clock as _, WallClock};
use crate::replica::identity::DIRECTORY_VERSION;
use crate::replica::open::{LOG_FOLDER, SNAPSHOT_FOLDER, random_incarnation};
use crate::storage::codec::{convert, frame};
use crate::storage::disk::{
    LogChange, LogDisk as _, MetaKey, RocksLog, SnapshotDirectory, SnapshotDisk,
};
use crate::storage::snapshot::SnapshotStore;
use crate::types::{LeaderId, LogId, Membership, Node, StoredMembership};

/// Name prefix of the folder that keeps the previous content of the directory.
const KEPT: &str = "before-restore";

/// The only member of a group rebuilt from a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildTarget {
    /// Data directory to create.
    pub data_dir: PathBuf,
    /// Cluster id of the group.
    pub cluster_id: String,
    /// Id of the replica, and its address for others.
    pub replica: Peer,
}

impl RebuildTarget {
    /// Creates the data directory of a replica that is the only member of a new group and continues from a
    /// backup. Others join it as they join any group. If the directory exists, everything in it belongs to
    /// its owner.
    ///
    /// # Errors
    /// [`RecoveryError::NotEmpty`] if there is data already; [`RecoveryError::Finished`] if an interrupted
    /// run only had to be finished; [`RecoveryError::Foreign`]; write errors.
    pub fn restore<M: StateMachine>(&self, backup: Backup<M>) -> Result<(), RecoveryError> {
        let directory = self.data_dir.clone();
        let mut owner = DirectoryOwner::of(&directory)?;
        if staging::holds_data(&directory) && !self.is_cut_off() {
            return Err(RecoveryError::NotEmpty { directory });
        }
        let _lock = owner.lock()?;
        let kept = staging::kept_name(&directory, KEPT);
        if staging::is_settled(&directory) {
            // The backup restored now may be another one.
            staging::move_into_place(&directory, &kept, &owner)?;
            return Err(RecoveryError::Finished { directory });
        }
        let mut state = backup.state;
        let now_ms = WallClock.now_ms();
        state.carry_over(&backup.members, now_ms);
        let staged = staging::clear(&directory)?;
        self.write(&staged, backup.term, backup.index, now_ms, state)?;
        staging::seal(&directory)?;
        staging::move_into_place(&directory, &kept, &owner)?;
        Ok(())
    }

    /// Whether an earlier run was interrupted here, and may be finished or restarted: without a log there
    /// is nothing to lose.
    fn is_cut_off(&self) -> bool {
        let is_begun = staging::check_not_interrupted(&self.data_dir).is_err();
        let has_log = self.data_dir.join(LOG_FOLDER).exists();
        staging::is_settled(&self.data_dir) || (is_begun && !has_log)
    }

    /// Writes the group's data into an empty folder, given the term and index of the last entry that the
    /// state covers, and the current time in milliseconds since 1970.
    pub(super) fn write<M: StateMachine>(
        &self,
        folder: &Path,
        last_term: u64,
        last_index: u64,
        now_ms: u64,
        state: M,
    ) -> Result<(), OpenError> {
        let path = folder.join(SNAPSHOT_FOLDER);
        let written = SnapshotDirectory::open(&path).and_then(|snapshots| {
            let first_member = FirstMember {
                cluster_id: &self.cluster_id,
                replica: &self.replica,
                incarnation: random_incarnation(),
                now_ms,
            };
            first_member.write(Arc::new(snapshots), last_term, last_index, state)
        });
        let records =
            written.map_err(|source| disk(format!("writing {}", path.display()), source))?;
        let path = folder.join(LOG_FOLDER);
        let written = RocksLog::open(&path).and_then(|log| {
            log.write(records)?;
            let (sender, synced) = mpsc::sync_channel(1);
            log.sync(Box::new(move |result| drop(sender.send(result))));
            synced
                .recv()
                .unwrap_or_else(|gone| Err(io::Error::other(gone)))
        });
        written.map_err(|source| disk(format!("writing {}", path.display()), source))
    }
}

/// First member of a rebuilt group, with this incarnation of its data.
#[derive(Clone, Copy, Debug)]
pub struct FirstMember<'a> {
    /// Cluster id of the group.
    pub cluster_id: &'a str,
    /// The replica.
    pub replica: &'a Peer,
    /// Random incarnation of the data.
    pub incarnation: u64,
    /// Time of the rebuild, in milliseconds since 1970.
    pub now_ms: u64,
}

impl FirstMember<'_> {
    /// Writes the initial snapshot of the group onto an empty disk; `last_term` and `last_index` are those of
    /// the last entry that the state covers. Returns the records of its log, which is empty and begins after
    /// the snapshot: the replica may start once they are durable.
    ///
    /// # Errors
    /// Disk errors.
    pub fn write<M: StateMachine>(
        &self,
        snapshots: Arc<dyn SnapshotDisk>,
        last_term: u64,
        last_index: u64,
        state: M,
    ) -> io::Result<Vec<LogChange>> {
        let last = LogId::new(
            LeaderId {
                term: above(last_term, self.now_ms, TERMS_PER_MS, TERMS_SKIPPED),
                node_id: self.replica.id,
            },
            above(last_index, self.now_ms, ENTRIES_PER_MS, ENTRIES_SKIPPED),
        );
        let node = Node {
            address: self.replica.address.clone(),
            incarnation: self.incarnation,
        };
        let membership = Membership::new(
            vec![BTreeSet::from([self.replica.id])],
            BTreeMap::from([(self.replica.id, node)]),
        )
        .map_err(io::Error::other)?;
        let applied = Applied {
            state,
            last: Some(last),
            membership: StoredMembership::new(Some(last), membership),
        };
        SnapshotStore::new(snapshots, self.cluster_id.to_owned()).write(&applied)?;
        Ok(self.log_after(last))
    }

    /// An empty log that begins after `last`.
    fn log_after(&self, last: LogId) -> Vec<LogChange> {
        let id = Some(convert::log_id_to_proto(&last));
        let identity = proto::Identity {
            cluster_id: self.cluster_id.to_owned(),
            replica_id: self.replica.id,
            incarnation: self.incarnation,
            directory_version: DIRECTORY_VERSION,
        };
        let vote = proto::Vote {
            leader: Some(convert::leader_to_proto(&last.leader_id)),
            committed: false,
        };
        let record = |key, record| LogChange::PutMeta { key, record };
        vec![
            record(MetaKey::Identity, frame::encode(&identity)),
            record(MetaKey::Vote, frame::encode(&vote)),
            record(MetaKey::Committed, frame::encode(&proto::Committed { id })),
            record(MetaKey::Purged, frame::encode(&proto::Purged { id })),
        ]
    }
}
