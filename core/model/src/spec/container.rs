//! A container that a task runs in instead of straight on its host.

use serde::{Deserialize, Serialize};

/// Stands in [`Container::gpus`] for the identity of one GPU.
pub const GPU_PLACEHOLDER: &str = "{uuid}";
/// [`Container::gpus`] where the job names none: how NVIDIA's container toolkit calls its devices.
pub const GPU_DEVICE: &str = "nvidia.com/gpu={uuid}";

/// A container that each task of a group runs in. Its worker's engine (podman or docker) makes it from an OCI image.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Container {
    /// The image, as the engine takes it: `docker.io/library/python:3.12`, or by digest.
    pub image: String,
    /// When the image is fetched from its registry.
    pub pull: PullPolicy,
    /// Replaces the image's entry point; the image's own if empty. The group's command follows it as arguments.
    pub entrypoint: Vec<String>,
    /// Host folders and files that it sees, beside those of the task contract. At most `MOUNTS_MAX`.
    pub mounts: Vec<Mount>,
    /// `user[:group]` inside, by name or number; the image's own if none.
    pub user: Option<String>,
    /// How users inside map to users of the host, in the engine's words (`host`, `keep-id`, ...); its default if none.
    pub userns: Option<String>,
    /// Size of `/dev/shm` in MiB; the engine's default if none.
    pub shm_mib: Option<u64>,
    /// The CDI name of a GPU, with [`GPU_PLACEHOLDER`] for its identity; [`GPU_DEVICE`] if none.
    pub gpus: Option<String>,
    /// Whether the engine's own small init is the first process, which passes signals on and collects orphans.
    pub init: bool,
}

/// When an image is fetched from its registry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PullPolicy {
    /// If the host does not have it.
    #[default]
    Missing,
    /// Before every start.
    Always,
    /// Never: the host must have it.
    Never,
}

/// A folder or file of the host, seen inside a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path on the host; must exist when the task starts.
    pub source: String,
    /// Absolute path inside.
    pub target: String,
    /// Whether it cannot be written inside.
    pub read_only: bool,
}

impl Container {
    /// The CDI name of the GPU with this identity.
    #[must_use]
    pub fn gpu_device(&self, gpu: &crate::ids::GpuUuid) -> String {
        let pattern = self.gpus.as_deref().unwrap_or(GPU_DEVICE);
        pattern.replace(GPU_PLACEHOLDER, &gpu.to_string())
    }
}
