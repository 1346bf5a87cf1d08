//! The container section of a job file.

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::human::HumanSize;

/// The container that each task of a group runs in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerFile {
    /// The OCI image.
    pub image: String,
    /// Pull policy of the image.
    #[serde(default)]
    pub pull: PullFile,
    /// Replaces the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Host directories and files mounted into the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountFile>,
    /// `user[:group]` inside the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// How users inside map to users of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userns: Option<String>,
    /// Size of `/dev/shm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<HumanSize>,
    /// The CDI name of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
    /// Whether the engine's own small init is the first process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub init: bool,
}

/// Pull policy of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum PullFile {
    /// Pull only if the host does not have the image.
    #[default]
    Missing,
    /// Pull before every start.
    Always,
    /// Never pull: the host must have the image.
    Never,
}

/// A directory or file of the host mounted into the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountFile {
    /// Absolute path on the host.
    pub source: String,
    /// Absolute path inside the container; the host path if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether the mount is read-only inside the container.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl From<ContainerFile> for v1::Container {
    fn from(file: ContainerFile) -> Self {
        Self {
            image: file.image,
            pull: v1::PullPolicy::from(file.pull).into(),
            entrypoint: file.entrypoint,
            mounts: file.mounts.into_iter().map(Into::into).collect(),
            user: file.user,
            userns: file.userns,
            shm_mib: file.shm.map(|size| size.mib),
            gpus: file.gpus,
            init: file.init,
        }
    }
}

impl From<&v1::Container> for ContainerFile {
    fn from(container: &v1::Container) -> Self {
        Self {
            image: container.image.clone(),
            pull: match container.pull() {
                v1::PullPolicy::Unspecified | v1::PullPolicy::Missing => PullFile::Missing,
                v1::PullPolicy::Always => PullFile::Always,
                v1::PullPolicy::Never => PullFile::Never,
            },
            entrypoint: container.entrypoint.clone(),
            mounts: container.mounts.iter().map(Into::into).collect(),
            user: container.user.clone(),
            userns: container.userns.clone(),
            shm: container.shm_mib.map(|mib| HumanSize { mib }),
            gpus: container.gpus.clone(),
            init: container.init,
        }
    }
}

impl From<PullFile> for v1::PullPolicy {
    fn from(file: PullFile) -> Self {
        match file {
            PullFile::Missing => Self::Missing,
            PullFile::Always => Self::Always,
            PullFile::Never => Self::Never,
        }
    }
}

impl From<MountFile> for v1::Mount {
    fn from(file: MountFile) -> Self {
        Self {
            target: file.target.unwrap_or_else(|| file.source.clone()),
            source: file.source,
            read_only: file.read_only,
        }
    }
}

impl From<&v1::Mount> for MountFile {
    fn from(mount: &v1::Mount) -> Self {
        Self {
            source: mount.source.clone(),
            target: Some(mount.target.clone()),
            read_only: mount.read_only,
        }
    }
}
