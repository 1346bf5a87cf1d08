//! What tests of this crate and of the agent need.

use std::collections::BTreeMap;

use muster_core::desired::{RankInfo, TaskAssignment, TaskKey};
use muster_core::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};
use muster_core::lifecycle::TaskPhase;
use muster_core::state::RestartReason;

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
        rank: RankInfo::default(),
        checkpoint: None,
        stop_grace_ms: 30_000,
        partition_grace_ms: 45_000,
        stop: None,
    }
}
