//! The system's user database (files, LDAP and others), accessible only through the C library.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Initial and maximum buffer size of an entry.
const ENTRY_BYTES: [usize; 2] = [4 << 10, 1 << 20];
/// Initial and maximum number of an account's groups: the maximum of the kernel.
const GROUPS: [usize; 2] = [64, 65_536];

/// Entry of an account in the database.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
}

/// Looks up an account; `None` if no account has this name. May query another machine.
///
/// # Errors
/// Errors of the database.
pub(crate) fn entry(name: &CStr) -> io::Result<Option<Entry>> {
    let [mut bytes, bytes_max] = ENTRY_BYTES;
    loop {
        let mut buffer = vec![0; bytes];
        let mut record = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name is terminated, and the library writes within the given buffer and the two other
        // variables.
        let outcome = unsafe {
            let (text, length) = (buffer.as_mut_ptr(), buffer.len());
            libc::getpwnam_r(
                name.as_ptr(),
                record.as_mut_ptr(),
                text,
                length,
                &raw mut found,
            )
        };
        match outcome {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: it was found, so the library has filled it; its texts are in the buffer and
                // terminated.
                return Ok(Some(unsafe { copied(&record.assume_init()) }));
            }
            // Returned by some sources of the database for an unknown name.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::ERANGE if bytes < bytes_max => bytes *= 4,
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// # Safety
/// Its texts are there.
unsafe fn copied(record: &libc::passwd) -> Entry {
    // SAFETY: guaranteed by the caller.
    let [home, shell] = [record.pw_dir, record.pw_shell].map(|text| unsafe { path(text) });
    Entry {
        uid: record.pw_uid,
        gid: record.pw_gid,
        home,
        shell,
    }
}

/// # Safety
/// The text is there, or it is null.
unsafe fn path(text: *const libc::c_char) -> PathBuf {
    if text.is_null() {
        return PathBuf::new();
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

/// All groups of an account with the primary group `gid`, including that one.
///
/// # Errors
/// More groups than the kernel allows.
pub(crate) fn groups(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let [mut room, room_max] = GROUPS;
    loop {
        let mut groups: Vec<libc::gid_t> = vec![0; room];
        let mut count = libc::c_int::try_from(room).unwrap_or(libc::c_int::MAX);
        // SAFETY: the name is terminated, and the library writes no more numbers than the given capacity.
        let outcome =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if outcome >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or_default());
            return Ok(groups);
        }
        if room >= room_max {
            let message = format!("more than {room_max} groups");
            return Err(io::Error::other(message));
        }
        room *= 4;
    }
}

/// Sets the user of this thread's file accesses, without letting other users send it signals; returns the
/// previous one. Check success with a second call, which returns the current one.
pub(crate) fn set_user_of_files(uid: u32) -> u32 {
    // SAFETY: it changes only this thread's rights.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// Like [`set_user_of_files`], for the group.
pub(crate) fn set_group_of_files(gid: u32) -> u32 {
    // SAFETY: as above.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}
