//! Periodic backups taken by the leader into a local or shared folder.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use muster_engine::state::State;
use muster_model::ids::ReplicaId;
use muster_raft_store::recovery::backup::{
    Backup, BackupError, BackupMetadata, CapturedState, Key, KeyError,
};
use muster_tls::{begin_private, create_private_folder};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::config::BackupSettings;
use crate::metrics::names;
use crate::service::Context;
use crate::service::admin::backup::about;

/// Interval between two checks whether a backup is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a failed backup.
const RETRY_MS: u64 = 60_000;
/// Suffix of backup files.
const SUFFIX: &str = ".backup";
/// Suffix of an incomplete file; the id of the writing replica follows it.
const PARTIAL: &str = ".partial";

/// Reason of a failed backup.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{operation} {} failed", path.display())]
    Disk {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("key file {} contains no key", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: KeyError,
    },
    #[error("the written backup cannot be read back")]
    ReadBack(#[source] BackupError),
    #[error("the written backup differs from the state; this is a bug, please report it")]
    OtherState,
}

/// Takes backups while this replica leads, until `stop`.
pub(crate) async fn run(context: Context, stop: CancellationToken) {
    let settings = context.config.backup.clone();
    let Some(folder) = settings.dir.clone() else {
        return;
    };
    gauge!(names::BACKUP_INTERVAL_SECONDS).set(seconds(settings.every_ms));
    let (tried, replica) = (folder.clone(), context.config.replica_id);
    // Not awaited: a folder on a network file system may hang.
    drop(tokio::task::spawn_blocking(move || {
        warn_unless_writable(&tried, replica);
    }));
    // Checks and backups may hang too and are then abandoned; leftovers in the folder are removed by the next
    // backup.
    tokio::select! {
        () = stop.cancelled() => {}
        never = take_when_due(&context, &settings, &folder) => match never {},
    }
}

async fn take_when_due(context: &Context, settings: &BackupSettings, folder: &Path) -> Infallible {
    let leadership = context.handle.leadership();
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut not_before_ms = 0;
    loop {
        checks.tick().await;
        if !leadership.borrow().is_self {
            continue;
        }
        let now_ms = context.handle.now_ms();
        let Some(newest_ms) = newest_backup_ms(folder, &context.config.cluster_id, now_ms).await
        else {
            continue;
        };
        gauge!(names::BACKUP_LAST_TIMESTAMP_SECONDS).set(seconds(newest_ms));
        let due_ms = newest_ms
            .saturating_add(settings.every_ms)
            .max(not_before_ms);
        // The check may have taken long, and another replica may lead by now.
        if now_ms < due_ms || !leadership.borrow().is_self {
            continue;
        }
        let taken = take(context, settings, folder).await;
        not_before_ms = if taken {
            0
        } else {
            now_ms + RETRY_MS.min(settings.every_ms)
        };
    }
}

/// Time of the newest backup, looked up on a blocking thread.
async fn newest_backup_ms(folder: &Path, cluster: &str, now_ms: u64) -> Option<u64> {
    let (folder, cluster) = (folder.to_owned(), cluster.to_owned());
    let listing = tokio::task::spawn_blocking(move || newest(&folder, &cluster, now_ms));
    match listing.await {
        Ok(newest_ms) => Some(newest_ms),
        Err(error) => {
            tracing::error!(%error, "cannot list the backup folder");
            None
        }
    }
}

/// Logs a warning at startup if backups cannot be written. A follower would otherwise fail only once it
/// leads.
fn warn_unless_writable(folder: &Path, replica: ReplicaId) {
    if let Err(error) = try_writing(folder, replica) {
        tracing::warn!(
            folder = %folder.display(),
            %error,
            remedy = remedy(&error),
            "`backup.dir` is not writable"
        );
    }
}

/// Creates a file in a folder, and removes it.
fn try_writing(folder: &Path, replica: ReplicaId) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Replicas that share the folder may start at the same time.
    let path = folder.join(format!(".tried-by-{replica}"));
    File::create(&path)?;
    fs::remove_file(path)
}

/// Advice for an admin whose backup folder is not writable.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "under systemd, name the folder in `ReadWritePaths=` of a drop-in for the unit (docs/backup.md), \
             which keeps all but its state directory read-only; else mount it to be written"
        }
        io::ErrorKind::PermissionDenied => {
            "make the folder writable for the user of this replica (docs/backup.md)"
        }
        _ => "repair the folder, or configure another one",
    }
}

async fn take(context: &Context, settings: &BackupSettings, folder: &Path) -> bool {
    let began = Instant::now();
    let captured = context.handle.capture();
    let about = about(context, &captured);
    let (settings, folder) = (settings.clone(), folder.to_owned());
    let writing = tokio::task::spawn_blocking(move || write(&captured, &about, &settings, &folder));
    let outcome = match writing.await {
        Ok(Ok(path)) => {
            histogram!(names::BACKUP_SECONDS).record(began.elapsed());
            tracing::info!(file = %path.display(), "backup taken");
            "done"
        }
        Ok(Err(failure)) => {
            let cause = std::error::Error::source(&failure).map(ToString::to_string);
            tracing::error!(%failure, cause, "backup failed; retrying");
            "failed"
        }
        Err(error) => {
            tracing::error!(%error, "backup failed; retrying");
            "failed"
        }
    };
    counter!(names::BACKUPS_TOTAL, "outcome" => outcome).increment(1);
    outcome == "done"
}

/// Writes a backup, verifies it by reading it back, renames it to its final name, and removes the backups
/// beyond the retention limit.
fn write(
    captured: &CapturedState<State>,
    about: &BackupMetadata,
    settings: &BackupSettings,
    folder: &Path,
) -> Result<PathBuf, Failure> {
    let key = settings.key_file.as_deref().map(read_key).transpose()?;
    let (partial, file) = Partial::begin(folder, about)?;
    let mut out = BufWriter::new(file);
    let written = captured
        .write_backup(&mut out, about, key.as_ref())
        .and_then(|_digest| {
            out.flush()?;
            out.get_ref().sync_all()
        });
    written.map_err(|source| disk("writing", &partial.path, source))?;
    let file =
        File::open(&partial.path).map_err(|source| disk("opening", &partial.path, source))?;
    let read = Backup::<State>::read(&mut BufReader::new(file), key.as_ref());
    if !read.map_err(Failure::ReadBack)?.has_known_hash {
        return Err(Failure::OtherState);
    }
    let path = folder.join(name_of(&about.cluster_id, about.time_ms));
    let named = partial
        .publish(&path)
        .and_then(|()| File::open(folder)?.sync_all());
    named.map_err(|source| disk("naming", &path, source))?;
    remove_oldest(folder, about, settings.keep)?;
    Ok(path)
}

/// An incomplete backup. Dropping it removes the file unless it was published.
struct Partial {
    path: PathBuf,
}

impl Partial {
    /// Creates the file of a backup and removes this replica's earlier leftovers. A backup contains the
    /// secrets of all users, so the file, and a folder created for it, are accessible to the owner only.
    fn begin(folder: &Path, about: &BackupMetadata) -> Result<(Self, File), Failure> {
        create_private_folder(folder).map_err(|source| disk("creating", folder, source))?;
        remove_leftovers(folder, about);
        let name = name_of(&about.cluster_id, about.time_ms) + &ending_of(about.replica_id);
        let path = folder.join(name);
        let file = begin_private(&path).map_err(|source| disk("creating", &path, source))?;
        Ok((Self { path }, file))
    }

    /// Renames the file to its final name.
    fn publish(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After publication the file no longer exists under this name. If removal fails, the next backup
        // tries again.
        drop(fs::remove_file(&self.path));
    }
}

/// Removes files that this replica left when it was killed during a backup. Files of other replicas may still
/// be in progress.
fn remove_leftovers(folder: &Path, about: &BackupMetadata) {
    let ending = ending_of(about.replica_id);
    for name in names_in(folder) {
        let whole = name.strip_suffix(&*ending);
        if whole.is_some_and(|whole| time_of(whole, &about.cluster_id).is_some()) {
            let path = folder.join(&name);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, file = %path.display(), "cannot remove an incomplete backup");
            }
        }
    }
}

fn read_key(path: &Path) -> Result<Key, Failure> {
    let text = fs::read_to_string(path).map_err(|source| disk("reading", path, source))?;
    Key::parse(&text).map_err(|source| Failure::Key {
        path: path.to_owned(),
        source,
    })
}

/// Removes backups beyond the retention limit. Backups dated in the future do not count: they would displace
/// the newest.
fn remove_oldest(folder: &Path, newest: &BackupMetadata, keep: usize) -> Result<(), Failure> {
    let cluster = &*newest.cluster_id;
    let known = times(folder, cluster, newest.time_ms);
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
    let cluster: String = cluster.bytes().map(escape_byte).collect();
    format!("{cluster}-{time_ms:015}{SUFFIX}")
}

/// Escapes a byte of a cluster's name for a file name. The escaping is injective: clusters with colliding
/// names would remove each other's backups.
fn escape_byte(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || byte == b'-' {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

/// Suffix of a replica's incomplete file, unique because replicas may share a folder.
fn ending_of(replica: u64) -> String {
    format!(".{replica}{PARTIAL}")
}

/// Time of a cluster's backup, from the file name; `None` for other files.
fn time_of(name: &str, cluster: &str) -> Option<u64> {
    let stem = name.strip_suffix(SUFFIX)?;
    let time_ms = stem.rsplit_once('-')?.1.parse().ok()?;
    (name == name_of(cluster, time_ms)).then_some(time_ms)
}

/// File names in a folder; empty if it cannot be read, which the next backup reports.
fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Times of a cluster's backups in a folder, ascending, up to `until_ms`. Names from a clock that was
/// temporarily wrong lie in the future and are ignored.
fn times(folder: &Path, cluster: &str, until_ms: u64) -> Vec<u64> {
    let mut times: Vec<u64> = names_in(folder)
        .filter_map(|name| time_of(&name, cluster))
        .filter(|time_ms| *time_ms <= until_ms)
        .collect();
    times.sort_unstable();
    times
}

fn newest(folder: &Path, cluster: &str, now_ms: u64) -> u64 {
    let known = times(folder, cluster, now_ms);
    known.last().copied().unwrap_or_default()
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn about(replica_id: u64, time_ms: u64) -> BackupMetadata {
        BackupMetadata {
            cluster_id: "a/b".to_owned(),
            replica_id,
            time_ms,
            version: String::new(),
        }
    }

    fn sorted_names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = names_in(folder).collect();
        names.sort();
        names
    }

    #[test]
    fn a_check_of_the_folder_leaves_no_file_and_its_failure_names_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        for _ in 0..2 {
            try_writing(&path, ReplicaId(1)).unwrap();
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        }
        // A path below a regular file cannot be created, even by root.
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = try_writing(&file.join("below"), ReplicaId(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        let remedy = |kind: io::ErrorKind| remedy(&io::Error::from(kind));
        assert!(remedy(io::ErrorKind::ReadOnlyFilesystem).contains("ReadWritePaths="));
        assert!(remedy(io::ErrorKind::PermissionDenied).contains("make the folder writable"));
    }

    #[test]
    fn only_complete_backups_of_this_cluster_count_and_the_oldest_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in [
            name_of("a/b", 7),
            name_of("a/b", 100),
            name_of("a/b", 50),
            name_of("other", 900),
            name_of("a/b", 999) + &ending_of(1),
            "notes.txt".to_owned(),
        ] {
            fs::write(path.join(name), "").unwrap();
        }
        assert_eq!(times(path, "a/b", 1_000), [7, 50, 100]);
        assert_eq!(newest(path, "a/b", 1_000), 100);
        remove_oldest(path, &about(1, 1_000), 0).unwrap();
        assert_eq!(times(path, "a/b", 1_000).len(), 3);
        remove_oldest(path, &about(1, 1_000), 2).unwrap();
        assert_eq!(times(path, "a/b", 1_000), [50, 100]);
        assert_eq!(newest(path, "other", 1_000), 900);
        assert_eq!(newest(&path.join("nowhere"), "a/b", 1_000), 0);
    }

    #[test]
    fn clusters_with_similar_names_keep_each_others_backups() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // The last one has the name that backups of `a.b` and `a/b` had in earlier builds.
        let mut others = ["a.b", "a_b", "a%2Fb", "a"]
            .map(|cluster| name_of(cluster, 5))
            .to_vec();
        others.push("a_b-000000000000005.backup".to_owned());
        others.sort();
        for name in &others {
            fs::write(path.join(name), "").unwrap();
        }
        let own = name_of("a/b", 7);
        fs::write(path.join(&own), "").unwrap();
        assert_eq!(times(path, "a/b", 1_000), [7]);
        remove_oldest(path, &about(1, 1_000), 1).unwrap();
        fs::remove_file(path.join(own)).unwrap();
        assert_eq!(sorted_names(path), others);
        assert_eq!(name_of("east-1", 5), "east-1-000000000000005.backup");
    }

    #[test]
    fn a_backup_dated_in_the_future_neither_delays_nor_evicts_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for time_ms in [7, 50, 9_999] {
            fs::write(path.join(name_of("a/b", time_ms)), "").unwrap();
        }
        assert_eq!(newest(path, "a/b", 60), 50);
        remove_oldest(path, &about(1, 50), 1).unwrap();
        assert_eq!(times(path, "a/b", u64::MAX), [50, 9_999]);
    }

    #[test]
    fn a_failed_backup_leaves_no_file_and_keeps_those_of_other_replicas() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let killed = name_of("a/b", 3) + &ending_of(1);
        let of_another = name_of("a/b", 4) + &ending_of(11);
        let of_another_cluster = name_of("other", 4) + &ending_of(1);
        for name in [&killed, &of_another, &of_another_cluster] {
            fs::write(path.join(name), "").unwrap();
        }
        let (partial, mut file) = Partial::begin(path, &about(1, 7)).unwrap();
        file.write_all(b"half of it").unwrap();
        let running = name_of("a/b", 7) + &ending_of(1);
        let others = [of_another, of_another_cluster];
        let all = [others[0].clone(), running, others[1].clone()];
        assert_eq!(sorted_names(path), all);
        drop(partial);
        assert_eq!(sorted_names(path), others);

        let (partial, _) = Partial::begin(path, &about(1, 8)).unwrap();
        partial.publish(&path.join(name_of("a/b", 8))).unwrap();
        assert_eq!(times(path, "a/b", 8), [8]);
    }

    #[test]
    fn a_backup_and_the_folder_made_for_it_are_for_their_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("backups");
        let (partial, _) = Partial::begin(&folder, &about(1, 7)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&partial.path)), (0o700, 0o600));
    }
}
