//! Readers of job traces, clusters, quotas and outages in the common schema: CSV with named columns,
//! compressed with gzip if the name ends in `.gz`. An empty field means that the source does not say.

mod cluster;
mod error;
mod faults;
mod jobs;
mod quotas;
mod table;

pub use cluster::{Cluster, InvalidShape, TraceHost};
pub use error::TraceError;
pub(crate) use faults::hosts_of_nodes;
pub use faults::{Outage, read_outages};
pub use jobs::{Ending, TraceJob, read_jobs};
pub use quotas::{Quota, read_quotas};
