//! Whether a fault came about of which no event tells: by what lies on the replicas' disks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use muster_engine::state::State;
use muster_raft_store::Remains;
use tokio::time::{Instant, sleep};

use crate::cluster::CLUSTER_ID;
use crate::run::RunError;
use crate::run::options::{POLL, SHORT_FAULT};

/// Folder of the snapshots in a replica's data.
const SNAPSHOT_FOLDER: &str = "snapshots";
/// What the files in it end with; their names begin with the position of the last entry that they cover.
const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// Parts of a name that say what is covered: index, term and leader.
const POSITION_PARTS: usize = 3;

/// What shows that a fault came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It was seen, or was not.
    Known(bool),
    /// This replica gets a snapshot that others have and that its own log does not reach.
    Installed {
        /// Data of the replica.
        data: PathBuf,
        /// Data of the others.
        others: Vec<PathBuf>,
        /// The last entry of its own log before it was back.
        last: u64,
    },
}

/// Waits for what shows that a fault came about, as long as a fault takes; none if events tell.
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
        // Before its own: whoever sends a snapshot had it first. They may remove it soon afterwards.
        theirs.extend(beyond(last, &others)?);
        // It may have no folder yet.
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

/// Which positions the snapshots of a replica cover.
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

/// The last entry in the log of a replica that does not run.
///
/// # Errors
/// If its data cannot be read.
pub(super) fn last_entry(data: &Path) -> Result<u64, RunError> {
    let remains = Remains::<State>::read(data, CLUSTER_ID)?;
    Ok(remains.range().map_or(0, |range| *range.end()))
}

/// The snapshots of other replicas that go beyond the last entry of one: it can only have got them from those.
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
        // A position is one whoever wrote the file.
        let other = replica(name(70, 1));
        for (snapshot, last, is_theirs) in [
            (name(60, 1), 50, false),
            (name(70, 9), 50, true),
            // It has the entries itself.
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
        // Whoever cannot see what the others have does not say that nothing was installed.
        let expected = Effect::Installed {
            data: other.path().to_owned(),
            others: vec![other.path().join("gone")],
            last: 50,
        };
        assert!(await_effect(Some(expected)).await.is_err());
        assert_eq!(index_of(&position_of(&name(70, 9)).unwrap()), Some(70));
    }
}
