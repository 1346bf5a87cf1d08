//! Denies devices to the processes of a version 2 cgroup by a small BPF program that the kernel runs on each
//! open. Version 1 has a file for it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::isolation::bpf::{self, BpfInstruction};
use crate::isolation::cgroup::DeviceNumber;

/// Maximum number of devices denied to one cgroup: the range of the program's jumps.
pub(super) const DEVICES_DENIED_MAX: usize = 4_096;
/// Offsets in the program's input (`bpf_cgroup_dev_ctx`): kind of access and device, and the device's
/// numbers.
const KIND_AT: i16 = 0;
const MAJOR_AT: i16 = 4;
const MINOR_AT: i16 = 8;
/// Bits of the kind that hold the device type, and their value for a character device (`BPF_DEVCG_DEV_CHAR`).
const DEVICE_BITS: i32 = 0xffff;
const CHARACTER: i32 = 2;
/// Results of the program.
const NO: i32 = 0;
const YES: i32 = 1;
/// Registers: the result, the input, and the value loaded from it.
const ANSWER: u8 = 0;
const QUESTION: u8 = 1;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;
/// Instructions for each device.
const STEPS_PER_DEVICE: i16 = 4;

/// Denies these character devices to all processes of a cgroup, in addition to programs attached earlier.
///
/// # Errors
/// Errors of the kernel: no support for such programs, or missing permission.
pub(super) fn deny(cgroup: &Path, denied: &[DeviceNumber]) -> io::Result<()> {
    if denied.len() > DEVICES_DENIED_MAX {
        let text = format!("more than {DEVICES_DENIED_MAX} devices");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let loaded = bpf::load_device_program(&program(denied))?;
    bpf::attach_device_program(File::open(cgroup)?.as_fd(), loaded.as_fd())
}

/// Whether the kernel lets this process load such a program.
pub(super) fn is_available() -> bool {
    bpf::load_device_program(&program(&[])).is_ok()
}

fn program(denied: &[DeviceNumber]) -> Vec<BpfInstruction> {
    let count = i16::try_from(denied.len()).unwrap_or(i16::MAX / STEPS_PER_DEVICE);
    let mut program = vec![
        BpfInstruction::load_word(KIND, QUESTION, KIND_AT),
        BpfInstruction::load_word(MAJOR, QUESTION, MAJOR_AT),
        BpfInstruction::load_word(MINOR, QUESTION, MINOR_AT),
        BpfInstruction::and(KIND, DEVICE_BITS),
        BpfInstruction::jump_unless_equal(KIND, CHARACTER, count * STEPS_PER_DEVICE),
    ];
    for DeviceNumber { major, minor } in denied {
        program.extend([
            BpfInstruction::jump_unless_equal(MAJOR, major.cast_signed(), 3),
            BpfInstruction::jump_unless_equal(MINOR, minor.cast_signed(), 2),
            BpfInstruction::set(ANSWER, NO),
            BpfInstruction::EXIT,
        ]);
    }
    program.extend([BpfInstruction::set(ANSWER, YES), BpfInstruction::EXIT]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_jump_ends_within_the_program() {
        let devices: Vec<DeviceNumber> = (0..3)
            .map(|minor| DeviceNumber { major: 195, minor })
            .collect();
        let program = program(&devices);
        assert_eq!(program.len(), 5 + 3 * 4 + 2);
        // A device of another type jumps past all comparisons to the end.
        assert_eq!(program[4].jumps_by(), 12);
    }
}
