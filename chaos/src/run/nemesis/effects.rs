//! Whether a fault came about of which no event tells: by what lies on the replicas' disks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use muster_core::state::State;
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
    /// This replica gets one of these snapshots, which others had before it was back and which its own log does not reach.
    Installed {
        /// Data of the replica.
        data: PathBuf,
        /// What the snapshots cover.
        positions: BTreeSet<String>,
    },
}

/// Waits for what shows that a fault came about, as long as a fault takes; none if events tell.
pub(super) async fn await_effect(expected: Option<Effect>) -> Option<bool> {
    let (data, positions) = match expected? {
        Effect::Known(seen) => return Some(seen),
        Effect::Installed { data, positions } => (data, positions),
    };
    let deadline = Instant::now() + SHORT_FAULT;
    loop {
        let has = snapshots_of(&data).unwrap_or_default();
        if !has.is_disjoint(&positions) {
            return Some(true);
        }
        if Instant::now() > deadline {
            return Some(false);
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

/// The snapshots of other replicas that go beyond the log of one that does not run: it can only have got them from those.
///
/// # Errors
/// If the data of one cannot be read.
pub(super) fn beyond(data: &Path, others: &[PathBuf]) -> Result<BTreeSet<String>, RunError> {
    let remains = Remains::<State>::read(data, CLUSTER_ID)?;
    let last = remains.range().map_or(0, |range| *range.end());
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
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(SNAPSHOT_FOLDER);
        fs::create_dir(&folder).unwrap();
        // A position is one whoever wrote the file.
        let expected = || {
            let positions = BTreeSet::from([position_of(&name(70, 1)).unwrap()]);
            let data = data.path().to_owned();
            Some(Effect::Installed { data, positions })
        };
        fs::write(folder.join(name(60, 1)), "").unwrap();
        assert_eq!(await_effect(expected()).await, Some(false));
        fs::write(folder.join(name(70, 9)), "").unwrap();
        assert_eq!(await_effect(expected()).await, Some(true));
        assert_eq!(await_effect(None).await, None);
        assert_eq!(index_of(&position_of(&name(70, 9)).unwrap()), Some(70));
    }
}
