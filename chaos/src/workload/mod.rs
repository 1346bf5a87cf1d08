//! Streams of jobs: replayed from a real trace, or drawn from its published distribution.

mod generator;
mod pace;

pub use generator::PhillyGenerator;
pub use muster_simulate::trace::{TraceError, TraceJob, read_jobs};
pub use pace::Pace;
