//! End-to-end tests of the whole product: real processes, real disks, real kills.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod cluster;
mod faults;
mod hosts;
mod jobs;
mod operations;
#[path = "../../../worker/supervisor/tests/supervisor/podman.rs"]
mod podman;
mod soak;
