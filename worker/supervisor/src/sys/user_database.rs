//! The system's user database, which files, LDAP and others feed: the C library alone knows how to ask it.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes that one entry may take at first, and at most.
const ENTRY_BYTES: [usize; 2] = [4 << 10, 1 << 20];
/// Groups that an account may have at first, and at most: as many as the kernel takes.
const GROUPS: [usize; 2] = [64, 65_536];

/// What the database knows of an account.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
}

/// The entry of an account; none if there is none of this name. It may ask another machine.
///
/// # Errors
/// What the database says.
pub(crate) fn entry(name: &CStr) -> io::Result<Option<Entry>> {
    let [mut bytes, bytes_max] = ENTRY_BYTES;
    loop {
        let mut buffer = vec![0; bytes];
        let mut record = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name has an end, and the library writes within the buffer that it is told of, and the two others.
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
                // SAFETY: it was found, so the library has filled it; its texts lie in the buffer, and have ends.
                return Ok(Some(unsafe { copied(&record.assume_init()) }));
            }
            // What some sources of the database say of a name that they do not have.
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
    // SAFETY: the caller says so.
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
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(text) };
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

/// All groups of an account whose first one is `gid`, with that.
///
/// # Errors
/// Too many for the kernel.
pub(crate) fn groups(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let [mut room, room_max] = GROUPS;
    loop {
        let mut groups: Vec<libc::gid_t> = vec![0; room];
        let mut count = libc::c_int::try_from(room).unwrap_or(libc::c_int::MAX);
        // SAFETY: the name has an end, and the library writes no more numbers than it is told there is room for.
        let outcome =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if outcome >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or_default());
            return Ok(groups);
        }
        if room >= room_max {
            let message = format!("it has more than {room_max} groups");
            return Err(io::Error::other(message));
        }
        room *= 4;
    }
}

/// Makes this thread's accesses to files those of a user, whoever may send it signals; gives whose they were. It is not done
/// if the next call gives another one.
pub(crate) fn set_user_of_files(uid: u32) -> u32 {
    // SAFETY: it changes this thread's rights alone.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// The same of the group.
pub(crate) fn set_group_of_files(gid: u32) -> u32 {
    // SAFETY: as above.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}
