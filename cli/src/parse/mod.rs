//! Parsers of texts that occur only in flags: assignments, instants, replicas. Those that also occur in files
//! are in `muster_job_file::human`.

mod assignment;
mod instant;
mod replica;

pub(crate) use assignment::assignment;
pub(crate) use instant::{coming, instant};
pub(crate) use muster_job_file::human::{
    CpuCount, HumanDuration, HumanSignal, HumanSize, TaskList, compress, cpu_count, duration,
    expand, expand_all, format_duration, format_mib, signal, size, task_list,
};
pub(crate) use replica::{replica, replica_or_id};
