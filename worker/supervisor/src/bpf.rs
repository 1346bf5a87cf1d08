//! Programs that the kernel asks whether a device may be opened: the system call that loads and attaches them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An instruction of a program for the kernel (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpfInstruction {
    code: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

impl BpfInstruction {
    /// Ends the program.
    pub(crate) const EXIT: Self = Self::of(0x95, 0, 0, 0);

    const fn of(code: u8, registers: u8, offset: i16, number: i32) -> Self {
        Self {
            code,
            registers,
            offset,
            number,
        }
    }

    /// Reads 32 bits at an offset from where a register points.
    pub(crate) const fn load_word(to: u8, from: u8, offset: i16) -> Self {
        Self::of(0x61, to | (from << 4), offset, 0)
    }

    /// Keeps these bits of a register.
    pub(crate) const fn and(register: u8, bits: i32) -> Self {
        Self::of(0x54, register, 0, bits)
    }

    /// Skips so many instructions unless a register holds a number.
    pub(crate) const fn jump_unless_equal(register: u8, number: i32, skipped: i16) -> Self {
        Self::of(0x55, register, skipped, number)
    }

    /// Lets a register hold a number.
    pub(crate) const fn set(register: u8, number: i32) -> Self {
        Self::of(0xb7, register, 0, number)
    }

    /// How many instructions a jump skips.
    #[cfg(test)]
    pub(crate) const fn jumps_by(self) -> i16 {
        self.offset
    }
}

/// Numbers of the kernel's for `bpf`: loading, attaching, a program that is asked about devices, where it is attached, and
/// that others may be attached there too.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// What the kernel is told to load: the beginning of its `union bpf_attr`, up to what is of no use here.
#[repr(C)]
struct LoadOrder {
    kind: u32,
    instructions_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// What the kernel is told to attach where.
#[repr(C)]
struct AttachOrder {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Loads a program that answers whether a device may be opened.
///
/// # Errors
/// What the kernel says: one without such programs, one that does not take them from us, or a program that is wrong.
pub(crate) fn load_device_program(program: &[BpfInstruction]) -> io::Result<OwnedFd> {
    let order = LoadOrder {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        instructions_count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads as many instructions as are said to be there, a text with its end, and the order.
    let loaded = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const order,
            size_of::<LoadOrder>(),
        )
    };
    let loaded = i32::try_from(loaded).unwrap_or(-1);
    if loaded < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(loaded) })
}

/// Lets the kernel ask a loaded program about all devices that processes in a cgroup open.
///
/// # Errors
/// What the kernel says.
pub(crate) fn attach_device_program(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let order = AttachOrder {
        target: cgroup.as_raw_fd().cast_unsigned(),
        program: program.as_raw_fd().cast_unsigned(),
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: the kernel reads the order, which names two open descriptors.
    let attached = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_ATTACH,
            &raw const order,
            size_of::<AttachOrder>(),
        )
    };
    match attached {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
