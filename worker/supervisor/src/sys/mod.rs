//! The one place with unsafe code: what must happen around `fork` and `exec`.

pub(crate) mod user_database;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::child::ChildSetup;
use crate::start::Image;

/// The kernel's numbers for memory that comes from certain nodes as long as they have some: from several, and from one
/// (kernels before 5.15).
const PREFERRED: [libc::c_int; 2] = [5, 1];

/// Bytes of the stack that a child has in its parent's memory until it becomes a program: it only makes system calls.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// One for all children of this process, which come one at a time.
static CHILD_STACK: Mutex<Vec<u128>> = Mutex::new(Vec::new());

/// Signals that the kernel knows.
const SIGNALS: libc::c_int = 64;

/// Makes a command set itself up before its first instruction.
pub(crate) fn set_up_in_child(command: &mut Command, setup: ChildSetup) {
    // SAFETY: `enter` makes system calls and allocates nothing, so it is sound in the child of a process whose other
    // threads may hold locks.
    unsafe {
        command.pre_exec(move || setup.enter());
    }
}

/// Makes a command begin in a directory, after what was set up before: the standard library itself goes there first of all,
/// with the rights and the mounts of this process.
pub(crate) fn begin_in(command: &mut Command, directory: CString) {
    let go = move || Ok(rustix::process::chdir(&directory)?);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(go);
    }
}

/// A child that is to become a program.
struct Birth<'task> {
    image: &'task Image<'task>,
    arguments: Vec<*const libc::c_char>,
    shell_arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// What the kernel said, if it has not become one.
    error: AtomicI32,
}

/// Starts a program in a child that has this process's memory until then, while this process stands still. Gives its number
/// and what is readable once it has ended.
///
/// # Errors
/// What the kernel says, to the child as well: then there is none.
pub(crate) fn start_in_own_memory(image: &Image<'_>) -> io::Result<(i32, OwnedFd)> {
    let birth = Birth {
        image,
        arguments: pointers(&image.arguments),
        shell_arguments: pointers(&image.shell_arguments),
        environment: pointers(&image.environment),
        error: AtomicI32::new(0),
    };
    // It stays: the C library tidies up all of its memory when so much is given back.
    let mut stack = CHILD_STACK.lock().unwrap_or_else(PoisonError::into_inner);
    stack.reserve_exact(CHILD_STACK_BYTES / size_of::<u128>());
    let mut ended: libc::c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, whose upper end is aligned, and makes system calls alone: no handler of a
    // signal can run in it, as this program has none but for its own crashes. What both see lives until this call returns,
    // which it does when the child has other memory or is gone. The kernel writes the file's number.
    let pid = unsafe {
        let end = stack.as_mut_ptr().add(stack.capacity()).cast();
        let birth = (&raw const birth).cast_mut().cast();
        libc::clone(be_born, end, flags, birth, &raw mut ended)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us.
    let ended = unsafe { OwnedFd::from_raw_fd(ended) };
    match birth.error.load(Ordering::Relaxed) {
        0 => Ok((pid, ended)),
        error => {
            // It has ended: this only collects it.
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// The texts as the kernel takes them, for as long as they live.
fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([std::ptr::null()]).collect()
}

extern "C" fn be_born(birth: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent has made it, keeps it, and does not touch it before this process has other memory or is gone.
    let birth = unsafe { &*birth.cast::<Birth<'_>>() };
    let Err(error) = birth.become_program();
    birth.error.store(
        error.raw_os_error().unwrap_or(libc::EPIPE),
        Ordering::Relaxed,
    );
    libc::EXIT_FAILURE
}

impl Birth<'_> {
    /// Returns only if the kernel refuses something.
    fn become_program(&self) -> io::Result<std::convert::Infallible> {
        let image = self.image;
        for (file, number) in image.files.iter().zip(libc::STDIN_FILENO..) {
            // SAFETY: the file is open, and nobody in this process owns the standard files.
            done(unsafe { libc::dup2(file.as_raw_fd(), number) })?;
        }
        let none = signal_set(std::iter::empty())?;
        // SAFETY: the set was made above, and nobody wants the earlier one.
        done(unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
        })?;
        image.setup.enter()?;
        // Only now is everything where the task sees it. SAFETY: the text lives and has an end.
        done(unsafe { libc::chdir(image.directory.as_ptr()) })?;
        let environment = self.environment.as_ptr();
        // SAFETY: the texts live and have ends, and so do the lists of them.
        unsafe { libc::execve(image.path.as_ptr(), self.arguments.as_ptr(), environment) };
        let refused = io::Error::last_os_error();
        if refused.raw_os_error() == Some(libc::ENOEXEC) {
            let arguments = self.shell_arguments.as_ptr();
            // SAFETY: as above.
            unsafe { libc::execve(image.shell.as_ptr(), arguments, environment) };
        }
        Err(refused)
    }
}

fn done(outcome: libc::c_int) -> io::Result<()> {
    match outcome {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes every signal do what it does by itself.
pub(crate) fn default_signals() {
    // The kernel's `sigaction` of four words; the C library's does not let its own signals be set.
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: the kernel reads the four words and writes nothing. It refuses the two signals that cannot be ignored.
        unsafe {
            let old = std::ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                old,
                size_of::<u64>(),
            );
        }
    }
}

/// Makes memory of this process come from these nodes, bits of a mask, as long as they have some.
///
/// # Errors
/// What the kernel says; one that knows no nodes has only one.
pub(crate) fn prefer_memory(nodes: &[libc::c_ulong]) -> io::Result<()> {
    // The kernel counts one more than there are.
    let bits = nodes.len() * libc::c_ulong::BITS as usize + 1;
    for policy in PREFERRED {
        // SAFETY: the kernel reads as many bits as the mask has.
        let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, nodes.as_ptr(), bits) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINVAL) => {}
            Some(libc::ENOSYS) => return Ok(()),
            _ => return Err(error),
        }
    }
    Err(io::ErrorKind::InvalidInput.into())
}

/// Moves this process into a new IPC namespace: segments, queues and semaphores that nobody outside of it has.
///
/// # Errors
/// What the kernel says.
pub(crate) fn make_ipc_namespace() -> io::Result<()> {
    // SAFETY: nothing in this process refers to what it had in the namespace before.
    done(unsafe { libc::unshare(libc::CLONE_NEWIPC) })
}

/// Moves this process into an IPC namespace.
///
/// # Errors
/// What the kernel says.
pub(crate) fn join_ipc_namespace(namespace: &OwnedFd) -> io::Result<()> {
    // SAFETY: as above; the file is open.
    done(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWIPC) })
}

/// Moves this process into a copy of its mounts: what the host mounts later appears in it, and nothing goes back.
///
/// # Errors
/// What the kernel says.
pub(crate) fn make_mount_namespace() -> io::Result<()> {
    // SAFETY: the process has its own root and working directory, as nobody shares them with it.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", libc::MS_REC | libc::MS_SLAVE)
}

/// Shows a folder, and what is shown in it, at another path.
///
/// # Errors
/// What the kernel says.
pub(crate) fn show_at(source: &CStr, target: &CStr) -> io::Result<()> {
    mount(source, target, libc::MS_BIND | libc::MS_REC)
}

fn mount(source: &CStr, target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let (kind, options) = (std::ptr::null(), std::ptr::null());
    // SAFETY: the texts live and have ends; no kind and no options are asked for by these flags.
    done(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, options) })
}

/// Makes a command's standard input the terminal that controls its session, which must be its own by then.
pub(crate) fn with_controlling_terminal(command: &mut Command) {
    let prepare = || {
        // SAFETY: the child has a standard input, and keeps it.
        let terminal = unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) };
        Ok(rustix::process::ioctl_tiocsctty(terminal)?)
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Closes every file that this process inherited beside its standard ones: a supervisor lives long, and a
/// lock or pipe of whoever started its agent must not live as long. Call it before anything is opened.
///
/// # Errors
/// What the kernel says.
pub(crate) fn close_inherited_files() -> io::Result<()> {
    // SAFETY: nothing was opened yet, so no open file has an owner in this process.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Forks. `None` in the child, which has all of the parent's memory but only the thread that called.
///
/// # Errors
/// What the kernel says.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller, the server, has no other threads, so no lock is held by one that the child lacks.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Numbers, all 0, that this process shares with those that it forks, for as long as any of them lives.
///
/// # Errors
/// What the kernel says.
pub(crate) fn shared_numbers(count: usize) -> io::Result<&'static [AtomicU64]> {
    let bytes = count * size_of::<AtomicU64>();
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has that many bytes, begins at a page, is zeroed and never unmapped; all access is atomic.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), count) })
}

/// Makes files this process's standard input, if there is one for it, and standard error.
///
/// # Errors
/// What the kernel says.
pub(crate) fn become_standard_files(
    input: Option<BorrowedFd<'_>>,
    errors: BorrowedFd<'_>,
) -> io::Result<()> {
    let input = input.map(|input| (input, libc::STDIN_FILENO));
    for (file, number) in input.into_iter().chain([(errors, libc::STDERR_FILENO)]) {
        // SAFETY: both are open, and nobody owns the standard files.
        if unsafe { libc::dup2(file.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes signals over: they are read from the file that comes back, and do nothing else any more.
///
/// # Errors
/// What the kernel says.
pub(crate) fn take_signals(signals: impl Iterator<Item = i32>) -> io::Result<OwnedFd> {
    let set = signal_set(signals)?;
    // SAFETY: the set was made above, and nobody wants the earlier one.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the set was made above.
    let file =
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn signal_set(signals: impl Iterator<Item = i32>) -> io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it makes the set.
    if unsafe { libc::sigemptyset(set.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for signal in signals {
        // SAFETY: the set was made above.
        if unsafe { libc::sigaddset(set.as_mut_ptr(), signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the set was made above.
    Ok(unsafe { set.assume_init() })
}

/// The next of the signals that were taken over; none if none has come.
///
/// # Errors
/// What the kernel says.
pub(crate) fn next_signal(signals: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut told = [0u8; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(signals, &mut told) {
        Ok(_) => {
            let [a, b, c, d, ..] = told;
            Ok(Some(u32::from_ne_bytes([a, b, c, d]).cast_signed()))
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Ends this process by a signal, without a dump of its memory: that is not the one in question. Returns if the signal ends
/// nothing.
pub(crate) fn die_by(signal: i32) {
    let no_dump = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let Ok(none) = signal_set(std::iter::empty()) else {
        return;
    };
    // SAFETY: the handler is no code of ours, both structures were made above, and this process is about to end.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_dump);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::raise(signal);
    }
}
