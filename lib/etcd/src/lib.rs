//! Optional etcd integration: discovery of replicas and leader, and a mirror of the current allocations.
//!
//! Nothing depends on it. The replication group has its own log; etcd may be down, partitioned or full for
//! any time, and missed changes are written when it is back ([`Publisher`]). docs/etcd.md describes the
//! keys.
//!
//! - [`Keys`] and [`records`]: the schema.
//! - [`Publisher`]: a replica publishes itself, and as leader the leader's key and the plan's mirror
//!   ([`mirror`]).
//! - [`discover`], [`follow`]: clients and workers find the replicas.
//! - [`gather`]: replicas of a cluster that does not exist yet find each other.
#![forbid(unsafe_code)]

mod backoff;
mod bootstrap;
mod connection;
mod discovery;
mod error;
mod failure_log;
mod keys;
mod lease;
pub mod mirror;
mod publisher;
pub mod records;
mod settings;
mod telemetry;
mod txn;

pub use bootstrap::{BootstrapError, BootstrapOutcome, BootstrapPlan, bootstrap};
pub use connection::Etcd;
pub use discovery::{Discovered, discover, follow};
pub use error::EtcdError;
pub use keys::Keys;
pub use publisher::{Health, Publication, Publisher};
pub use settings::{EtcdSettings, InvalidSetting};
pub use telemetry::describe_metrics;
