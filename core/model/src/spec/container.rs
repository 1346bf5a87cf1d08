//! Container of a task.

use serde::{Deserialize, Serialize};

/// Placeholder for the UUID of a GPU in [`Container::gpus`].
pub const GPU_PLACEHOLDER: &str = "{uuid}";
/// Default of [`Container::gpus`]: the device name of NVIDIA's container toolkit.
pub const GPU_DEVICE: &str = "nvidia.com/gpu={uuid}";

/// Container of each task of a group. The host's engine (podman or docker) creates it from an OCI image.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Container {
    /// Image reference for the engine: `docker.io/library/python:3.12`, or by digest.
    pub image: String,
    /// Pull policy of the image.
    pub pull: PullPolicy,
    /// Replaces the image's entry point; the image's own if empty. The group's command follows as arguments.
    pub entrypoint: Vec<String>,
    /// Host directories and files mounted into it, besides those of the task contract. At most `MOUNTS_MAX`.
    pub mounts: Vec<Mount>,
    /// `user[:group]` inside, by name or number; the image's own if `None`.
    pub user: Option<String>,
    /// User namespace mode in the engine's syntax (`host`, `keep-id`, ...); the engine's default if `None`.
    pub userns: Option<String>,
    /// Size of `/dev/shm` in MiB; the engine's default if `None`.
    pub shm_mib: Option<u64>,
    /// CDI name of a GPU, with [`GPU_PLACEHOLDER`] for its UUID; [`GPU_DEVICE`] if `None`.
    pub gpus: Option<String>,
    /// Whether the engine's minimal init is the first process, which forwards signals and reaps orphans.
    pub init: bool,
}

/// Pull policy of an image.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PullPolicy {
    /// Pull only if the host does not have the image.
    #[default]
    Missing,
    /// Pull before every start.
    Always,
    /// Never pull: the host must have the image.
    Never,
}

/// A directory or file of the host mounted into a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path on the host; must exist when the task starts.
    pub source: String,
    /// Absolute path inside the container.
    pub target: String,
    /// Whether the mount is read-only inside the container.
    pub read_only: bool,
}

impl Container {
    /// CDI name of the GPU with this UUID.
    #[must_use]
    pub fn gpu_device(&self, gpu: &crate::ids::GpuUuid) -> String {
        let pattern = self.gpus.as_deref().unwrap_or(GPU_DEVICE);
        pattern.replace(GPU_PLACEHOLDER, &gpu.to_string())
    }
}
