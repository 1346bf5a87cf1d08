//! The data of a new group's first replica.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use muster_proto::raft::v1 as proto;

use crate::backup::Backup;
use crate::codec::{convert, frame};
use crate::disk::{LogChange, LogDisk as _, MetaKey, RocksLog, SnapshotDirectory, SnapshotDisk};
use crate::error::OpenError;
use crate::identity::DIRECTORY_VERSION;
use crate::open::{LOG_FOLDER, SNAPSHOT_FOLDER, random_incarnation};
use crate::peer::Peer;
use crate::refound::owner::Owner;
use crate::refound::{
    ENTRIES_PER_MS, ENTRIES_SKIPPED, RefoundError, TERMS_PER_MS, TERMS_SKIPPED, above, disk,
    staging,
};
use crate::seams::{Clock as _, WallClock};
use crate::shared::Applied;
use crate::snapshot::SnapshotStore;
use crate::state_machine::StateMachine;
use crate::types::{LeaderId, LogId, Membership, Node, StoredMembership};

/// Beginning of the name of the folder that keeps what lay where the data belongs.
const KEPT: &str = "before-restore";

/// The only member of a group that is founded anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foundation {
    /// Where its data will lie.
    pub data_dir: PathBuf,
    /// The group's cluster.
    pub cluster_id: String,
    /// The replica, and how others will reach it.
    pub replica: Peer,
}

impl Foundation {
    /// Makes the data directory of a replica that is the only member of a new group and goes on from a backup. Others join
    /// it as they join any group. If the directory is there, all of it is its owner's.
    ///
    /// # Errors
    /// [`RefoundError::NotEmpty`] if there is data already; [`RefoundError::Finished`] if an earlier run had only to be finished;
    /// [`RefoundError::Foreign`]; what cannot be written.
    pub fn restore<M: StateMachine>(&self, backup: Backup<M>) -> Result<(), RefoundError> {
        let directory = self.data_dir.clone();
        let mut owner = Owner::of(&directory)?;
        if staging::holds_data(&directory) && !self.is_cut_off() {
            return Err(RefoundError::NotEmpty { directory });
        }
        let _lock = owner.lock()?;
        let kept = staging::kept_name(&directory, KEPT);
        if staging::is_settled(&directory) {
            // The file that is restored now may be another one.
            staging::take_place(&directory, &kept, &owner)?;
            return Err(RefoundError::Finished { directory });
        }
        let mut state = backup.state;
        let now_ms = WallClock.now_ms();
        state.refound(&backup.members, now_ms);
        let staged = staging::clear(&directory)?;
        self.write(&staged, (backup.term, backup.index, now_ms), state)?;
        staging::seal(&directory)?;
        staging::take_place(&directory, &kept, &owner)?;
        Ok(())
    }

    /// Whether an earlier run was cut off here, and may be finished or begun anew: without a log there is nothing to lose.
    fn is_cut_off(&self) -> bool {
        let is_begun = staging::refuse_half_made(&self.data_dir).is_err();
        let has_log = self.data_dir.join(LOG_FOLDER).exists();
        staging::is_settled(&self.data_dir) || (is_begun && !has_log)
    }

    /// Writes the data of the group into an empty folder: the term and the index that the state covers, and when that is, in
    /// milliseconds since 1970.
    pub(super) fn write<M: StateMachine>(
        &self,
        folder: &Path,
        (term, index, now_ms): (u64, u64, u64),
        state: M,
    ) -> Result<(), OpenError> {
        let path = folder.join(SNAPSHOT_FOLDER);
        let written = SnapshotDirectory::open(&path).and_then(|snapshots| {
            let founder = Founder {
                cluster_id: &self.cluster_id,
                replica: &self.replica,
                incarnation: random_incarnation(),
                now_ms,
            };
            founder.write(Arc::new(snapshots), (term, index), state)
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

/// The first member of a group that is founded anew, in this life of its data.
#[derive(Clone, Copy, Debug)]
pub struct Founder<'a> {
    /// The group's cluster.
    pub cluster_id: &'a str,
    /// The replica.
    pub replica: &'a Peer,
    /// Names the data; drawn at random.
    pub incarnation: u64,
    /// When it is founded, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Founder<'_> {
    /// Writes the snapshot that the group begins from onto an empty disk; `last` are the term and the index that the state
    /// covers. Gives the records of its log, which is empty and begins after that: a replica may start once they are durable.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write<M: StateMachine>(
        &self,
        snapshots: Arc<dyn SnapshotDisk>,
        last: (u64, u64),
        state: M,
    ) -> io::Result<Vec<LogChange>> {
        let (term, index) = last;
        let last = LogId::new(
            LeaderId {
                term: above(term, (self.now_ms, TERMS_PER_MS), TERMS_SKIPPED),
                node_id: self.replica.id,
            },
            above(index, (self.now_ms, ENTRIES_PER_MS), ENTRIES_SKIPPED),
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
