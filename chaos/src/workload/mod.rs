//! Jobs of the tests: streams that are replayed from a real trace or drawn from its published distribution, and a
//! training with a known result.

mod generator;
pub(crate) mod jobs;
mod pace;
pub(crate) mod training;

pub use generator::PhillyGenerator;
pub use muster_simulate::trace::{TraceError, TraceJob, read_jobs};
pub use pace::Pace;
pub use training::ReferenceError;
