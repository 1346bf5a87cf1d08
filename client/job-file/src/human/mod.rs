//! Human-readable values in files and flags: durations, sizes, CPU counts, signals, host lists, task lists.

mod cpus;
mod duration;
mod host_list;
mod signal;
mod size;
mod task_list;

pub use cpus::{CpuCount, cpu_count};
pub use duration::{HumanDuration, duration, format_duration};
pub use host_list::{compress, expand, expand_all};
pub use signal::{HumanSignal, signal};
pub use size::{HumanSize, format_mib, size};
pub use task_list::{TaskList, task_list};
