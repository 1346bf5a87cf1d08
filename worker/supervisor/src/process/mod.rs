//! Processes in `/proc`: identity and descent.

pub(super) mod kernel_limits;
pub(super) mod process_tree;
pub(super) mod rounds;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::task::directory::TaskDirectory;

/// Environment variable with a task's control directory: all processes started by a task inherit it, unless
/// they remove it.
pub const CONTROL_VARIABLE: &str = "MUSTER_CTL_DIR";

/// A process identity that cannot be confused with a later process of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// The process that has this id now.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        ProcessEntry::read(pid).map(|entry| Self {
            pid,
            start_ticks: entry.start_ticks,
        })
    }

    /// Whether any of its threads still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        ProcessEntry::read(self.pid)
            .is_some_and(|entry| entry.start_ticks == self.start_ticks && !entry.is_dead())
    }

    /// Sends SIGKILL unless the id was reused.
    pub fn kill(&self) {
        if self.is_alive() {
            kill_pid(self.pid);
        }
    }
}

/// Environment entry by which processes of a task are recognized.
#[must_use]
pub fn mark_of(directory: &TaskDirectory) -> Vec<u8> {
    let mut mark = format!("{CONTROL_VARIABLE}=").into_bytes();
    mark.extend(directory.control().as_os_str().as_bytes());
    mark
}

/// Whether a process has this variable in its environment, as far as it is readable.
#[must_use]
pub fn carries(pid: i32, mark: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|one| one == mark))
}

/// All processes of a host with this data directory, except its agent: the supervisors and their descendants.
/// For test harnesses that let a whole host die.
///
/// # Errors
/// Errors of the file system.
pub fn of_host(data_directory: &Path) -> io::Result<Vec<ProcessIdentity>> {
    let entries = ProcessEntry::all()?;
    let mut found = Vec::new();
    let directories = match fs::read_dir(data_directory.join("tasks")) {
        // The task directories were in memory, and the last agent removed them.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        directories => directories?,
    };
    for directory in directories {
        let supervisor = TaskDirectory::new(directory?.path()).supervisor()?;
        if let Some(supervisor) = supervisor.filter(ProcessIdentity::is_alive) {
            found.push(supervisor);
            let tree = descendants(&entries, supervisor.pid);
            found.extend(tree.into_iter().filter_map(ProcessIdentity::of));
        }
    }
    Ok(found)
}

/// Maximum bytes of `/proc/<pid>/stat`: 52 numbers of 20 digits at most, and a name.
const STAT_BYTES_MAX: usize = 2_048;

/// The used fields of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEntry {
    /// Process id.
    pub pid: i32,
    /// Process id of the parent.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// Session.
    pub session: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    state: u8,
    threads: u32,
}

impl ProcessEntry {
    /// Reads the entry of a process; `None` if there is none.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        // In one read: the kernel reports a size of 0.
        let mut line = [0u8; STAT_BYTES_MAX];
        let mut file = fs::File::open(format!("/proc/{pid}/stat")).ok()?;
        let bytes = io::Read::read(&mut file, &mut line).ok()?;
        Self::parse(&String::from_utf8_lossy(&line[..bytes]))
    }

    /// All visible processes of this machine.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn all() -> io::Result<Vec<Self>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            // A process that ends between listing and reading is skipped.
            if let Some(found) = name
                .to_str()
                .and_then(|text| text.parse().ok())
                .and_then(Self::read)
            {
                entries.push(found);
            }
        }
        Ok(entries)
    }

    /// The name may contain spaces and brackets, so fields are counted from the last bracket.
    fn parse(line: &str) -> Option<Self> {
        let pid = line.split(' ').next()?.parse().ok()?;
        let fields: Vec<&str> = line[line.rfind(')')? + 1..]
            .split_ascii_whitespace()
            .collect();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
        })
    }

    /// Whether it is in an uninterruptible wait in the kernel.
    pub(crate) const fn hangs(&self) -> bool {
        self.state == b'D'
    }

    /// Whether it was stopped by a signal.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether no thread of it runs. The state is the first thread's, which may end before the others: such a
    /// process still holds its files, ports and GPUs.
    #[must_use]
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// All descendants of a process, without itself and without zombies.
pub(crate) fn descendants(entries: &[ProcessEntry], root: i32) -> Vec<i32> {
    let mut tree = BTreeSet::from([root]);
    // `/proc` lists by id, and ids wrap: repeat until a pass finds no new process.
    loop {
        let before = tree.len();
        for entry in entries {
            if tree.contains(&entry.parent) {
                tree.insert(entry.pid);
            }
        }
        if tree.len() == before {
            break;
        }
    }
    entries
        .iter()
        .filter(|entry| entry.pid != root && tree.contains(&entry.pid) && !entry.is_dead())
        .map(|entry| entry.pid)
        .collect()
}

/// Sends SIGKILL; ignored if the process is gone.
pub fn kill_pid(pid: i32) {
    signal_pid(pid, Signal::KILL);
}

/// Sends a signal; ignored if the process is gone.
pub(crate) fn signal_pid(pid: i32, signal: Signal) {
    if let Some(pid) = positive(pid) {
        // The only other errors are a process that is gone and one without permission.
        let _ = kill_process(pid, signal);
    }
}

/// Sends a signal to a process group; ignored if it is empty.
pub(crate) fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = positive(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// Rejects ids of 1 and below: they are never a task's, and as a group they would address all processes.
fn positive(pid: i32) -> Option<Pid> {
    if pid > 1 { Pid::from_raw(pid) } else { None }
}

/// Boot id of the kernel: a different one means that every process is gone.
///
/// # Errors
/// Errors of the file system.
pub fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32) -> ProcessEntry {
        ProcessEntry {
            pid,
            parent,
            group: pid,
            session: pid,
            start_ticks: 1,
            state: b'S',
            threads: 1,
        }
    }

    #[test]
    fn a_name_with_brackets_and_spaces_is_skipped() {
        let line = "77 (a) S (b) R 5 6 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 424242 1 2";
        let parsed = ProcessEntry::parse(line).unwrap();
        assert_eq!(
            (parsed.pid, parsed.parent, parsed.group, parsed.session),
            (77, 5, 6, 7)
        );
        assert_eq!(parsed.start_ticks, 424_242);
    }

    #[test]
    fn a_process_lives_until_its_last_thread_ends() {
        let threads = |threads, state| {
            let line = format!(
                "77 (a) {state} 5 6 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 424242 1 2"
            );
            ProcessEntry::parse(&line).unwrap()
        };
        assert!(!threads(2, 'Z').is_dead() && !threads(1, 'S').is_dead());
        assert!(threads(1, 'Z').is_dead() && threads(0, 'X').is_dead());
        let child = ProcessEntry {
            parent: 1,
            ..threads(2, 'Z')
        };
        assert_eq!(descendants(&[entry(1, 0), child], 1), [77]);
    }

    #[test]
    fn descendants_are_found_in_any_order() {
        let entries = [entry(3, 9), entry(9, 20), entry(20, 1), entry(30, 1)];
        assert_eq!(descendants(&entries, 20), vec![3, 9]);
    }

    #[test]
    fn this_process_is_alive_and_one_with_its_pid_but_another_start_is_not() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = ProcessIdentity::of(pid).unwrap();
        assert!(me.is_alive());
        let double = ProcessIdentity {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert!(!double.is_alive());
    }
}
