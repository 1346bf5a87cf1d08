//! What is counted while a simulation runs: a record a job, integrals over time, averages a slice of time.
//!
//! All sums are of integers, so that they are the same wherever they are made.

mod gantt;
mod hosts;
mod integrals;
mod record;
mod series;

pub(crate) use gantt::{Bar, Gantt};
pub(crate) use hosts::{HeadRequest, Hosts};
pub(crate) use integrals::{Integrals, Moment};
pub use record::{JobEnd, JobRecord, SizeBucket};
pub(crate) use series::Series;
