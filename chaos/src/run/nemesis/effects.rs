//! Detection of fault effects without events, from the replicas' disks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use muster_engine::state::State;
use muster_raft_store::OfflineLog;
use tokio::time::{Instant, sleep};

use crate::cluster::CLUSTER_ID;
use crate::run::RunError;
use crate::run::options::{POLL, SHORT_FAULT};

/// Folder of the snapshots in a replica's data.
const SNAPSHOT_FOLDER: &str = "snapshots";
/// Suffix of snapshot files; their names begin with the position of the last entry covered.
const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// Parts of a name that form the position: index, term and leader.
const POSITION_PARTS: usize = 3;

/// Evidence that a fault had its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Already known.
    Known(bool),
    /// This replica installs a snapshot that others have and that its own log does not reach.
    Installed {
        /// Data folder of the replica.
        data: PathBuf,
        /// Data folders of the others.
        others: Vec<PathBuf>,
        /// Last entry of its own log before it restarted.
        last: u64,
    },
}

/// Waits for the effect of a fault, for the duration of a fault; `None` if events show it.
///
/// # Errors
/// If the others' snapshots cannot be listed.
pub(super) async fn await_effect(expected: Option<Effect>) -> Result<Option<bool>, RunError> {
    let (data, others, last) = match expected {
        None => return Ok(None),
        Some(Effect::Known(seen)) => return Ok(Some(seen)),
        Some(Effect::Installed { data, others, last }) => (data, others, last),
    };
    let deadline = Instant::now() + SHORT_FAULT;
    let mut theirs = BTreeSet::new();
    loop {
        // Read before its own: the sender of a snapshot had it first, and may remove it soon afterwards.
        theirs.extend(beyond(last, &others)?);
        // Its folder may not exist yet.
        let has = snapshots_of(&data).unwrap_or_default();
        if !has.is_disjoint(&theirs) {
            return Ok(Some(true));
        }
        if Instant::now() > deadline {
            return Ok(Some(false));
        }
        sleep(POLL).await;
    }
}

/// Positions covered by the snapshots of a replica.
///
/// # Errors
/// If its folder cannot be read.
pub(super) fn snapshots_of(data: &Path) -> Result<BTreeSet<String>, RunError> {
    let folder = data.join(SNAPSHOT_FOLDER);
    let failed = || RunError::io(format!("reading {}", folder.display()));
    let mut positions = BTreeSet::new();
    for entry in fs::read_dir(&folder).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name();
        positions.extend(position_of(&name.to_string_lossy()));
    }
    Ok(positions)
}

fn position_of(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.strip_suffix(SNAPSHOT_SUFFIX)?.split('-').collect();
    Some(parts.get(..POSITION_PARTS)?.join("-"))
}

/// Last entry in the log of a stopped replica.
///
/// # Errors
/// If its data cannot be read.
pub(super) fn last_entry(data: &Path) -> Result<u64, RunError> {
    let remains = OfflineLog::<State>::read(data, CLUSTER_ID)?;
    Ok(remains.range().map_or(0, |range| *range.end()))
}

/// Snapshots of other replicas beyond the last entry of one replica: it can only have got them from the
/// others.
fn beyond(last: u64, others: &[PathBuf]) -> Result<BTreeSet<String>, RunError> {
    let mut positions = BTreeSet::new();
    for other in others {
        positions.extend(snapshots_of(other)?);
    }
    positions.retain(|position| index_of(position).is_some_and(|index| index > last));
    Ok(positions)
}

fn index_of(position: &str) -> Option<u64> {
    position.split('-').next()?.parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn name(index: u64, serial: u64) -> String {
        format!("{index:020}-{:020}-{:020}-{serial:010}.snapshot", 3, 2)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_snapshot_of_the_others_shows_that_one_was_installed() {
        let replica = |snapshot| {
            let data = tempfile::tempdir().unwrap();
            let folder = data.path().join(SNAPSHOT_FOLDER);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(snapshot), "").unwrap();
            data
        };
        // A position is the same whichever replica wrote the file.
        let other = replica(name(70, 1));
        for (snapshot, last, is_theirs) in [
            (name(60, 1), 50, false),
            (name(70, 9), 50, true),
            // The replica has the entries itself.
            (name(70, 9), 70, false),
        ] {
            let data = replica(snapshot);
            let expected = Effect::Installed {
                data: data.path().to_owned(),
                others: vec![other.path().to_owned()],
                last,
            };
            assert_eq!(await_effect(Some(expected)).await.unwrap(), Some(is_theirs));
        }
        assert_eq!(await_effect(None).await.unwrap(), None);
        // Without access to the others' snapshots, no conclusion is drawn.
        let expected = Effect::Installed {
            data: other.path().to_owned(),
            others: vec![other.path().join("gone")],
            last: 50,
        };
        assert!(await_effect(Some(expected)).await.is_err());
        assert_eq!(index_of(&position_of(&name(70, 9)).unwrap()), Some(70));
    }
}
