//! A sample of the fourth version: tasks run in containers.

use std::sync::Arc;

use muster_model::command::Command;
use muster_model::spec::{Container, JobSpec, Mount, PullPolicy};

use crate::frozen::samples::{REQUEST, spec};

/// A container with every field.
fn container() -> Container {
    let mount = |source: &str, target: &str, read_only| Mount {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    Container {
        image: "registry.example.com/train@sha256:00ff".to_owned(),
        pull: PullPolicy::Always,
        entrypoint: vec!["/usr/bin/env".to_owned()],
        mounts: vec![
            mount("/data", "/data", true),
            mount("/scratch/out", "/out", false),
        ],
        user: Some("1000:1000".to_owned()),
        userns: Some("keep-id".to_owned()),
        shm_mib: Some(16_384),
        gpus: Some("vendor.example.com/gpu={uuid}".to_owned()),
        init: true,
    }
}

/// The command under the name of its file: one group in a container with every field, one in a minimal
/// container.
pub(crate) fn command() -> (&'static str, Command) {
    let mut spec: JobSpec = spec();
    spec.groups[0].execution.container = Some(container());
    spec.groups[1].execution.container = Some(Container {
        image: "train:1".to_owned(),
        ..Container::default()
    });
    let command = Command::SubmitJob {
        request: REQUEST,
        spec: Arc::new(spec),
    };
    ("submit_job_with_container", command)
}
