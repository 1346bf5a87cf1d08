//! Level 1: a whole cluster in one deterministic thread.
//!
//! The replication layer, the leader loop and the agents are the real ones; time, network, disks, tasks and
//! randomness are simulated from one seed. The same seed gives the same bytes, so a failure is replayed by
//! its seed alone.

pub mod checkers;
pub mod clients;
pub mod clock;
pub mod configuration;
pub mod disk;
pub mod faults;
pub mod host;
pub mod links;
pub mod mutant;
pub mod operator;
pub mod random_streams;
pub mod record;
pub mod replicas;
pub mod results;
pub mod runtime;
pub mod scale;
pub mod script;
pub mod supervisors;
pub mod sweep;
pub mod watchers;
pub mod world;
