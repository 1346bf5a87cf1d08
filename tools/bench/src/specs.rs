//! Specifications of the submitted jobs.

use muster_proto::v1;
use prost::Message as _;

/// Size of one submitted specification in bytes, and of one value put into etcd.
pub(crate) const PAYLOAD_BYTES: usize = 256;
/// Priority above every job that a figure loads.
pub(crate) const PRIORITY_FIRST: i32 = 1_000;

/// Independent tasks of `gpus` GPUs each.
pub(crate) fn array(tasks: u32, gpus: u32) -> v1::JobSpec {
    job(false, tasks, gpus, None, &["true"])
}

/// A gang of `tasks` tasks with `gpus` GPUs each.
pub(crate) fn gang(tasks: u32, gpus: u32) -> v1::JobSpec {
    job(true, tasks, gpus, None, &["true"])
}

/// A job of one task with one GPU, whose specification is [`PAYLOAD_BYTES`] long.
pub(crate) fn single() -> v1::JobSpec {
    const OVERHEAD_BYTES: usize = 16;
    let mut spec = array(1, 1);
    let missing = PAYLOAD_BYTES.saturating_sub(spec.encoded_len() + OVERHEAD_BYTES);
    spec.labels
        .insert("payload".to_owned(), "x".repeat(missing));
    spec
}

/// A job of this size that runs `command`; at most `tasks_per_host` of its tasks on one host.
pub(crate) fn job(
    is_gang: bool,
    tasks: u32,
    gpus: u32,
    tasks_per_host: Option<u32>,
    command: &[&str],
) -> v1::JobSpec {
    let group = v1::TaskGroup {
        count: Some(tasks),
        resources: Some(v1::Resources {
            gpus,
            ..v1::Resources::default()
        }),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        tasks_per_host_max: tasks_per_host,
        ..v1::TaskGroup::default()
    };
    v1::JobSpec {
        name: "bench".to_owned(),
        user: "bench".to_owned(),
        gang: is_gang,
        groups: vec![group],
        ..v1::JobSpec::default()
    }
}
