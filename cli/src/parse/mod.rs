//! Texts that people write: durations, sizes, CPU counts, host lists, assignments, instants, task lists.

mod assignment;
mod cpus;
mod duration;
mod host_list;
mod instant;
mod replica;
mod signal;
mod size;
mod task_list;

pub(crate) use assignment::assignment;
pub(crate) use cpus::{CpuCount, cpu_count};
pub(crate) use duration::{HumanDuration, duration, format_duration};
pub(crate) use host_list::{compress, expand, expand_all};
pub(crate) use instant::{coming, instant};
pub(crate) use replica::{replica, replica_or_id};
pub(crate) use signal::{HumanSignal, signal};
pub(crate) use size::{HumanSize, format_mib, size};
pub(crate) use task_list::{TaskList, task_list};
