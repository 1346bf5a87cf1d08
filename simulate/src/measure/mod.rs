//! Measurements of a running simulation: a record per job, integrals over time, averages per time slice.
//!
//! All sums are of integers, so the result does not depend on where they are computed.

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
