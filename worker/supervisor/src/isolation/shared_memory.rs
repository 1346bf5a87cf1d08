//! Private shared memory of an attempt on a host, removed with its last task.
//! Files that a task creates in `/dev/shm` outlive it, and so do segments, queues and semaphores of System V.
//! Their owner cannot be determined afterwards: all tasks may run as one user, and a file that no process has
//! open may still belong to another task. So Muster does not search for leftovers. Instead, the tasks of an
//! attempt on one host have a private folder as `/dev/shm`, and a private IPC namespace, which the kernel
//! cleans up when its last process is gone. They share both, because a program that is one to its user (ranks
//! on one host) communicates through them.
//! Next to the folder is a file with the main processes that are in the namespace. A process that starts one
//! locks that file; a process that uses the folder holds a lock on the folder itself, which is released with
//! the process however that ends.
//! The last user renames the folder while it holds both locks, and removes it afterwards: that may take long,
//! and no other task has to wait for it.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use crate::lease::clock::boottime_ms;
use crate::limits::SHARED_MEMORY_TURN_MS_MAX;
use crate::process::{ProcessIdentity, kill_pid};
use crate::task::child::ChildSetup;
use crate::task::spec::SharedMemoryLocation;
use crate::{files, sys};

/// Path where programs expect shared memory.
const SHARED_MEMORY: &CStr = c"/dev/shm";
/// Mode of the folder: all users may create files in it and remove their own, as in `/dev/shm` itself.
const MODE: u32 = 0o1777;
/// Suffix of the file with the main processes.
const MEMBERS: &str = ".members";
/// Suffix, before its inode number, of a folder that is being removed: the number makes it unique.
const GONE: &str = ".gone-";
/// Pause between two attempts to take the lock.
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// Shared memory of a task that has not ended.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    location: SharedMemoryLocation,
    /// Lock on the folder, shared with the other tasks of the attempt.
    in_use: File,
}

/// Moves a process into its attempt's shared memory by namespaces.
#[derive(Debug)]
pub(crate) struct Entry {
    /// IPC namespace to join; a new one if `None`.
    ipc: Option<OwnedFd>,
    /// Bind mounts (source, target), in this order.
    mounts: Vec<(CString, CString)>,
}

/// Exclusive lock: while it is held, no other process starts or stops using the folder.
struct FolderLock {
    members: File,
}

impl SharedMemory {
    /// Creates the folder, or shares that of the attempt's other tasks.
    ///
    /// # Errors
    /// Errors of the file system; `TimedOut` if other tasks of the attempt held the lock too long.
    pub(crate) fn prepare(place: &SharedMemoryLocation) -> io::Result<Self> {
        if let Some(parent) = place.folder.parent() {
            fs::create_dir_all(parent)?;
        }
        let _turn = FolderLock::wait_for(&place.folder)?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).create(&place.folder)?;
        fs::set_permissions(&place.folder, Permissions::from_mode(MODE))?;
        if let Some(name) = place.visible.as_deref().and_then(Path::file_name) {
            // Mount point for the part of `/dev/shm` that must stay visible.
            builder.mode(0o700).create(place.folder.join(name))?;
        }
        let in_use = File::open(&place.folder)?;
        flock(&in_use, FlockOperation::LockShared)?;
        Ok(Self {
            location: place.clone(),
            in_use,
        })
    }

    /// Starts a main process in it: the first one of the attempt creates a namespace, the others join it.
    ///
    /// # Errors
    /// Errors of the file system, and of `start`. A process that was started is killed then.
    pub(crate) fn start<T>(
        &self,
        start: impl FnOnce(Entry) -> Result<T, String>,
        pid_of: impl FnOnce(&T) -> i32,
    ) -> Result<T, String> {
        let during = |error: io::Error| format!("joining the shared memory failed: {error}");
        let mut turn = FolderLock::wait_for(&self.location.folder).map_err(during)?;
        let started = start(Entry::to(&self.location).map_err(during)?)?;
        turn.admit(pid_of(&started)).map_err(during)?;
        Ok(started)
    }

    /// Removes the contents after the task has ended, unless other tasks of the attempt continue.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn close(self) -> io::Result<()> {
        drop(self.in_use);
        remove_unless_used(&self.location.folder)
    }
}

/// Removes the shared memory of an attempt that no supervisor uses any more, and remains of earlier removals;
/// ignored if it is gone.
///
/// # Errors
/// Errors of the file system; `TimedOut` if other tasks of the attempt held the lock too long.
pub fn remove_unless_used(folder: &Path) -> io::Result<()> {
    set_aside_unless_used(folder)?;
    for gone in gone_from(folder)? {
        files::remove_directory(&gone)?;
    }
    Ok(())
}

/// Removes the shared memory of all attempts with folders in `parent` that no supervisor uses any more.
///
/// # Errors
/// The first error of the file system, after all removals were tried.
pub fn sweep(parent: &Path) -> io::Result<()> {
    let mut attempts = BTreeSet::new();
    for name in names_in(parent)? {
        let attempt = name
            .strip_suffix(MEMBERS)
            .or_else(|| Some(name.split_once(GONE)?.0));
        attempts.insert(parent.join(attempt.unwrap_or(&name)));
    }
    let removals = attempts.iter().map(|folder| remove_unless_used(folder));
    removals.fold(Ok(()), io::Result::and)
}

/// Renames the folder of an attempt if no supervisor uses it, so that it can be removed without delaying
/// others.
fn set_aside_unless_used(folder: &Path) -> io::Result<()> {
    let _turn = match FolderLock::wait_for(folder) {
        // The parent folder never existed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        turn => turn?,
    };
    // Opened only under the lock: before, it could be a different folder, which is in use.
    match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(in_use) => {
            match flock(&in_use, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let inode = in_use.metadata()?.ino();
            fs::rename(folder, beside(folder, &format!("{GONE}{inode}")))?;
        }
    }
    fs::remove_file(members_of(folder))
}

/// Renamed folders of an attempt that are not yet removed.
fn gone_from(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}{GONE}", name.to_string_lossy());
    let names = names_in(parent)?.into_iter();
    let gone = names.filter(|name| name.starts_with(&prefix));
    Ok(gone.map(|name| parent.join(name)).collect())
}

/// Names in a folder; empty if it does not exist. The supervisor's own names are all Unicode.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// Whether this process may give tasks private shared memory: this requires permission to create namespaces
/// and to mount.
#[must_use]
pub fn is_possible() -> bool {
    let entry = Entry {
        ipc: None,
        mounts: Vec::new(),
    };
    // There is no such program, but the child tries to execute it only after it was moved.
    let mut probe = Command::new("/proc/self/none");
    sys::set_up_in_child(&mut probe, ChildSetup::helper(getpid()).entering(entry));
    probe
        .spawn()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Entry {
    /// Prepares one more main process for the shared memory of a place.
    ///
    /// # Errors
    /// Errors of the file system.
    fn to(place: &SharedMemoryLocation) -> io::Result<Self> {
        Self::through(namespace_of_others(&place.folder)?, place)
    }

    /// Prepares a process beside the main process of a task for its shared memory.
    ///
    /// # Errors
    /// Errors of the file system; `NotFound` if the main process has ended.
    pub(crate) fn beside(
        place: &SharedMemoryLocation,
        main: Option<ProcessIdentity>,
    ) -> io::Result<Self> {
        let ipc = main.map(namespace_of).transpose()?.flatten();
        let ended = || io::Error::new(io::ErrorKind::NotFound, "the main process has ended");
        Self::through(Some(ipc.ok_or_else(ended)?), place)
    }

    fn through(ipc: Option<OwnedFd>, place: &SharedMemoryLocation) -> io::Result<Self> {
        let mut mounts = Vec::new();
        if let Some(visible) = &place.visible {
            let name = visible.file_name().unwrap_or_default();
            mounts.push((text(visible)?, text(place.folder.join(name))?));
        }
        mounts.push((text(&place.folder)?, SHARED_MEMORY.to_owned()));
        Ok(Self { ipc, mounts })
    }

    /// Moves this process there; called between fork and exec, so it allocates nothing.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn enter(&self) -> io::Result<()> {
        match &self.ipc {
            Some(namespace) => sys::join_ipc_namespace(namespace)?,
            None => sys::make_ipc_namespace()?,
        }
        sys::make_mount_namespace()?;
        let mut mounts = self.mounts.iter();
        mounts.try_for_each(|(source, target)| sys::show_at(source, target))
    }
}

impl FolderLock {
    /// Takes the lock; others hold it only for as long as a start takes.
    ///
    /// # Errors
    /// Errors of the file system; `NotFound` if its parent folder does not exist, `TimedOut` if others held
    /// it too long.
    fn wait_for(folder: &Path) -> io::Result<Self> {
        let path = members_of(folder);
        let until_ms = boottime_ms().saturating_add(SHARED_MEMORY_TURN_MS_MAX);
        loop {
            let mut options = OpenOptions::new();
            let members = options.create(true).append(true).open(&path)?;
            match flock(&members, FlockOperation::NonBlockingLockExclusive) {
                // The previous holder may have been the last user, and removed it.
                Ok(()) if is_at(&members, &path)? => return Ok(Self { members }),
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if boottime_ms() >= until_ms {
                let text = format!("{} stayed locked", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::park_timeout(TURN_PAUSE);
        }
    }

    /// Records a main process that was just started. If that fails, kills and reaps it, since no other
    /// process knows of it yet.
    fn admit(&mut self, pid: i32) -> io::Result<()> {
        // A process that has ended by now needs no record.
        let Some(process) = ProcessIdentity::of(pid) else {
            return Ok(());
        };
        self.add(process).inspect_err(|_| {
            kill_pid(pid);
            let main = Pid::from_raw(pid);
            while matches!(waitpid(main, WaitOptions::empty()), Err(Errno::INTR)) {}
        })
    }

    /// Each record begins a line: a record truncated by a full disk damages no later one.
    fn add(&mut self, process: ProcessIdentity) -> io::Result<()> {
        let mut line = vec![b'\n'];
        line.extend(serde_json::to_vec(&process)?);
        self.members.write_all(&line)
    }
}

/// Whether an open file is the one at this path now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(now) => Ok((now.dev(), now.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// IPC namespace of the attempt's other tasks on this host; `None` if none of them is alive.
fn namespace_of_others(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let text = match fs::read_to_string(members_of(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    // Malformed lines are records truncated by a full file system.
    let members = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    for member in members {
        if let Some(namespace) = namespace_of(member)? {
            return Ok(Some(namespace));
        }
    }
    Ok(None)
}

/// IPC namespace of a process; `None` if it has ended.
fn namespace_of(process: ProcessIdentity) -> io::Result<Option<OwnedFd>> {
    // The id may have been reused by a process that may not be inspected.
    if !process.is_alive() {
        return Ok(None);
    }
    let namespace = match File::open(format!("/proc/{}/ns/ipc", process.pid)) {
        Err(error) if has_ended(&error) => return Ok(None),
        namespace => namespace?,
    };
    // The id is not reused while the process is alive.
    Ok(process.is_alive().then(|| namespace.into()))
}

/// Whether the error of `/proc` means that the process does not exist.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Path of the file next to a folder that lists the processes in its namespace.
fn members_of(folder: &Path) -> PathBuf {
    beside(folder, MEMBERS)
}

/// A path with a suffix appended to its name.
fn beside(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn text(path: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(path.as_ref().as_bytes())?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// Tasks of one attempt that begin and end at the same time.
    const TASKS: usize = 8;
    /// Repetitions per task.
    const ROUNDS: usize = 100;

    fn place(home: &Path) -> SharedMemoryLocation {
        SharedMemoryLocation {
            folder: home.join("shared/7-0-1"),
            visible: None,
        }
    }

    /// Removes leftovers until none is left: a process that another test forks holds the locks until it
    /// executes its program.
    fn swept(parent: &Path) -> bool {
        let until_ms = boottime_ms() + 10_000;
        loop {
            sweep(parent).unwrap();
            if names_in(parent).unwrap().is_empty() {
                return true;
            }
            if boottime_ms() >= until_ms {
                return false;
            }
            thread::park_timeout(TURN_PAUSE);
        }
    }

    #[test]
    fn a_folder_in_use_is_never_removed_by_others_that_come_and_go() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path());
        let task = |index: usize| {
            let marker = place.folder.join(format!("marker-{index}"));
            for _ in 0..ROUNDS {
                let memory = SharedMemory::prepare(&place).unwrap();
                fs::write(&marker, "mine").unwrap();
                remove_unless_used(&place.folder).unwrap();
                assert!(marker.exists(), "the folder was removed while it was used");
                thread::yield_now();
                fs::remove_file(&marker).unwrap();
                memory.close().unwrap();
            }
        };
        thread::scope(|scope| {
            for index in 0..TASKS {
                scope.spawn(move || task(index));
            }
        });
        assert!(swept(&home.path().join("shared")));
    }

    #[test]
    fn a_process_that_cannot_be_recorded_does_not_continue() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("members");
        fs::write(&path, "").unwrap();
        // A read-only file rejects a record, like a full file system.
        let mut turn = FolderLock {
            members: File::open(&path).unwrap(),
        };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().cast_signed();
        let process = ProcessIdentity::of(pid).unwrap();
        assert!(turn.admit(pid).is_err());
        assert_ne!(ProcessIdentity::of(pid), Some(process), "it was reaped");
        // It was reaped by another caller, so there is nothing to wait for.
        assert!(child.wait().is_err());
    }

    #[test]
    fn a_torn_record_leaves_the_others_readable() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path());
        let memory = SharedMemory::prepare(&place).unwrap();
        let mut turn = FolderLock::wait_for(&place.folder).unwrap();
        turn.members.write_all(b"\n{\"pid\":1,\"start").unwrap();
        let me = ProcessIdentity::of(getpid().as_raw_nonzero().get()).unwrap();
        turn.add(me).unwrap();
        assert!(namespace_of_others(&place.folder).unwrap().is_some());
        drop(turn);
        memory.close().unwrap();
        assert!(swept(&home.path().join("shared")));
    }

    #[test]
    fn waiting_for_a_turn_is_bounded() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path());
        let memory = SharedMemory::prepare(&place).unwrap();
        let turn = FolderLock::wait_for(&place.folder).unwrap();
        let error = remove_unless_used(&place.folder).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(turn);
        memory.close().unwrap();
        assert!(swept(&home.path().join("shared")));
    }

    #[test]
    fn remains_of_interrupted_removals_are_swept_without_creating_folders() {
        let home = tempfile::tempdir().unwrap();
        let parent = home.path().join("shared");
        remove_unless_used(&parent.join("7-0-1")).unwrap();
        sweep(&parent).unwrap();
        assert!(!parent.exists());
        let used = SharedMemory::prepare(&place(home.path())).unwrap();
        fs::create_dir_all(parent.join("8-0-1.gone-4711/deep")).unwrap();
        fs::create_dir_all(parent.join("7-0-1.gone-4712")).unwrap();
        fs::create_dir(parent.join("9-0-1")).unwrap();
        fs::write(parent.join("6-0-1.members"), "").unwrap();
        sweep(&parent).unwrap();
        let names: BTreeSet<String> = names_in(&parent).unwrap().into_iter().collect();
        assert_eq!(names, ["7-0-1", "7-0-1.members"].map(str::to_owned).into());
        used.close().unwrap();
        assert!(swept(&parent));
    }

    #[test]
    fn a_command_has_the_namespace_of_a_main_process_that_lives_or_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path());
        let me = ProcessIdentity::of(getpid().as_raw_nonzero().get()).unwrap();
        assert!(Entry::beside(&place, Some(me)).unwrap().ipc.is_some());
        let later = ProcessIdentity {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        for gone in [Some(later), None] {
            let error = Entry::beside(&place, gone).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
