//! Isolation of a task: account, cgroups, devices, memory and secrets.

pub(super) mod account;
#[expect(unsafe_code, reason = "the standard library lacks this system call")]
pub(super) mod bpf;
pub(super) mod cgroup;
pub(super) mod mount_table;
pub(super) mod secret_folder;
pub mod shared_memory;
