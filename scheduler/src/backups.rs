//! Backups that the leader takes by itself, into a folder of its machine or one that all replicas share.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use muster_core::ids::ReplicaId;
use muster_core::state::State;
use muster_raft_store::backup::{About, Backup, BackupError, Key, KeyError, Picture};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::config::BackupSettings;
use crate::metrics::names;
use crate::service::Context;
use crate::service::backup::about;

/// Time between two looks whether a backup is due.
const LOOK: Duration = Duration::from_secs(1);
/// Wait after a backup that failed.
const RETRY_MS: u64 = 60_000;
/// End of the files' names.
const SUFFIX: &str = ".backup";
/// End of the name of a file that is not whole yet.
const PARTIAL: &str = ".partial";

/// Why a backup was not taken.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{operation} {} failed", path.display())]
    Disk {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the key file {} holds no key", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: KeyError,
    },
    #[error("what was written cannot be read back")]
    ReadBack(#[source] BackupError),
    #[error("what was written is read back as another state; this is a bug, please report it")]
    OtherState,
}

/// Takes backups while this replica leads, until it stops.
pub(crate) async fn run(context: Context, stop: CancellationToken) {
    let settings = context.config.backup.clone();
    let Some(folder) = settings.dir.clone() else {
        return;
    };
    gauge!(names::BACKUP_INTERVAL_SECONDS).set(seconds(settings.every_ms));
    let (tried, replica) = (folder.clone(), context.config.replica_id);
    // Nobody waits for it: a folder of another machine may hang.
    drop(tokio::task::spawn_blocking(move || {
        warn_unless_writable(&tried, replica);
    }));
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut not_before_ms = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => {}
        }
        if !context.handle.leadership().borrow().is_self {
            continue;
        }
        let now_ms = context.handle.now_ms();
        let newest_ms = newest(&folder, &context.config.cluster_id);
        gauge!(names::BACKUP_LAST_TIMESTAMP_SECONDS).set(seconds(newest_ms));
        let due_ms = newest_ms
            .saturating_add(settings.every_ms)
            .max(not_before_ms);
        if now_ms < due_ms {
            continue;
        }
        let taken = take(&context, &settings, &folder).await;
        not_before_ms = if taken {
            0
        } else {
            now_ms + RETRY_MS.min(settings.every_ms)
        };
    }
}

/// Says at the start that no backup can be written. A follower would say it only when it leads, and is to take one.
fn warn_unless_writable(folder: &Path, replica: ReplicaId) {
    if let Err(error) = try_writing(folder, replica) {
        tracing::warn!(
            folder = %folder.display(),
            %error,
            way_out = way_out(&error),
            "this replica can write no backups into `backup.dir`"
        );
    }
}

/// Makes a file in a folder, and removes it.
fn try_writing(folder: &Path, replica: ReplicaId) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Replicas that share the folder may start at the same time.
    let path = folder.join(format!(".tried-by-{replica}"));
    File::create(&path)?;
    fs::remove_file(path)
}

/// What an admin can do about a folder that cannot be written.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "under systemd, name the folder in `ReadWritePaths=` of a drop-in for the unit (docs/backup.md), \
             which keeps all but its state directory read-only; else mount it to be written"
        }
        io::ErrorKind::PermissionDenied => {
            "give the folder to the user whom this replica runs as (docs/backup.md)"
        }
        _ => "mend the folder, or name another one",
    }
}

async fn take(context: &Context, settings: &BackupSettings, folder: &Path) -> bool {
    let began = Instant::now();
    let picture = context.handle.picture();
    let about = about(context, &picture);
    let (settings, folder) = (settings.clone(), folder.to_owned());
    let writing = tokio::task::spawn_blocking(move || write(&picture, &about, &settings, &folder));
    let outcome = match writing.await {
        Ok(Ok(path)) => {
            histogram!(names::BACKUP_SECONDS).record(began.elapsed());
            tracing::info!(file = %path.display(), "a backup was taken");
            "done"
        }
        Ok(Err(failure)) => {
            let cause = std::error::Error::source(&failure).map(ToString::to_string);
            tracing::error!(%failure, cause, "no backup was taken; it is tried again");
            "failed"
        }
        Err(error) => {
            tracing::error!(%error, "no backup was taken; it is tried again");
            "failed"
        }
    };
    counter!(names::BACKUPS_TOTAL, "outcome" => outcome).increment(1);
    outcome == "done"
}

/// Writes a backup, reads it back, gives it its name, and removes those that are over the number to be kept.
fn write(
    picture: &Picture<State>,
    about: &About,
    settings: &BackupSettings,
    folder: &Path,
) -> Result<PathBuf, Failure> {
    let key = settings.key_file.as_deref().map(read_key).transpose()?;
    fs::create_dir_all(folder).map_err(|source| disk("creating", folder, source))?;
    let path = folder.join(name_of(&about.cluster_id, about.time_ms));
    let mut partial = path.clone().into_os_string();
    partial.push(PARTIAL);
    let partial = PathBuf::from(partial);
    let written = File::create(&partial).and_then(|file| {
        let mut out = BufWriter::new(file);
        picture.write_backup(&mut out, about, key.as_ref())?;
        out.flush()?;
        out.get_ref().sync_all()
    });
    written.map_err(|source| disk("writing", &partial, source))?;
    let file = File::open(&partial).map_err(|source| disk("opening", &partial, source))?;
    let read = Backup::<State>::read(&mut BufReader::new(file), key.as_ref());
    if !read.map_err(Failure::ReadBack)?.has_known_hash {
        return Err(Failure::OtherState);
    }
    let named = fs::rename(&partial, &path).and_then(|()| File::open(folder)?.sync_all());
    named.map_err(|source| disk("naming", &path, source))?;
    remove_oldest(folder, &about.cluster_id, settings.keep)?;
    Ok(path)
}

fn read_key(path: &Path) -> Result<Key, Failure> {
    let text = fs::read_to_string(path).map_err(|source| disk("reading", path, source))?;
    Key::parse(&text).map_err(|source| Failure::Key {
        path: path.to_owned(),
        source,
    })
}

fn remove_oldest(folder: &Path, cluster: &str, keep: usize) -> Result<(), Failure> {
    let known = times(folder, cluster);
    let over = match keep {
        0 => 0,
        keep => known.len().saturating_sub(keep),
    };
    for time_ms in &known[..over] {
        let path = folder.join(name_of(cluster, *time_ms));
        fs::remove_file(&path).map_err(|source| disk("removing", &path, source))?;
    }
    Ok(())
}

/// `CLUSTER-MILLISECONDS.backup`: names sort by time.
fn name_of(cluster: &str, time_ms: u64) -> String {
    // A cluster's name may hold what a file's name may not.
    let cluster: String = cluster
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it } else { '_' })
        .collect();
    format!("{cluster}-{time_ms:015}{SUFFIX}")
}

/// When the backups of a cluster in a folder were taken, ascending; none of a folder that cannot be read, which the next
/// backup tells.
fn times(folder: &Path, cluster: &str) -> Vec<u64> {
    let mut times: Vec<u64> = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        let time = stem.and_then(|stem| stem.rsplit_once('-')?.1.parse().ok());
        let own = time.filter(|time| name.to_str() == Some(&*name_of(cluster, *time)));
        times.extend(own);
    }
    times.sort_unstable();
    times
}

fn newest(folder: &Path, cluster: &str) -> u64 {
    times(folder, cluster).last().copied().unwrap_or_default()
}

fn disk(operation: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::Disk {
        operation,
        path: path.to_owned(),
        source,
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_tried_without_a_trace_and_a_failure_has_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        for _ in 0..2 {
            try_writing(&path, ReplicaId(1)).unwrap();
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        }
        // Below a file there is no folder, whoever asks.
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = try_writing(&file.join("below"), ReplicaId(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        let way_out = |kind: io::ErrorKind| way_out(&io::Error::from(kind));
        assert!(way_out(io::ErrorKind::ReadOnlyFilesystem).contains("ReadWritePaths="));
        assert!(way_out(io::ErrorKind::PermissionDenied).contains("give the folder"));
    }

    #[test]
    fn only_whole_backups_of_this_cluster_are_counted_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in [
            name_of("a/b", 7),
            name_of("a/b", 100),
            name_of("a/b", 50),
            name_of("other", 900),
            format!("{}{PARTIAL}", name_of("a/b", 999)),
            "notes.txt".to_owned(),
        ] {
            fs::write(path.join(name), "").unwrap();
        }
        assert_eq!(times(path, "a/b"), [7, 50, 100]);
        assert_eq!(newest(path, "a/b"), 100);
        remove_oldest(path, "a/b", 0).unwrap();
        assert_eq!(times(path, "a/b").len(), 3);
        remove_oldest(path, "a/b", 2).unwrap();
        assert_eq!(times(path, "a/b"), [50, 100]);
        assert_eq!(newest(path, "other"), 900);
        assert_eq!(newest(&path.join("nowhere"), "a/b"), 0);
    }
}
