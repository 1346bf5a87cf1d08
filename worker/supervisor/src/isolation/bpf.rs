//! Loads and attaches BPF programs that decide whether a device may be opened.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A BPF instruction (`struct bpf_insn`).
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

    /// Loads 32 bits at an offset from the address in a register.
    pub(crate) const fn load_word(to: u8, from: u8, offset: i16) -> Self {
        Self::of(0x61, to | (from << 4), offset, 0)
    }

    /// Masks a register with these bits.
    pub(crate) const fn and(register: u8, bits: i32) -> Self {
        Self::of(0x54, register, 0, bits)
    }

    /// Skips `skipped` instructions unless a register equals a number.
    pub(crate) const fn jump_unless_equal(register: u8, number: i32, skipped: i16) -> Self {
        Self::of(0x55, register, skipped, number)
    }

    /// Sets a register to a number.
    pub(crate) const fn set(register: u8, number: i32) -> Self {
        Self::of(0xb7, register, 0, number)
    }

    /// Number of instructions that a jump skips.
    #[cfg(test)]
    pub(crate) const fn jumps_by(self) -> i16 {
        self.offset
    }
}

/// Constants of the `bpf` system call: load, attach, program type for devices, its attach type, and the flag
/// that permits further programs on the same cgroup.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// Arguments of `BPF_PROG_LOAD`: the beginning of the kernel's `union bpf_attr`, up to the last field used
/// here.
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

/// Arguments of `BPF_PROG_ATTACH`.
#[repr(C)]
struct AttachOrder {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Loads a program that decides whether a device may be opened.
///
/// # Errors
/// Errors of the kernel: no support for such programs, missing permission, or an invalid program.
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
    // SAFETY: the kernel reads the given number of instructions, a terminated text, and the arguments.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const order,
            size_of::<LoadOrder>(),
        )
    };
    let descriptor = i32::try_from(answer).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Attaches a loaded program to a cgroup: it decides about all devices that the cgroup's processes open.
///
/// # Errors
/// Errors of the kernel.
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
    // SAFETY: the kernel reads the arguments, which name two open descriptors.
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
