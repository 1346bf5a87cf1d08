//! Sample jobs, hosts, GPUs and exits for tests.

use std::collections::BTreeMap;

use crate::command::{Exit, GpuDescription, HostRegistration};
use crate::ids::{GpuUuid, RequestId, RequestKey};
use crate::spec::{
    DEFAULT_QUEUE, Execution, GANG_PARTITION_GRACE_MS, JobSpec, Layout, Lifecycle, Resources,
    RetryPolicy, SINGLE_PARTITION_GRACE_MS, STOP_GRACE_MS, Scheduling, TaskGroup,
};
use crate::topology::ReportedTopology;

/// Default GPU model of hosts.
const MODEL: &str = "H100";
/// Maximum number of GPUs per host with distinct [`gpu_uuid`]s.
const GPUS_APART_MAX: u128 = 1_000;

/// A job of independent tasks, each with the given GPUs, one CPU and 1 GiB.
#[must_use]
pub fn single(name: &str, tasks: u32, gpus: u32) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        user: "ada".to_owned(),
        queue: DEFAULT_QUEUE.to_owned(),
        priority: 0,
        gang: false,
        groups: vec![TaskGroup {
            name: "main".to_owned(),
            count: tasks,
            resources: Resources {
                gpus,
                gpu_models: Vec::new(),
                cpus_milli: 1_000,
                memory_mib: 1_024,
            },
            command: vec!["true".to_owned()],
            environment: BTreeMap::new(),
            working_directory: None,
            tasks_per_host_max: None,
            layout: Layout::default(),
            execution: Execution::default(),
        }],
        retry: RetryPolicy {
            retries_max: 1,
            backoff_ms: 1_000,
        },
        partition_grace_ms: SINGLE_PARTITION_GRACE_MS,
        stop_grace_ms: STOP_GRACE_MS,
        labels: BTreeMap::new(),
        scheduling: Scheduling::default(),
        lifecycle: Lifecycle::default(),
    }
}

/// A gang, each task with the given GPUs, one CPU and 1 GiB.
#[must_use]
pub fn gang(name: &str, tasks: u32, gpus: u32) -> JobSpec {
    JobSpec {
        gang: true,
        partition_grace_ms: GANG_PARTITION_GRACE_MS,
        ..single(name, tasks, gpus)
    }
}

/// The GPU at an index of the host with this number.
#[must_use]
pub const fn gpu_uuid(host: u32, index: u32) -> GpuUuid {
    GpuUuid(host as u128 * GPUS_APART_MAX + index as u128)
}

/// A request id by number.
#[must_use]
pub const fn request_id(number: u64) -> RequestId {
    RequestId(number as u128)
}

/// A request key by number, without a fingerprint of contents.
#[must_use]
pub const fn request_key(number: u64) -> RequestKey {
    RequestKey::of(request_id(number))
}

/// The host with this number (`node-0007`), with GPUs of the default model.
#[must_use]
pub fn host(number: u32, gpus: u32) -> HostRegistration {
    host_of_model(number, gpus, MODEL)
}

/// The host with this number, with GPUs of a given model, 64 CPUs and 1 TiB.
#[must_use]
pub fn host_of_model(number: u32, gpus: u32, model: &str) -> HostRegistration {
    HostRegistration {
        name: format!("node-{number:04}"),
        address: format!("10.0.{}.{}", number / 250, number % 250),
        worker_id: RequestId(u128::from(number)),
        incarnation: 1,
        boot_id: format!("boot-{number}"),
        gpus: (0..gpus)
            .map(|index| GpuDescription {
                uuid: gpu_uuid(number, index),
                index,
                model: model.to_owned(),
                memory_mib: 81_920,
            })
            .collect(),
        cpus_milli: 64_000,
        memory_mib: 1 << 20,
        labels: BTreeMap::new(),
        reported: ReportedTopology::default(),
    }
}

/// The exit of a process with this code.
#[must_use]
pub const fn exit_with(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
        out_of_memory: false,
        lease_expired: false,
        start_error: None,
        memory: None,
        sender: None,
        evidence: String::new(),
        last_measurements: None,
    }
}

/// The exit of a task that could not be started.
#[must_use]
pub fn start_error(error: &str) -> Exit {
    Exit {
        code: None,
        start_error: Some(error.to_owned()),
        ..exit_with(0)
    }
}
