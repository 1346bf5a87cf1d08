//! A cgroup as the surest way to find and kill all that belongs to a task, and to hold it to its memory, where the host
//! lets us have one.
//!
//! Not required: without one, the supervisor finds its task's processes as their subreaper, and the memory of a task is
//! a promise that nobody enforces. Where the task's cgroup can limit memory, a limit that cannot be set fails the start.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::process::kill_pid;

/// Name of the directory that holds the cgroups of all our tasks.
const PARENT: &str = "muster";

/// One task's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

/// Where cgroups can be made, those that can limit memory first: version 2 if it has the memory controller (on hybrid hosts
/// version 1 keeps it), version 1's memory hierarchy, then all that can at least list processes.
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
    let unified = mounted("cgroup2", None);
    [
        unified.clone().filter(|mount| passes_memory_on(mount)),
        mounted("cgroup", Some("memory")),
        unified,
        mounted("cgroup", Some("pids")),
        mounted("cgroup", Some("freezer")),
    ]
    .into_iter()
    .flatten()
    .map(|mount| mount.join(PARENT))
    .find(|root| fs::create_dir_all(root).is_ok())
}

/// Lets the cgroups of tasks below a mount of version 2 limit memory: every ancestor must pass the controller on.
fn passes_memory_on(mount: &Path) -> bool {
    let parent = mount.join(PARENT);
    fs::create_dir_all(&parent).is_ok()
        && [mount, &parent]
            .iter()
            .all(|path| fs::write(path.join("cgroup.subtree_control"), "+memory").is_ok())
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

    /// Limits the memory of all that is in it, where the hierarchy can.
    ///
    /// # Errors
    /// What the kernel says: the limit is not in force then.
    pub fn limit_memory(&self, memory_mib: u64) -> io::Result<()> {
        let limits = ["memory.max", "memory.limit_in_bytes"].map(|name| self.0.join(name));
        match limits.iter().find(|limit| limit.exists()) {
            Some(limit) if memory_mib > 0 => {
                fs::write(limit, memory_mib.saturating_mul(1 << 20).to_string())
            }
            _ => Ok(()),
        }
    }

    /// Whether the limit ended any of its processes.
    pub fn ran_out_of_memory(&self) -> bool {
        ["memory.events", "memory.oom_control"].iter().any(|name| {
            fs::read_to_string(self.0.join(name)).is_ok_and(|events| {
                events
                    .lines()
                    .filter_map(|line| line.strip_prefix("oom_kill "))
                    .any(|count| count.trim() != "0")
            })
        })
    }

    /// One within it.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn within(&self, name: &str) -> io::Result<Self> {
        Self::create(&self.0.join(name))
    }

    /// The file by which a process moves itself into the cgroup, with all that it will start: it writes `0` into it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn door(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .open(self.0.join("cgroup.procs"))
    }

    /// Kills all processes in it, those started meanwhile included; no error if it is gone.
    pub fn kill(&self) {
        if fs::write(self.0.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Version 1 and kernels before 5.14 have no such file; the caller repeats until none is left.
        for path in self.with_all_below() {
            let list = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            list.lines()
                .filter_map(|line| line.parse().ok())
                .for_each(kill_pid);
        }
    }

    /// Whether no process is in it, or below it.
    pub fn is_empty(&self) -> bool {
        let is_empty = |path: &PathBuf| {
            fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|text| text.trim().is_empty())
                || !path.exists()
        };
        self.with_all_below().iter().all(is_empty)
    }

    /// Removes it, and what an engine made below it; one that still holds a dying process is removed by the next clean-up.
    pub fn remove(&self) {
        for path in self.with_all_below().iter().rev() {
            drop(fs::remove_dir(path));
        }
    }

    /// Its directory, and those of all cgroups below it, each after the one that it lies in.
    fn with_all_below(&self) -> Vec<PathBuf> {
        let mut all = vec![self.0.clone()];
        let mut next = 0;
        while let Some(path) = all.get(next).cloned() {
            next += 1;
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            all.extend(below.map(|entry| entry.path()));
        }
        all
    }
}

/// The path of a cgroup within its hierarchy, as container engines take it.
pub(crate) fn below_mount(cgroup: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let points = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup").then_some(point)
    });
    let mut below = points.filter_map(|point| cgroup.strip_prefix(point).ok());
    below.next().map(|path| format!("/{}", path.display()))
}
