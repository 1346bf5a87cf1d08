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

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::getpid;

use crate::child::ChildSetup;
use crate::files;
use crate::process::ProcessIdentity;
use crate::spec::SharedMemoryPlace;
use crate::sys;

/// Where programs look for shared memory.
const SHARED_MEMORY: &CStr = c"/dev/shm";
/// Everybody may make files in it, and remove their own, as in `/dev/shm` itself.
const MODE: u32 = 0o1777;

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
    /// What the file system says.
    pub(crate) fn prepare(place: &SharedMemoryPlace) -> io::Result<Self> {
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
    /// What the file system says, and what `start` does.
    pub(crate) fn start<T>(
        &self,
        start: impl FnOnce(Entry) -> Result<T, String>,
        pid_of: impl FnOnce(&T) -> i32,
    ) -> Result<T, String> {
        let during = |error: io::Error| format!("entering its shared memory failed: {error}");
        let mut turn = Turn::wait_for(&self.place.folder).map_err(during)?;
        let started = start(Entry::to(&self.place).map_err(during)?)?;
        // One that has ended by now is joined by nobody.
        if let Some(process) = ProcessIdentity::of(pid_of(&started)) {
            turn.add(process).map_err(during)?;
        }
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

/// Removes the shared memory of an attempt that no supervisor uses any more; no error if it is gone.
///
/// # Errors
/// What the file system says.
pub fn remove_unless_used(folder: &Path) -> io::Result<()> {
    let in_use = match File::open(folder) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let _turn = Turn::wait_for(folder)?;
    match flock(&in_use, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    files::remove_directory(folder)?;
    fs::remove_file(members_of(folder))
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
    /// The way to the shared memory of a place, for one more process.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn to(place: &SharedMemoryPlace) -> io::Result<Self> {
        let mut mounts = Vec::new();
        if let Some(visible) = &place.visible {
            let name = visible.file_name().unwrap_or_default();
            mounts.push((text(visible)?, text(place.folder.join(name))?));
        }
        mounts.push((text(&place.folder)?, SHARED_MEMORY.to_owned()));
        Ok(Self {
            ipc: namespace_of_others(&place.folder)?,
            mounts,
        })
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
    fn wait_for(folder: &Path) -> io::Result<Self> {
        let path = members_of(folder);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        loop {
            let mut options = OpenOptions::new();
            let members = options.create(true).append(true).open(&path)?;
            flock(&members, FlockOperation::LockExclusive)?;
            // Whoever was before us may have been the last one, and removed it.
            let is_there = fs::metadata(&path).is_ok_and(|now| {
                members
                    .metadata()
                    .is_ok_and(|ours| (now.dev(), now.ino()) == (ours.dev(), ours.ino()))
            });
            if is_there {
                return Ok(Self { members });
            }
        }
    }

    fn add(&mut self, process: ProcessIdentity) -> io::Result<()> {
        let mut line = serde_json::to_vec(&process)?;
        line.push(b'\n');
        self.members.write_all(&line)
    }
}

/// The IPC namespace that the attempt's other tasks on this host have; none if none of them lives.
fn namespace_of_others(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let text = match fs::read_to_string(members_of(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let members = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let found = members.filter_map(|member: ProcessIdentity| {
        let namespace = File::open(format!("/proc/{}/ns/ipc", member.pid)).ok()?;
        // Its number is nobody else's as long as it lives.
        member.is_alive().then(|| namespace.into())
    });
    Ok({ found }.next())
}

/// The file beside a folder that tells who is in its namespace.
fn members_of(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".members");
    name.into()
}

fn text(path: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(path.as_ref().as_bytes())?)
}
