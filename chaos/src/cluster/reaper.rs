//! Finding and ending the processes of one local cluster, and only those.
//!
//! Supervisors and tasks outlive their agent on purpose, so a parent's list of children does not name them.
//! The cluster's own folder does: it is in the command line of every replica, agent and supervisor and in
//! the environment of every task.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use muster_worker::process::ProcessIdentity;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::time::Instant;

/// Maximum time for a killed process to leave the process table.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between scans of the process table.
const REAP_POLL: Duration = Duration::from_millis(10);

/// Live processes whose command line or environment names `folder`, except this process.
#[must_use]
pub fn processes_of(folder: &Path) -> Vec<Pid> {
    let own = getpid();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != own && is_alive(*pid) && names(*pid, folder))
        .collect()
}

/// Kills every process of `folder` and waits until all are gone; returns their number.
///
/// Scans again after each round, because a process may have forked while it was being killed, and requires
/// two empty scans in a row, because a process in the middle of `exec` names nothing.
///
/// # Errors
/// If some are still alive after five seconds.
pub fn kill_all(folder: &Path) -> Result<usize, StillAlive> {
    let deadline = Instant::now() + REAP_TIMEOUT;
    let (mut killed, mut was_empty) = (0, false);
    loop {
        let alive = processes_of(folder);
        if alive.is_empty() && was_empty {
            return Ok(killed);
        }
        was_empty = alive.is_empty();
        if !alive.is_empty() && Instant::now() >= deadline {
            return Err(StillAlive {
                count: alive.len(),
                folder: folder.display().to_string(),
            });
        }
        for pid in alive {
            // A process that is already gone is the goal.
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
        pause();
    }
}

/// Waits for killed processes to disappear.
#[expect(
    clippy::disallowed_methods,
    reason = "clean-up happens in destructors too, where nothing can be awaited"
)]
fn pause() {
    std::thread::sleep(REAP_POLL);
}

/// Processes that survived SIGKILL.
#[derive(Debug, thiserror::Error)]
#[error("{count} processes of {folder} are still alive after SIGKILL")]
pub struct StillAlive {
    count: usize,
    folder: String,
}

/// Whether any thread of a process runs: until the last ends, the process holds its files and ports.
#[must_use]
pub fn is_alive(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero().get();
    ProcessIdentity::of(pid).is_some_and(|process| process.is_alive())
}

fn names(pid: Pid, folder: &Path) -> bool {
    let needle = folder.as_os_str().as_bytes();
    ["cmdline", "environ"].iter().any(|file| {
        fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero()))
            .is_ok_and(|bytes| contains_path(&bytes, needle))
    })
}

/// Whether `bytes` contains `path` as a whole path or as the parent of one: `/w/1` is not in `/w/10`.
fn contains_path(bytes: &[u8], path: &[u8]) -> bool {
    bytes.windows(path.len()).enumerate().any(|(at, window)| {
        window == path
            && bytes
                .get(at + path.len())
                .is_none_or(|next| matches!(next, 0 | b'/' | b':' | b','))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_not_taken_for_its_longer_sibling() {
        assert!(contains_path(b"--data-dir\0/tmp/w/1/tasks\0", b"/tmp/w/1"));
        assert!(contains_path(b"X=/tmp/w/1\0", b"/tmp/w/1"));
        assert!(!contains_path(b"--data-dir\0/tmp/w/10\0", b"/tmp/w/1"));
    }

    #[test]
    fn a_process_that_names_the_folder_is_found_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("FOLDER", folder.path())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        // Its environment is visible once its `exec` has finished.
        while processes_of(folder.path()).is_empty() {
            pause();
        }
        assert_eq!(processes_of(folder.path()), [pid]);
        assert_eq!(kill_all(folder.path()).unwrap(), 1);
        assert!(!child.wait().unwrap().success());
    }
}
