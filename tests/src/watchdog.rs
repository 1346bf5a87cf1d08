//! Watchdog for tests that do not end.
//!
//! A test that waits forever would hold up all later tests, and its name and the state of its cluster would
//! remain unknown. So a cluster has a time limit. When it is exceeded, the tails of its logs are printed
//! and its processes killed: the awaited state fails, and with it the test, by name. A test that does not
//! end even then is ended by the test runner (.config/nextest.toml).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::cluster_folder::sweep;
use crate::note::note;
use crate::processes::{command_line_of, in_folder};

/// Maximum lifetime of a cluster, and of a command in a test. The slowest test holds a cluster for about a
/// minute on two cores.
pub(crate) const TEST_LIMIT: Duration = Duration::from_secs(300);
/// Number of log lines shown, without those of this level.
const TAIL_LINES: usize = 25;
const DETAIL: &str = " DEBUG ";

/// Watches the lifetime of one cluster; dropping it ends the watch.
#[derive(Debug)]
pub(crate) struct Watchdog {
    _alive: SyncSender<()>,
}

impl Watchdog {
    /// Watches the cluster whose processes name this folder. The calling thread has the name of the test.
    pub(crate) fn over(folder: PathBuf) -> Self {
        Self::over_for(TEST_LIMIT, folder)
    }

    fn over_for(limit: Duration, folder: PathBuf) -> Self {
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let (alive, dropped) = sync_channel::<()>(0);
        thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                note(&format!(
                    "{test} still runs after {limit:?}: killing its cluster"
                ));
                show_logs(&folder);
                for pid in in_folder(&folder) {
                    note(&format!("runs: {pid} {}", command_line_of(pid)));
                }
                sweep(&folder);
            }
        });
        Self { _alive: alive }
    }
}

/// Prints the tails of all logs of a cluster: each member has a folder of its own in the cluster's, or a
/// file named after it.
pub(crate) fn show_logs(folder: &Path) {
    let within = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = within(folder)
        .map(|entry| entry.path())
        .map(|path| {
            if path.is_dir() {
                path.join("log")
            } else {
                path
            }
        })
        .filter(|path| path.ends_with("log") || path.extension().is_some_and(|it| it == "log"))
        .collect();
    logs.sort();
    for path in logs {
        if let Ok(text) = fs::read_to_string(&path) {
            let lines: Vec<&str> = text.lines().filter(|it| !it.contains(DETAIL)).collect();
            let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
            note(&format!("--- {}\n{tail}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A long-running process of a cluster in this folder.
    fn process_of(folder: &Path) -> std::process::Child {
        let mut command = Command::new("sleep");
        command.arg("100000").env("FOLDER", folder);
        command.spawn().unwrap()
    }

    #[test]
    fn the_processes_of_a_cluster_are_killed_at_its_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = process_of(folder.path());
        let watchdog = Watchdog::over_for(Duration::from_millis(50), folder.path().to_owned());
        let ended = process.wait().unwrap();
        assert!(!ended.success(), "{ended}");
        drop(watchdog);
    }

    #[test]
    fn dropping_a_watchdog_ends_its_watch() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = process_of(folder.path());
        let limit = Duration::from_secs(1);
        drop(Watchdog::over_for(limit, folder.path().to_owned()));
        let (_kept, never) = sync_channel::<()>(0);
        assert!(never.recv_timeout(2 * limit).is_err());
        assert_eq!(process.try_wait().unwrap(), None);
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
