//! Real processes: supervisors and badly behaved tasks.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test should panic"
)]

mod accounts;
mod confinement;
mod container_accounts;
mod container_bodies;
mod container_memory;
mod containers;
mod conversation;
mod exec;
mod fake_engine;
mod fencing;
mod forked;
mod gangs;
mod inside;
mod podman;
mod reuse;
mod shared_memory;
mod support;
mod suspension;
mod tasks;
