//! What the agent's tests share.

pub(crate) mod leader;

use std::path::Path;
use std::time::Duration;

use muster_core::desired::{RankInfo, TaskAssignment};
use muster_core::state::RestartReason;
use muster_worker::clock::boottime_ms;
use muster_worker::process::ProcessIdentity;
use muster_worker::supervisor::testing::assignment;

/// The binary that plays `muster`.
pub(crate) const FIXTURE: &str = env!("CARGO_BIN_EXE_muster-worker-fixture");
/// How long anything in these tests may take.
pub(crate) const PATIENCE_MS: u64 = 20_000;
/// Polls a condition until it holds; panics with `what` when patience ends.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = boottime_ms() + PATIENCE_MS;
    while !holds() {
        assert!(boottime_ms() < until, "{what}: not within {PATIENCE_MS} ms");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A task that runs a shell script.
pub(crate) fn script(text: &str) -> TaskAssignment {
    TaskAssignment {
        attempt: 2,
        restart_reason: RestartReason::Infra,
        command: vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()],
        rank: RankInfo {
            world_size: 1,
            nodes: 1,
            ..RankInfo::default()
        },
        ..assignment()
    }
}

/// Kills all that a test has left on a host, so that nothing outlives the test.
pub(crate) fn kill_host(data_directory: &Path) {
    for process in muster_worker::process::of_host(data_directory).unwrap_or_default() {
        process.kill();
    }
}

/// Whether the process in a file of process numbers has ended.
pub(crate) fn is_gone(pid: &str) -> bool {
    ProcessIdentity::of(pid.parse().unwrap()).is_none_or(|process| !process.is_alive())
}
