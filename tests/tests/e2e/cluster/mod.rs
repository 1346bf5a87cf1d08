//! Replicas, their data, and discovery.

mod backup;
mod clock_changes;
mod dev_cluster;
mod etcd;
mod failover;
mod membership;
mod replica_disk;
mod state_history;
