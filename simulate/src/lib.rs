//! Muster's simulator: months of a real trace in seconds of virtual time, with every decision made by the
//! real planner and applied by the real `apply`.
//!
//! Nothing here decides placement. The simulator plays the environment: users who submit, tasks that end,
//! hosts that fail, and the clock. One thread; the same input gives the same report, to the byte.
//!
//! Start reading at [`Scenario`], then [`trace`] (input), [`simulate`] (events) and [`report`] (output).
#![forbid(unsafe_code)]

mod fault;
pub mod fork;
mod measure;
mod policy;
pub mod report;
mod rules;
pub mod scenario;
pub mod trace;
mod workload;
mod world;

pub use fault::HealthFeatures;
pub use measure::{JobEnd, JobRecord, SizeBucket};
pub use policy::{Policy, UnknownPolicy};
pub use rules::{JobInformation, Rules, TimeLimits};
pub use workload::{LOAD_MAX, LOAD_MIN, LeftOut, Scenario, Settings};
pub use world::{HealthCounts, HealthyOutByCause, Outcome, Progress, SimulateError, simulate};
