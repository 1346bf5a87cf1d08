//! Test support for this crate and for the agent.

mod hanging;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use muster_model::desired::{CheckpointDuties, RankInfo, RestartReason, TaskAssignment};
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey, UnitIndex};
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::Execution;

pub use hanging::HangingFolder;

use crate::lease::clock::boottime_ms;
use crate::process::{self, ProcessIdentity};

/// Timeout of all waits in tests, in milliseconds.
pub const TIMEOUT_MS: u64 = 60_000;
/// Pause between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Epoch 11 of the only task of job 7.
#[must_use]
pub fn assignment() -> TaskAssignment {
    TaskAssignment {
        key: TaskKey {
            job: JobId(7),
            task: TaskIndex(0),
        },
        unit: UnitIndex(0),
        epoch: AttemptEpoch(11),
        attempt: 1,
        restart_reason: RestartReason::First,
        acknowledged: TaskPhase::Assigned,
        barrier: false,
        released: false,
        gang_hosts: Vec::new(),
        suspended: false,
        command: vec!["true".to_owned()],
        environment: BTreeMap::new(),
        working_directory: None,
        gpus: Vec::new(),
        cpus_milli: 1_000,
        memory_mib: 64,
        execution: Execution::default(),
        rank: RankInfo::default(),
        checkpoint: None,
        stop_grace_ms: 30_000,
        partition_grace_ms: 45_000,
        stop: None,
        warning: None,
        checkpoint_duties: CheckpointDuties::default(),
        user: "ada".to_owned(),
    }
}

/// A task that runs a shell script.
#[must_use]
pub fn script(text: &str) -> TaskAssignment {
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

/// Polls a condition until it holds.
///
/// # Panics
/// With `what`, after the timeout.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = boottime_ms() + TIMEOUT_MS;
    while !holds() {
        assert!(boottime_ms() < until, "{what}: not within {TIMEOUT_MS} ms");
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Kills everything that a test left on a host, so that nothing outlives the test.
pub fn kill_host(data_directory: &Path) {
    for process in process::of_host(data_directory).unwrap_or_default() {
        process.kill();
    }
}

/// Whether the process with this id has ended.
///
/// # Panics
/// If it is not a number.
#[must_use]
pub fn is_gone(pid: &str) -> bool {
    let pid = pid.parse().expect("a process id");
    ProcessIdentity::of(pid).is_none_or(|process| !process.is_alive())
}
