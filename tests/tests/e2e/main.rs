//! End-to-end tests of the whole product: real processes, real disks, real kills.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod agents;
mod arrays;
mod backup;
mod bad_input;
mod chaos;
mod chaos_target;
mod clock;
mod containers;
mod day;
mod debugging;
mod dev_cluster;
mod etcd;
mod failover;
mod gangs;
mod health;
mod identities;
mod joining;
mod launch;
mod maintenance;
mod membership;
mod newcomer;
mod observability;
mod oidc;
mod output;
mod past;
mod pipelines;
#[path = "../../../worker/supervisor/tests/supervisor/podman.rs"]
mod podman;
mod preemption;
mod queues;
mod replica_disk;
mod retries;
mod security;
mod soak;
mod stops;
mod suspension;
mod systemd;
mod task_interface;
mod tasks;
mod tracing;
mod trials;
mod what_if;
