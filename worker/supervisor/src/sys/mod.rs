//! System calls that need unsafe code: the setup around `fork` and `exec`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::task::child::ChildSetup;
use crate::task::start::Image;

/// Kernel modes for memory that is preferably allocated on given nodes: several of them, and a single one
/// (kernels before 5.15).
const PREFERRED: [libc::c_int; 2] = [5, 1];

/// Stack size of a child that runs in its parent's memory until it executes a program: it only makes system
/// calls.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// Shared by all children of this process, which are started one at a time.
static CHILD_STACK: Mutex<Vec<u128>> = Mutex::new(Vec::new());

/// Number of signals in the kernel.
const SIGNALS: libc::c_int = 64;

/// Makes a command run its setup before its first instruction.
pub(crate) fn set_up_in_child(command: &mut Command, setup: ChildSetup) {
    // SAFETY: `enter` makes system calls and allocates nothing, so it is sound in the child of a process
    // whose other threads may hold locks.
    unsafe {
        command.pre_exec(move || setup.enter());
    }
}

/// Makes a command start in a directory, after its setup: the standard library would enter it first, with the
/// rights and the mounts of this process.
pub(crate) fn begin_in(command: &mut Command, directory: CString) {
    let go = move || Ok(rustix::process::chdir(&directory)?);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(go);
    }
}

/// A child that is about to execute a program.
struct PendingChild<'task> {
    image: &'task Image<'task>,
    arguments: Vec<*const libc::c_char>,
    shell_arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// Error number, if executing failed.
    error: AtomicI32,
}

/// Starts a program in a child that shares this process's memory until then, while this process is suspended.
/// Returns its process id and a descriptor that is readable once it has ended.
///
/// # Errors
/// Errors of the kernel, including those in the child, which does not exist then.
pub(crate) fn start_in_own_memory(image: &Image<'_>) -> io::Result<(i32, OwnedFd)> {
    let child = PendingChild {
        image,
        arguments: pointers(&image.arguments),
        shell_arguments: pointers(&image.shell_arguments),
        environment: pointers(&image.environment),
        error: AtomicI32::new(0),
    };
    // It is never freed: the C library trims its heap when a block of this size is returned.
    let mut stack = CHILD_STACK.lock().unwrap_or_else(PoisonError::into_inner);
    stack.reserve_exact(CHILD_STACK_BYTES / size_of::<u128>());
    let mut ended: libc::c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, whose upper end is aligned, and only makes system calls:
    // no signal handler can run in it, as this program has none except for its own crashes. The shared data
    // lives until this call returns, which it does when the child has other memory or is gone. The kernel
    // writes the file's number.
    let pid = unsafe {
        let end = stack.as_mut_ptr().add(stack.capacity()).cast();
        let child = (&raw const child).cast_mut().cast();
        libc::clone(child_main, end, flags, child, &raw mut ended)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process.
    let ended = unsafe { OwnedFd::from_raw_fd(ended) };
    match child.error.load(Ordering::Relaxed) {
        0 => Ok((pid, ended)),
        error => {
            // It has ended: this only reaps it.
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Null-terminated pointer array, valid as long as the texts live.
fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([std::ptr::null()]).collect()
}

extern "C" fn child_main(child: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent created it, keeps it, and does not touch it before this process has other memory or
    // is gone.
    let child = unsafe { &*child.cast::<PendingChild<'_>>() };
    let Err(error) = child.become_program();
    child.error.store(
        error.raw_os_error().unwrap_or(libc::EPIPE),
        Ordering::Relaxed,
    );
    libc::EXIT_FAILURE
}

impl PendingChild<'_> {
    /// Returns only on an error of the kernel.
    fn become_program(&self) -> io::Result<std::convert::Infallible> {
        let image = self.image;
        for (file, number) in image.files.iter().zip(libc::STDIN_FILENO..) {
            // SAFETY: the file is open, and nothing in this process owns the standard files.
            done(unsafe { libc::dup2(file.as_raw_fd(), number) })?;
        }
        let none = signal_set(std::iter::empty())?;
        // SAFETY: the set was made above, and the previous one is not requested.
        done(unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
        })?;
        image.setup.enter()?;
        // Only now is everything where the task sees it. SAFETY: the text is alive and terminated.
        done(unsafe { libc::chdir(image.directory.as_ptr()) })?;
        let environment = self.environment.as_ptr();
        // SAFETY: the texts are alive and terminated, and so are their lists.
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

/// Resets every signal to its default action.
pub(crate) fn default_signals() {
    // The kernel's `sigaction` of four words; the C library's refuses the library's own signals.
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: the kernel reads the four words and writes nothing. It refuses the two signals that cannot
        // be ignored.
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

/// Makes this process prefer memory of these nodes, given as a bit mask.
///
/// # Errors
/// Errors of the kernel; a kernel without NUMA support has only one node.
pub(crate) fn prefer_memory(nodes: &[libc::c_ulong]) -> io::Result<()> {
    // The kernel expects one more than the number of bits.
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

/// Moves this process into a new IPC namespace, with private segments, queues and semaphores.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn make_ipc_namespace() -> io::Result<()> {
    // SAFETY: nothing in this process refers to objects of the previous namespace.
    done(unsafe { libc::unshare(libc::CLONE_NEWIPC) })
}

/// Moves this process into an IPC namespace.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn join_ipc_namespace(namespace: &OwnedFd) -> io::Result<()> {
    // SAFETY: as above; the file is open.
    done(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWIPC) })
}

/// Moves this process into a copy of its mount namespace: later mounts of the host appear in it, and nothing
/// propagates back.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn make_mount_namespace() -> io::Result<()> {
    // SAFETY: the process has its own root and working directory, which it shares with no other.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", libc::MS_REC | libc::MS_SLAVE)
}

/// Bind-mounts a folder, with the mounts in it, at another path.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn show_at(source: &CStr, target: &CStr) -> io::Result<()> {
    mount(source, target, libc::MS_BIND | libc::MS_REC)
}

fn mount(source: &CStr, target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let (kind, options) = (std::ptr::null(), std::ptr::null());
    // SAFETY: the texts are alive and terminated; these flags require no type and no options.
    done(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, options) })
}

/// Makes a command's standard input the controlling terminal of its session, which must be its own by then.
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

/// Closes every inherited file except the standard ones: a supervisor lives long, and must not keep a lock or
/// pipe of the agent's starter open. Call it before anything is opened.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn close_inherited_files() -> io::Result<()> {
    // SAFETY: nothing was opened yet, so no open file has an owner in this process.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Forks. `None` in the child, which has all of the parent's memory but only the calling thread.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller, the server, has no other threads, so none can hold a lock that the child lacks.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allocates zeroed numbers that this process shares with its forked children, for as long as any of them
/// lives.
///
/// # Errors
/// Errors of the kernel.
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
    // SAFETY: the mapping has that many bytes, is page-aligned, zeroed and never unmapped; all access is
    // atomic.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), count) })
}

/// Makes files this process's standard input, if one is given, and standard error.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn become_standard_files(
    input: Option<BorrowedFd<'_>>,
    errors: BorrowedFd<'_>,
) -> io::Result<()> {
    let input = input.map(|input| (input, libc::STDIN_FILENO));
    for (file, number) in input.into_iter().chain([(errors, libc::STDERR_FILENO)]) {
        // SAFETY: both are open, and nothing owns the standard files.
        if unsafe { libc::dup2(file.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Blocks signals: they are read from the returned descriptor instead of being delivered.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn take_signals(signals: impl Iterator<Item = i32>) -> io::Result<OwnedFd> {
    let set = signal_set(signals)?;
    // SAFETY: the set was made above, and the previous one is not requested.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the set was made above.
    let file =
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn signal_set(signals: impl Iterator<Item = i32>) -> io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call initializes the set.
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

/// The next of the blocked signals; `None` if none is pending.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn next_signal(signals: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(signals, &mut info) {
        Ok(_) => {
            let [a, b, c, d, ..] = info;
            Ok(Some(u32::from_ne_bytes([a, b, c, d]).cast_signed()))
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Ends this process by a signal, without a core dump, which would be of the wrong process. Returns if the
/// signal is not fatal.
pub(crate) fn end_by_signal(signal: i32) {
    let no_dump = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let Ok(none) = signal_set(std::iter::empty()) else {
        return;
    };
    // SAFETY: the handler is the default one, both structures were made above, and this process is about to
    // end.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_dump);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::raise(signal);
    }
}
