//! A task's cgroups: they find and kill all of its processes and enforce its resource limits.
//! A task has one directory for every hierarchy that is needed: on version 2 one in total, on version 1 and
//! hybrid hosts one per controller. The code here does not ask for the version of a directory; the names of
//! the kernel's files show it. A host without usable cgroups still runs tasks: the supervisor finds a task's
//! processes as their subreaper, and limits are not enforced. Where a limit can be enforced and setting it
//! fails, the start fails.

mod devices;
mod host;
mod limits;
mod reusable;
mod watch;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_model::command::MemoryUsage;

use crate::isolation::mount_table::{self, Mount};
use crate::process::kill_pid;
pub use host::{CgroupHost, Controller};
pub use limits::DeviceNumber;
pub(crate) use limits::{CpuQuota, CpuTime, Limits};
pub(crate) use reusable::ReusableCgroups;
pub(crate) use watch::MemoryWatch;

/// Largest amount that the kernel charges to a cgroup at a time, including machines with pages of 64 KiB.
const CHARGED_BYTES_MAX: u64 = 4 << 20;
/// Process list of a cgroup.
const PROCESSES: &str = "cgroup.procs";
/// Thread list of a version 1 cgroup.
const THREADS: &str = "tasks";
/// Bytes read of such a file at a time.
const FILE_BYTES: usize = 1_024;
/// Name of the inner cgroup of a helper process, within a task's cgroup.
const INNER: &str = "runner";

/// The cgroups of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups(Vec<PathBuf>, CachedCgroups);

/// Cached facts and open files of the cgroups: the next task of the same supervisor may reuse some of them.
#[derive(Debug, Default)]
struct CachedCgroups {
    files: RefCell<BTreeMap<(usize, String), Arc<File>>>,
    unified: OnceCell<Option<usize>>,
    /// Whether the version 2 directory has no controllers.
    is_unified_bare: OnceCell<bool>,
}

/// A clone starts with an empty cache, which refills on demand.
impl Clone for CachedCgroups {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for CachedCgroups {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for CachedCgroups {}

impl Cgroups {
    /// Creates the cgroups, or opens existing ones, with these limits applied. On an error, removes what it
    /// created.
    ///
    /// # Errors
    /// A message for the user: what could not be created or limited, and why.
    pub(crate) fn create(paths: &[PathBuf], limits: &Limits) -> Result<Self, String> {
        let cgroups = Self::at(paths);
        let made = paths
            .iter()
            .try_for_each(|path| {
                make(path).map_err(|error| {
                    format!("creating the cgroup {} failed: {error}", path.display())
                })
            })
            .and_then(|()| limits.set(&cgroups));
        if made.is_err() {
            cgroups.remove();
        }
        made.map(|()| cgroups)
    }

    /// Opens the cgroups at these paths, if any exist.
    #[must_use]
    pub fn at(paths: &[PathBuf]) -> Self {
        Self(paths.to_vec(), CachedCgroups::default())
    }

    /// Cgroups of the same path in all hierarchies of this host: engines create a container's cgroup in each.
    #[must_use]
    pub fn likewise(path: &Path) -> Self {
        let mounts = mount_table::own().unwrap_or_default();
        let below = points(&mounts)
            .find_map(|point| path.strip_prefix(point).ok())
            .filter(|below| !below.as_os_str().is_empty());
        let Some(below) = below else {
            return Self::at(&[]);
        };
        let all = points(&mounts).map(|point| point.join(below));
        Self(all.collect(), CachedCgroups::default())
    }

    /// Files by which a single-threaded process moves itself, with all its later children, into the cgroups:
    /// it writes `0` into each.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn join_files(&self) -> io::Result<Vec<Arc<File>>> {
        (0..self.0.len()).map(|index| self.door(index)).collect()
    }

    /// A thread that moves itself blocks no other process. To move a whole process, even with few threads,
    /// the kernel blocks all forks on the machine, for milliseconds; but version 2 does not move single
    /// threads.
    fn door(&self, index: usize) -> io::Result<Arc<File>> {
        if self.unified_index() == Some(index) {
            return self.file(index, PROCESSES);
        }
        self.file(index, THREADS)
    }

    /// Like `doors`, for a process that gets child cgroups created below: on version 2, a cgroup with
    /// children holds no processes itself.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn inner_join_files(&self) -> io::Result<Vec<Arc<File>>> {
        let inner = self.0.iter().map(|path| {
            let is_unified = path.join("cgroup.controllers").exists();
            let inner = path.join(INNER);
            match is_unified {
                true => make(&inner).map(|()| inner),
                false => Ok(path.clone()),
            }
        });
        Self::at(&inner.collect::<io::Result<Vec<PathBuf>>>()?).join_files()
    }

    /// The version 2 directory, if there is one. The directories must exist.
    fn unified(&self) -> Option<&Path> {
        self.0.get(self.unified_index()?).map(PathBuf::as_path)
    }

    fn unified_index(&self) -> Option<usize> {
        let find = || {
            self.0
                .iter()
                .position(|path| path.join("cgroup.controllers").exists())
        };
        *self.1.unified.get_or_init(find)
    }

    /// Opens a file of one of the cgroups and keeps it open.
    fn file(&self, index: usize, name: &str) -> io::Result<Arc<File>> {
        let key = (index, name.to_owned());
        if let Some(file) = self.1.files.borrow().get(&key) {
            return Ok(Arc::clone(file));
        }
        let path = self.0.get(index).ok_or(io::ErrorKind::NotFound)?.join(name);
        let opened = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(&path)?,
            both => both?,
        };
        let file = Arc::new(opened);
        self.1.files.borrow_mut().insert(key, Arc::clone(&file));
        Ok(file)
    }

    /// Kills all processes in the cgroups, including those started meanwhile; does nothing if the cgroups are
    /// gone.
    pub fn kill(&self) {
        if self
            .0
            .iter()
            .any(|path| fs::write(path.join("cgroup.kill"), "1").is_ok())
        {
            return;
        }
        // Version 1 and kernels before 5.14 have no such file. Freezing prevents forks during the scan; where
        // freezing is impossible, the caller repeats until no process is left.
        let frozen = self.freeze(true);
        for pid in self.processes() {
            kill_pid(pid);
        }
        if frozen {
            self.freeze(false);
        }
    }

    /// Freezes or thaws all processes in the cgroups. False if the host cannot.
    pub fn freeze(&self, frozen: bool) -> bool {
        let legacy = if frozen { "FROZEN" } else { "THAWED" };
        let unified = if frozen { "1" } else { "0" };
        self.0.iter().any(|path| {
            write_existing(&path.join("cgroup.freeze"), unified).is_ok()
                || write_existing(&path.join("freezer.state"), legacy).is_ok()
        })
    }

    /// Whether the cgroups and their children hold no process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.with_all_below().iter().all(|path| {
            fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|text| text.trim().is_empty())
                || !path.exists()
        })
    }

    /// Removes the cgroups and children that an engine created; one that still holds a dying process is left
    /// to the next clean-up.
    pub fn remove(&self) {
        let remains = |path: &&PathBuf| {
            let removed = fs::remove_dir(path);
            removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        };
        // Usually there are no children.
        let rest: Vec<PathBuf> = self.0.iter().filter(remains).cloned().collect();
        for path in Self::at(&rest).with_all_below().iter().rev() {
            drop(fs::remove_dir(path));
        }
    }

    /// Memory statistics of the cgroups; `None` if nothing counts memory.
    pub(crate) fn memory(&self) -> Option<MemoryUsage> {
        let number = |names: &[&str]| self.read(names)?.trim().parse().ok();
        Some(MemoryUsage {
            limit_bytes: number(&["memory.max", "memory.limit_in_bytes"])?,
            peak_bytes: number(&["memory.peak", "memory.max_usage_in_bytes"]).unwrap_or(0),
        })
    }

    /// Whether the kernel's OOM killer ended a process of the cgroups: for lack of host memory or because of
    /// their limit.
    pub(crate) fn memory_shortage(&self) -> Option<Shortage> {
        let events = self.read(&["memory.events", "memory.oom_control"])?;
        if count(&events, "oom_kill") == 0 {
            return None;
        }
        // Version 2 counts each time that the limit caused an OOM. Some kernels do not keep version 1's
        // counters; there the limit counts as reached if the peak came within one charge of it.
        let is_met = |memory: MemoryUsage| {
            memory.limit_bytes.saturating_sub(memory.peak_bytes) < CHARGED_BYTES_MAX
        };
        let met = match events.contains("oom_kill_disable") {
            true => self.memory().is_some_and(is_met),
            false => count(&events, "oom") > 0,
        };
        Some(if met {
            Shortage::OfItsLimit
        } else {
            Shortage::OfTheHost
        })
    }

    /// Number of forks that the process limit refused.
    pub(crate) fn processes_refused(&self) -> u64 {
        let events = self.read(&["pids.events"]);
        events.map_or(0, |events| count(&events, "max"))
    }

    /// Processes in the cgroups and their children.
    fn processes(&self) -> Vec<i32> {
        let all = self.with_all_below();
        let lists = all
            .iter()
            .filter_map(|path| fs::read_to_string(path.join("cgroup.procs")).ok());
        let mut pids: Vec<i32> = lists
            .flat_map(|list| list.lines().map(str::parse).collect::<Vec<_>>())
            .filter_map(Result::ok)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// The directories and all descendants, parents first.
    fn with_all_below(&self) -> Vec<PathBuf> {
        let mut all = self.0.clone();
        let mut next = 0;
        while let Some(path) = all.get(next).cloned() {
            next += 1;
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            all.extend(below.map(|entry| entry.path()));
        }
        all
    }

    /// Content of the first existing file of these names: version 2's and version 1's.
    fn read(&self, names: &[&str]) -> Option<String> {
        let mut files = self.likely(names).flat_map(|(index, is_legacy)| {
            let count = names.len();
            let order = (0..count).map(move |at| if is_legacy { count - 1 - at } else { at });
            order.map(move |at| (index, names[at]))
        });
        files.find_map(|(index, name)| text_of(&*self.file(index, name).ok()?).ok())
    }

    /// Writes to the first file of this name. False if there is none.
    fn write(&self, name: &str, text: &str) -> io::Result<bool> {
        self.write_either(&[(name, text)])
            .map(|found| found.is_some())
    }

    /// Writes to the first existing file of these names its text. Returns the file's index; `None` if none
    /// exists.
    fn write_either(&self, all: &[(&str, &str)]) -> io::Result<Option<usize>> {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        for (path, is_legacy) in self.likely(&names).map(|(index, is)| (&self.0[index], is)) {
            for at in 0..all.len() {
                let index = if is_legacy { all.len() - 1 - at } else { at };
                let (name, text) = all[index];
                match write_existing(&path.join(name), text) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                    Ok(()) => return Ok(Some(index)),
                }
            }
        }
        Ok(None)
    }

    /// All directories, most likely first: the one whose mount is named after the controller of these files,
    /// as is customary with version 1, whose names come last. Looking up an absent file costs the kernel more
    /// than finding an existing one. True marks the likely directory.
    fn likely(&self, names: &[&str]) -> impl Iterator<Item = (usize, bool)> {
        let controller = names.first().and_then(|name| name.split('.').next());
        let is_named = move |index: &usize| {
            let mount = self.0[*index].ancestors().nth(2);
            let name = mount.and_then(|mount| mount.file_name()?.to_str());
            name.is_some_and(|name| name.split(',').any(|word| Some(word) == controller))
        };
        let first = (0..self.0.len())
            .filter(is_named)
            .map(|index| (index, true));
        let is_other = move |index: &usize| !is_named(index);
        let rest = (0..self.0.len()).filter(is_other);
        first.chain(rest.map(|index| (index, false)))
    }
}

impl Cgroups {
    /// Copies the parent's value into the first directory that has such a file: version 1 accepts no process
    /// before CPUs and memory nodes are both set.
    fn inherit(&self, name: &str) -> io::Result<()> {
        let own = self.0.iter().find(|path| path.join(name).exists());
        let Some((path, above)) = own.and_then(|path| Some((path, path.parent()?))) else {
            return Ok(());
        };
        let text = fs::read_to_string(above.join(name))?;
        // On version 2 an empty value means all of the parent's, as in a new directory.
        if text.trim().is_empty() {
            return Ok(());
        }
        write_existing(&path.join(name), text.trim())
    }
}

/// Path of a cgroup within its hierarchy, as container engines take it.
pub(crate) fn below_mount(cgroup: &Path) -> Option<String> {
    let mounts = mount_table::own().ok()?;
    let mut below = points(&mounts).filter_map(|point| cgroup.strip_prefix(point).ok());
    below.next().map(|path| format!("/{}", path.display()))
}

/// Mount points of cgroup hierarchies.
fn points(mounts: &[Mount]) -> impl Iterator<Item = &Path> {
    let hierarchies = mounts
        .iter()
        .filter(|mount| mount.kind.starts_with("cgroup"));
    hierarchies.map(|mount| mount.point.as_path())
}

/// Whose memory was exhausted when the OOM killer acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    OfItsLimit,
    OfTheHost,
}

/// Creates a directory that may already exist, and its parent if that was removed.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(path),
        other => other,
    }
}

/// Reads the current content of a kernel file.
fn text_of(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut buffer = [0u8; FILE_BYTES];
    loop {
        let count = file.read_at(&mut buffer, text.len() as u64)?;
        text.extend_from_slice(&buffer[..count]);
        // The kernel returns all that fits.
        if count < FILE_BYTES {
            break;
        }
    }
    String::from_utf8(text).map_err(io::Error::other)
}

/// Writes to a file that the kernel created; never creates one.
fn write_existing(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Value of a name in a list of `name number` lines; 0 if absent.
fn count(events: &str, name: &str) -> u64 {
    events
        .lines()
        .filter_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        })
        .next()
        .unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// A fake cgroup directory with these files.
    fn likeness(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroups) {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let entries = fs::read_dir(home.path()).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        (home, Cgroups::at(&paths))
    }

    #[test]
    fn cgroups_of_both_versions_report_peak_memory_and_its_limit() {
        let (_home, unified) = likeness(&[
            ("a/memory.max", "33554432\n"),
            ("a/memory.peak", "33550000\n"),
            (
                "a/memory.events",
                "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n",
            ),
        ]);
        let (_other_home, legacy) = likeness(&[
            ("a/pids.max", "max\n"),
            ("b/memory.limit_in_bytes", "33554432\n"),
            ("b/memory.max_usage_in_bytes", "33550000\n"),
            ("b/memory.failcnt", "0\n"),
            (
                "b/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
        ]);
        for cgroups in [unified, legacy] {
            let memory = cgroups.memory().unwrap();
            assert_eq!(
                (memory.limit_bytes, memory.peak_bytes),
                (33_554_432, 33_550_000)
            );
            assert_eq!(cgroups.memory_shortage(), Some(Shortage::OfItsLimit));
        }
    }

    #[test]
    fn a_kill_below_the_limit_was_for_the_hosts_memory() {
        let (_home, unified) = likeness(&[("a/memory.events", "max 0\noom 0\noom_kill 1\n")]);
        let (_other_home, legacy) = likeness(&[
            ("a/memory.limit_in_bytes", "33554432\n"),
            ("a/memory.max_usage_in_bytes", "9000000\n"),
            (
                "a/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
        ]);
        let (_last_home, unharmed) = likeness(&[("a/memory.events", "max 9\noom 9\noom_kill 0\n")]);
        assert_eq!(unified.memory_shortage(), Some(Shortage::OfTheHost));
        assert_eq!(legacy.memory_shortage(), Some(Shortage::OfTheHost));
        assert_eq!(unharmed.memory_shortage(), None);
    }

    #[test]
    fn processes_in_several_hierarchies_are_listed_once_and_frozen() {
        let (_home, cgroups) = likeness(&[
            ("a/cgroup.procs", "41\n42\n"),
            ("b/cgroup.procs", "42\n"),
            ("b/freezer.state", "THAWED\n"),
        ]);
        assert_eq!(cgroups.processes(), [41, 42]);
        assert!(cgroups.freeze(true));
        let state = fs::read_to_string(cgroups.0[1].join("freezer.state")).unwrap();
        assert_eq!(state.trim(), "FROZEN");
        assert!(!cgroups.0[0].join("freezer.state").exists());
    }
}
