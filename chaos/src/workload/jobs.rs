//! Jobs of the tests with real processes.

use std::path::Path;

use muster_proto::v1;

/// Environment variable with the folder in which tasks lock their GPUs.
const LEDGER_VARIABLE: &str = "GPU_LEDGER_DIR";
/// Lease of a job: hosts of the test clusters count as lost after 5 s.
pub(crate) const PARTITION_GRACE_MS: u64 = 6_500;
/// Time between a stop request and the kill.
const STOP_GRACE_MS: u64 = 2_000;

/// A job with its lease and grace times.
pub(crate) fn job(name: &str, priority: i32, gang: bool, group: v1::TaskGroup) -> v1::JobSpec {
    v1::JobSpec {
        name: name.to_owned(),
        user: "demo".to_owned(),
        priority,
        gang,
        groups: vec![group],
        partition_grace_ms: Some(PARTITION_GRACE_MS),
        stop_grace_ms: Some(STOP_GRACE_MS),
        retry: Some(v1::RetryPolicy {
            retries_max: 5,
            backoff_ms: 200,
        }),
        ..v1::JobSpec::default()
    }
}

/// Tasks that lock their GPUs in the ledger folder.
pub(crate) fn group(
    name: &str,
    count: u32,
    gpus: u32,
    command: Vec<String>,
    ledger: &Path,
) -> v1::TaskGroup {
    let environment = [(LEDGER_VARIABLE.to_owned(), ledger.display().to_string())]
        .into_iter()
        .collect();
    v1::TaskGroup {
        name: Some(name.to_owned()),
        count: Some(count),
        resources: Some(v1::Resources {
            gpus,
            ..v1::Resources::default()
        }),
        command,
        environment,
        ..v1::TaskGroup::default()
    }
}
