//! A cgroup as the surest way to find and kill all that belongs to a task, where the host lets us have one.
//!
//! Not required: without one, the supervisor finds its task's processes as their subreaper.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::kill_pid;

/// Name of the directory that holds the cgroups of all our tasks.
const PARENT: &str = "muster";

/// One task's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

/// Where cgroups can be made: version 2 first, then the hierarchies of version 1 that can list processes.
///
/// `None` if no hierarchy is there or may be written.
#[must_use]
pub fn find_cgroup_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounted = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (path, found, options) = (fields.next()?, fields.next()?, fields.next()?);
            let fits = option.is_none_or(|wanted| options.split(',').any(|have| have == wanted));
            (found == kind && fits).then(|| PathBuf::from(path))
        })
    };
    [
        mounted("cgroup2", None),
        mounted("cgroup", Some("pids")),
        mounted("cgroup", Some("freezer")),
    ]
    .into_iter()
    .flatten()
    .map(|mount| mount.join(PARENT))
    .find(|root| fs::create_dir_all(root).is_ok())
}

impl Cgroup {
    /// Opens or creates one.
    pub fn create(path: &Path) -> io::Result<Self> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Self(path.to_owned())),
        }
    }

    /// One that may exist.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Limits the memory of all that is in it, where the hierarchy can: version 2 with its memory controller.
    pub fn limit_memory(&self, memory_mib: u64) {
        let limit = self.0.join("memory.max");
        if memory_mib > 0 && limit.exists() {
            // A limit that cannot be set is none: the task was promised memory, not a limit.
            drop(fs::write(limit, (memory_mib << 20).to_string()));
        }
    }

    /// Whether the limit ended any of its processes.
    pub fn ran_out_of_memory(&self) -> bool {
        fs::read_to_string(self.0.join("memory.events")).is_ok_and(|events| {
            events
                .lines()
                .filter_map(|line| line.strip_prefix("oom_kill "))
                .any(|count| count.trim() != "0")
        })
    }

    /// Moves a process, and all that it will start, into the cgroup.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }

    /// Kills all processes in it, those started meanwhile included; no error if it is gone.
    pub fn kill(&self) {
        if fs::write(self.0.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Version 1 and kernels before 5.14 have no such file; the caller repeats until none is left.
        for line in fs::read_to_string(self.0.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
        {
            if let Ok(pid) = line.parse() {
                kill_pid(pid);
            }
        }
    }

    /// Whether no process is in it.
    pub fn is_empty(&self) -> bool {
        fs::read_to_string(self.0.join("cgroup.procs")).is_ok_and(|text| text.trim().is_empty())
            || !self.0.exists()
    }

    /// Removes it; one that still holds a dying process is removed by the next clean-up.
    pub fn remove(&self) {
        drop(fs::remove_dir(&self.0));
    }
}
