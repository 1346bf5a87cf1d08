//! Monitor of shared file systems that jobs need: whether they are mounted, and whether they answer.
//!
//! A file system whose server is gone blocks callers in the kernel. So each is queried on a separate
//! thread, which may hang; while it does, no further query is sent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use muster_supervisor::mount_points;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use crate::health::sampling::pause;
use crate::health::{HealthConfig, Observation, Sample, THIS_HOST, thread};
use crate::limits::HEALTH_MOUNT_ANSWER_MAX;

/// The rule for shared file systems.
const RULE: &str = "mount_missing";

/// Starts monitoring the file systems in the settings, if there are any.
pub(super) fn start(config: &HealthConfig, seen: &Sender<Observation>) {
    if config.mounts.is_empty() {
        return;
    }
    let mut mounts = Mounts::new(&config.host_root, &config.mounts);
    let (period, seen) = (Duration::from_millis(config.sample_ms), seen.clone());
    thread("mounts", move || {
        while !seen.is_closed() {
            let sample = mounts.read(HEALTH_MOUNT_ANSWER_MAX);
            // Closed: the agent is ending, and so does this thread.
            drop(seen.blocking_send(Observation::Samples(vec![sample])));
            pause(period);
        }
    });
}

struct Mounts {
    /// The kernel's mount table: reading it does not touch the file systems themselves.
    table: PathBuf,
    probes: Vec<Probe>,
    /// File systems not mounted at the last check.
    missing: BTreeSet<PathBuf>,
}

/// A file system and its unanswered query.
struct Probe {
    /// Path in the settings.
    path: PathBuf,
    /// Path for this agent.
    here: PathBuf,
    asked: Option<Receiver<bool>>,
    is_silent: bool,
}

impl Mounts {
    fn new(root: &Path, paths: &[PathBuf]) -> Self {
        let probe = |path: &PathBuf| Probe {
            path: path.clone(),
            here: root.join(path.strip_prefix("/").unwrap_or(path)),
            asked: None,
            is_silent: false,
        };
        Self {
            // Process 1 has the host's mounts, also as seen from a container.
            table: root.join("proc/1/mountinfo"),
            probes: paths.iter().map(probe).collect(),
            missing: BTreeSet::new(),
        }
    }

    /// Stores the missing mounts; returns whether they changed.
    fn note_missing(&mut self, mounted: &BTreeSet<PathBuf>) -> bool {
        let paths = self.probes.iter().map(|probe| &probe.path);
        let missing = paths.filter(|path| !mounted.contains(*path)).cloned();
        let before = std::mem::replace(&mut self.missing, missing.collect());
        before != self.missing
    }

    fn read(&mut self, limit: Duration) -> Sample {
        let mut metrics = Vec::new();
        if let Ok(mounted) = mount_points(&self.table) {
            let is_changed = self.note_missing(&mounted);
            let missing = &self.missing;
            if is_changed && !missing.is_empty() {
                tracing::warn!(
                    ?missing,
                    "file systems named in the settings are not mounted"
                );
            } else if is_changed {
                tracing::info!("all file systems named in the settings are mounted again");
            }
            metrics.push(("missing", count(missing.len())));
        }
        let until = Instant::now() + limit;
        self.probes.iter_mut().for_each(Probe::ask);
        let silent = self
            .probes
            .iter_mut()
            .filter_map(|probe| probe.await_answer(until));
        metrics.push(("timeouts", count(silent.count())));
        Sample::new(RULE, THIS_HOST, &metrics)
    }
}

impl Probe {
    fn ask(&mut self) {
        if self.asked.is_some() {
            return;
        }
        let (answer, asked) = sync_channel(1);
        let here = self.here.clone();
        thread("mount", move || {
            // Any answer is fine, even an error; a missing mount is found in the mount table.
            let answered = rustix::fs::statvfs(&here).is_ok();
            // Fails only if the agent has ended.
            let _ = answer.send(answered);
        });
        self.asked = Some(asked);
    }

    /// Its path, if it does not answer.
    fn await_answer(&mut self, until: Instant) -> Option<&Path> {
        let left = until.saturating_duration_since(Instant::now());
        // A disconnected channel means that the thread could not be started: the state is unknown.
        if self.asked.as_ref()?.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            self.asked = None;
            self.is_silent = false;
            return None;
        }
        if !self.is_silent {
            tracing::warn!(path = %self.path.display(), "a file system does not answer");
        }
        self.is_silent = true;
        Some(&self.path)
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::fs;

    use super::*;

    const TABLE: &str = "\
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
41 24 0:36 / /mnt/my\\040data rw - nfs4 store:/data rw
42 24 0:37 / /scratch rw - lustre mgs:/scratch rw
";

    fn mounts(home: &Path, table: &str) -> Mounts {
        fs::create_dir_all(home.join("proc/1")).unwrap();
        fs::write(home.join("proc/1/mountinfo"), table).unwrap();
        fs::create_dir_all(home.join("scratch")).unwrap();
        let paths = ["/mnt/my data", "/scratch"].map(PathBuf::from);
        Mounts::new(home, &paths)
    }

    fn read(sample: &Sample) -> Vec<(&str, i64)> {
        let metrics = sample.metrics.iter();
        metrics
            .map(|(name, value)| (name.as_str(), *value))
            .collect()
    }

    #[test]
    fn an_absent_mount_is_missing_and_one_that_answers_is_healthy() {
        let home = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(20);
        let mut all = mounts(home.path(), TABLE);
        assert_eq!(read(&all.read(limit)), [("missing", 0), ("timeouts", 0)]);
        let (table, _) = TABLE.split_once("42 ").unwrap();
        let mut some = mounts(home.path(), table);
        assert_eq!(read(&some.read(limit)), [("missing", 1), ("timeouts", 0)]);
        fs::remove_file(home.path().join("proc/1/mountinfo")).unwrap();
        assert_eq!(read(&some.read(limit)), [("timeouts", 0)]);
    }

    #[test]
    fn a_missing_mount_is_logged_once_and_so_is_its_return() {
        let home = tempfile::tempdir().unwrap();
        let mut mounts = mounts(home.path(), TABLE);
        let all = BTreeSet::from(["/mnt/my data", "/scratch"].map(PathBuf::from));
        let some = BTreeSet::from([PathBuf::from("/scratch")]);
        let none = BTreeSet::new();
        let checks = [
            (&all, false),
            (&some, true),
            (&some, false),
            (&none, true),
            (&all, true),
            (&all, false),
        ];
        for (mounted, is_changed) in checks {
            assert_eq!(mounts.note_missing(mounted), is_changed, "{mounted:?}");
        }
    }

    #[test]
    fn a_hanging_mount_is_queried_once_and_reported_each_time_until_it_answers() {
        let home = tempfile::tempdir().unwrap();
        let mut mounts = mounts(home.path(), TABLE);
        // The querying thread does not return.
        let (answer, asked) = sync_channel(1);
        mounts.probes[1].asked = Some(asked);
        for _ in 0..2 {
            let sample = mounts.read(Duration::from_millis(50));
            assert_eq!(read(&sample), [("missing", 0), ("timeouts", 1)]);
        }
        answer.send(true).unwrap();
        let sample = mounts.read(Duration::from_secs(20));
        assert_eq!(read(&sample), [("missing", 0), ("timeouts", 0)]);
    }
}
