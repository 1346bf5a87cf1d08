//! Shared memory that an attempt has for itself on a host: what its tasks leave in it goes with the last of them.
//!
//! Files that a task makes in `/dev/shm` outlive it, and so do segments, queues and semaphores of System V. Nobody can tell
//! afterwards whose they were: all tasks may run as one user, and a file that nobody has open may be another's all the same. So
//! nothing is looked for and removed. The tasks of an attempt on one host have a folder of their own as `/dev/shm`, and an IPC
//! namespace of their own, which the kernel tidies up when the last process in it is gone. They share both, because what is one
//! program to its user (ranks on one host) talks through them.
//!
//! Beside the folder lies a file with the main processes that are in the namespace. Whoever starts one locks that file; whoever
//! uses the folder holds a lock on the folder itself, which ends with its process however that ends.
//!
//! The last one gives the folder another name while it holds both locks, and removes it afterwards: that may take long, and
//! nobody waits for it.

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

use crate::child::ChildSetup;
use crate::clock::boottime_ms;
use crate::files;
use crate::limits::SHARED_MEMORY_TURN_MS_MAX;
use crate::process::{ProcessIdentity, kill_pid};
use crate::spec::SharedMemoryPlace;
use crate::sys;

/// Where programs look for shared memory.
const SHARED_MEMORY: &CStr = c"/dev/shm";
/// Everybody may make files in it, and remove their own, as in `/dev/shm` itself.
const MODE: u32 = 0o1777;
/// What the name of the file beside a folder ends with.
const MEMBERS: &str = ".members";
/// What stands behind the name of a folder that is being removed, before its inode number: no other folder has that.
const GONE: &str = ".gone-";
/// Pause between two looks whether it is our turn.
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// The shared memory of a task that has not ended.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    place: SharedMemoryPlace,
    /// Locked together with the other tasks of the attempt.
    in_use: File,
}

/// What a process does to find its attempt's shared memory: it is moved into namespaces of its own.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The IPC namespace that it joins; a new one if none.
    ipc: Option<OwnedFd>,
    /// What is shown where, in this order.
    mounts: Vec<(CString, CString)>,
}

/// While it lives, nobody else begins or ceases to use the folder.
struct Turn {
    members: File,
}

impl SharedMemory {
    /// Makes the folder, or uses that of the attempt's other tasks.
    ///
    /// # Errors
    /// What the file system says; `TimedOut` if others of the attempt did not let it have its turn.
    pub(crate) fn prepare(place: &SharedMemoryPlace) -> io::Result<Self> {
        if let Some(parent) = place.folder.parent() {
            fs::create_dir_all(parent)?;
        }
        let _turn = Turn::wait_for(&place.folder)?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).create(&place.folder)?;
        fs::set_permissions(&place.folder, Permissions::from_mode(MODE))?;
        if let Some(name) = place.visible.as_deref().and_then(Path::file_name) {
            // Where what must stay visible is shown.
            builder.mode(0o700).create(place.folder.join(name))?;
        }
        let in_use = File::open(&place.folder)?;
        flock(&in_use, FlockOperation::LockShared)?;
        Ok(Self {
            place: place.clone(),
            in_use,
        })
    }

    /// Starts a main process in it: the first one of the attempt has a new namespace, the others join that.
    ///
    /// # Errors
    /// What the file system says, and what `start` does. Nothing runs then that was started.
    pub(crate) fn start<T>(
        &self,
        start: impl FnOnce(Entry) -> Result<T, String>,
        pid_of: impl FnOnce(&T) -> i32,
    ) -> Result<T, String> {
        let during = |error: io::Error| format!("entering its shared memory failed: {error}");
        let mut turn = Turn::wait_for(&self.place.folder).map_err(during)?;
        let started = start(Entry::to(&self.place).map_err(during)?)?;
        turn.admit(pid_of(&started)).map_err(during)?;
        Ok(started)
    }

    /// The task has ended: removes what it left, unless others of the attempt go on.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn close(self) -> io::Result<()> {
        drop(self.in_use);
        remove_unless_used(&self.place.folder)
    }
}

/// Removes the shared memory of an attempt that no supervisor uses any more, and what earlier removals of it left; no error if
/// it is gone.
///
/// # Errors
/// What the file system says; `TimedOut` if others of the attempt did not let it have its turn.
pub fn remove_unless_used(folder: &Path) -> io::Result<()> {
    set_aside_unless_used(folder)?;
    for gone in gone_from(folder)? {
        files::remove_directory(&gone)?;
    }
    Ok(())
}

/// Removes the shared memory of all attempts with their folders in `parent` that no supervisor uses any more.
///
/// # Errors
/// What the file system says of the first one that cannot be removed, after all were tried.
pub fn sweep(parent: &Path) -> io::Result<()> {
    let mut attempts = BTreeSet::new();
    for name in names_in(parent)? {
        let attempt = { name.strip_suffix(MEMBERS) }.or_else(|| Some(name.split_once(GONE)?.0));
        attempts.insert(parent.join(attempt.unwrap_or(&name)));
    }
    let removals = attempts.iter().map(|folder| remove_unless_used(folder));
    removals.fold(Ok(()), io::Result::and)
}

/// Gives the folder of an attempt another name if no supervisor uses it, so that it can be removed without holding up anybody.
fn set_aside_unless_used(folder: &Path) -> io::Result<()> {
    let _turn = match Turn::wait_for(folder) {
        // Nothing was ever made in the folder that it would lie in.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        turn => turn?,
    };
    // Not before it is our turn: by then it may be another folder, which is in use.
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

/// What was given another name of the folder of an attempt and is not removed yet.
fn gone_from(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}{GONE}", name.to_string_lossy());
    let names = names_in(parent)?.into_iter();
    let gone = names.filter(|name| name.starts_with(&prefix));
    Ok(gone.map(|name| parent.join(name)).collect())
}

/// The names in a folder, none if it is not there. Ours are all Unicode.
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

/// Whether this process may give tasks shared memory of their own: it needs the right to make namespaces and to mount.
#[must_use]
pub fn is_possible() -> bool {
    let entry = Entry {
        ipc: None,
        mounts: Vec::new(),
    };
    // There is no such program: whoever comes to look for it was moved before.
    let mut probe = Command::new("/proc/self/none");
    sys::set_up_in_child(&mut probe, ChildSetup::helper(getpid()).entering(entry));
    { probe.spawn() }.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Entry {
    /// The way to the shared memory of a place, for one more of its main processes.
    ///
    /// # Errors
    /// What the file system says.
    fn to(place: &SharedMemoryPlace) -> io::Result<Self> {
        Self::by_way_of(namespace_of_others(&place.folder)?, place)
    }

    /// The way to the shared memory of a task, for a process beside its main process.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if the main process has ended.
    pub(crate) fn beside(
        place: &SharedMemoryPlace,
        main: Option<ProcessIdentity>,
    ) -> io::Result<Self> {
        let ipc = main.map(namespace_of).transpose()?.flatten();
        let ended = || io::Error::new(io::ErrorKind::NotFound, "its main process has ended");
        Self::by_way_of(Some(ipc.ok_or_else(ended)?), place)
    }

    fn by_way_of(ipc: Option<OwnedFd>, place: &SharedMemoryPlace) -> io::Result<Self> {
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
    /// What the kernel says.
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

impl Turn {
    /// Waits until nobody else begins or ceases to use the folder; others hold that only for as long as a start takes.
    ///
    /// # Errors
    /// What the file system says; `NotFound` if there is no folder that it would lie in, `TimedOut` if others took too long.
    fn wait_for(folder: &Path) -> io::Result<Self> {
        let path = members_of(folder);
        let until_ms = boottime_ms().saturating_add(SHARED_MEMORY_TURN_MS_MAX);
        loop {
            let mut options = OpenOptions::new();
            let members = options.create(true).append(true).open(&path)?;
            match flock(&members, FlockOperation::NonBlockingLockExclusive) {
                // Whoever was before us may have been the last one, and removed it.
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

    /// Puts a main process on record that was just started. It is killed and collected if that fails: nobody knows of it yet.
    fn admit(&mut self, pid: i32) -> io::Result<()> {
        // One that has ended by now is joined by nobody.
        let Some(process) = ProcessIdentity::of(pid) else {
            return Ok(());
        };
        self.add(process).inspect_err(|_| {
            kill_pid(pid);
            let main = Pid::from_raw(pid);
            while matches!(waitpid(main, WaitOptions::empty()), Err(Errno::INTR)) {}
        })
    }

    /// Each record begins a line: what is left of one for which there was no room spoils none that follows.
    fn add(&mut self, process: ProcessIdentity) -> io::Result<()> {
        let mut line = vec![b'\n'];
        line.extend(serde_json::to_vec(&process)?);
        self.members.write_all(&line)
    }
}

/// Whether a file is the one that has this path now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(now) => Ok((now.dev(), now.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The IPC namespace that the attempt's other tasks on this host have; none if none of them lives.
fn namespace_of_others(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let text = match fs::read_to_string(members_of(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    // What is no record was torn by a full file system.
    let members = { text.lines() }.filter_map(|line| serde_json::from_str(line).ok());
    for member in members {
        if let Some(namespace) = namespace_of(member)? {
            return Ok(Some(namespace));
        }
    }
    Ok(None)
}

/// The IPC namespace of a process; none if that has ended.
fn namespace_of(process: ProcessIdentity) -> io::Result<Option<OwnedFd>> {
    // Another's that has its number now may be none that we may look at.
    if !process.is_alive() {
        return Ok(None);
    }
    let namespace = match File::open(format!("/proc/{}/ns/ipc", process.pid)) {
        Err(error) if has_ended(&error) => return Ok(None),
        namespace => namespace?,
    };
    // Its number is nobody else's as long as it lives.
    Ok(process.is_alive().then(|| namespace.into()))
}

/// Whether `/proc` says that there is no such process.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// The file beside a folder that tells who is in its namespace.
fn members_of(folder: &Path) -> PathBuf {
    beside(folder, MEMBERS)
}

/// A path with something behind its name.
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
    /// How often each does.
    const ROUNDS: usize = 100;

    fn place(home: &Path) -> SharedMemoryPlace {
        SharedMemoryPlace {
            folder: home.join("shared/7-0-1"),
            visible: None,
        }
    }

    /// Removes what is left, until nothing is: a process that another test starts holds our locks until it is a program.
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
    fn a_process_that_cannot_be_put_on_record_does_not_go_on() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("members");
        fs::write(&path, "").unwrap();
        // What is only open to be read takes no record, as a full file system does not.
        let mut turn = Turn {
            members: File::open(&path).unwrap(),
        };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().cast_signed();
        let process = ProcessIdentity::of(pid).unwrap();
        assert!(turn.admit(pid).is_err());
        assert_ne!(ProcessIdentity::of(pid), Some(process), "it was collected");
        // Whoever collected it, it is nobody's to wait for any more.
        assert!(child.wait().is_err());
    }

    #[test]
    fn a_torn_record_spoils_no_other() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path());
        let memory = SharedMemory::prepare(&place).unwrap();
        let mut turn = Turn::wait_for(&place.folder).unwrap();
        turn.members.write_all(b"\n{\"pid\":1,\"start").unwrap();
        let me = ProcessIdentity::of(getpid().as_raw_nonzero().get()).unwrap();
        turn.add(me).unwrap();
        assert!(namespace_of_others(&place.folder).unwrap().is_some());
        drop(turn);
        memory.close().unwrap();
        assert!(swept(&home.path().join("shared")));
    }

    #[test]
    fn nobody_waits_for_a_turn_without_end() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path());
        let memory = SharedMemory::prepare(&place).unwrap();
        let turn = Turn::wait_for(&place.folder).unwrap();
        let error = remove_unless_used(&place.folder).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(turn);
        memory.close().unwrap();
        assert!(swept(&home.path().join("shared")));
    }

    #[test]
    fn what_broken_removals_left_is_swept_and_no_folder_is_made_to_look() {
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
