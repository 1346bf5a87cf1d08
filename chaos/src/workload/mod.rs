//! Streams of jobs: replayed from a real trace, or drawn from its published distribution.

mod generator;
mod pace;
mod trace;

pub use generator::PhillyGenerator;
pub use pace::Pace;
pub use trace::{TraceError, read_philly};

/// One job of a stream, before it is scaled to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// Name in the trace.
    pub name: String,
    /// Seconds after the trace's first submission.
    pub submit_s: u64,
    /// Seconds that it ran.
    pub duration_s: u64,
    /// Number of tasks.
    pub tasks: u32,
    /// GPUs of each task.
    pub gpus_per_task: u32,
}

impl TraceJob {
    /// GPUs in all.
    #[must_use]
    pub const fn gpus(&self) -> u32 {
        self.tasks * self.gpus_per_task
    }
}
