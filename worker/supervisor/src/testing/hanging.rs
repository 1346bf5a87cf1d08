//! A folder whose files never answer: a process that reads one hangs in the kernel, and no signal ends it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::OFlags;

/// The kernel's minimum buffer size for requests (`FUSE_MIN_READ_BUFFER`).
const REQUEST_BYTES_MIN: usize = 8_192;
/// The kernel's first request (`FUSE_INIT`), and the offsets of the id and the opcode in a request.
const INIT: u32 = 26;
const CODE_AT: usize = 4;
const UNIQUE_AT: usize = 8;
/// Size of the answer to it: a header of 16 and 64 of settings, from version 7.23 of the protocol.
const INIT_ANSWER_BYTES: usize = 80;
const PROTOCOL: (u32, u32) = (7, 31);
/// Pause between two reads of requests.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A file system in user space that takes every request and answers none. On drop, all processes that hang in
/// it get an error and continue.
#[derive(Debug)]
pub struct HangingFolder {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl HangingFolder {
    /// Mounts one over a folder, creating it if needed.
    ///
    /// # Errors
    /// The kernel has no FUSE, or mounting is not permitted.
    pub fn mount(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open("/dev/fuse")?;
        // The kernel resolves the device by its number in the mounting process.
        let mounted = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o"])
            .arg("fd=0,rootmode=40000,user_id=0,group_id=0,allow_other")
            .arg("muster-hanging")
            .arg(path)
            .stdin(Stdio::from(device.try_clone()?))
            .output()?;
        if !mounted.status.success() {
            let complaint = String::from_utf8_lossy(&mounted.stderr);
            return Err(io::Error::other(complaint.trim().to_owned()));
        }
        let ends = Arc::new(AtomicBool::new(false));
        let hangs = Arc::new(AtomicBool::new(false));
        let (should_end, is_hanging) = (Arc::clone(&ends), Arc::clone(&hangs));
        let server = std::thread::Builder::new()
            .name("hanging".to_owned())
            .spawn(move || serve(device, &should_end, &is_hanging))?;
        Ok(Self {
            path: path.to_owned(),
            ends,
            hangs,
            server: Some(server),
        })
    }

    /// Whether a process hangs in it. Only from then on can no signal end the request: a request that was not
    /// read yet can be withdrawn.
    #[must_use]
    pub fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }
}

impl Drop for HangingFolder {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The device closes with the server, which ends every request. A mount that cannot be unmounted now
        // is at least harmless: no process hangs in it any more.
        let _ = self.server.take().map(JoinHandle::join);
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}

/// Reads requests, and answers only the kernel's first one.
fn serve(mut device: File, ends: &AtomicBool, hangs: &AtomicBool) {
    let mut request = vec![0; REQUEST_BYTES_MIN];
    while !ends.load(Ordering::Relaxed) {
        match device.read(&mut request) {
            Ok(bytes) if number(&request[..bytes], CODE_AT) == Some(INIT) => {
                let unique = &request[UNIQUE_AT..UNIQUE_AT + 8];
                if device.write_all(&init_answer(unique)).is_err() {
                    return;
                }
            }
            Ok(_) => hangs.store(true, Ordering::Relaxed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::park_timeout(POLL_INTERVAL);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // It was unmounted.
            Err(_) => return,
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn init_answer(unique: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(INIT_ANSWER_BYTES).unwrap_or(u32::MAX);
    let (major, minor) = PROTOCOL;
    let mut answer = Vec::with_capacity(INIT_ANSWER_BYTES);
    answer.extend(bytes.to_ne_bytes());
    answer.extend(0_u32.to_ne_bytes());
    answer.extend(unique);
    answer.extend(major.to_ne_bytes());
    answer.extend(minor.to_ne_bytes());
    answer.resize(INIT_ANSWER_BYTES, 0);
    answer
}
