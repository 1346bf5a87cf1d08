//! Containers.

use muster_model::spec::{Container, Mount, PullPolicy};

use crate::field::InvalidField;
use crate::v1;

impl TryFrom<v1::Container> for Container {
    type Error = InvalidField;

    fn try_from(wire: v1::Container) -> Result<Self, InvalidField> {
        Ok(Self {
            image: wire.image,
            pull: pull_policy(wire.pull)?,
            entrypoint: wire.entrypoint,
            mounts: wire.mounts.into_iter().map(Into::into).collect(),
            user: wire.user,
            userns: wire.userns,
            shm_mib: wire.shm_mib,
            gpus: wire.gpus,
            init: wire.init,
        })
    }
}

impl From<&Container> for v1::Container {
    fn from(container: &Container) -> Self {
        Self {
            image: container.image.clone(),
            pull: v1::PullPolicy::from(container.pull).into(),
            entrypoint: container.entrypoint.clone(),
            mounts: container.mounts.iter().map(Into::into).collect(),
            user: container.user.clone(),
            userns: container.userns.clone(),
            shm_mib: container.shm_mib,
            gpus: container.gpus.clone(),
            init: container.init,
        }
    }
}

impl From<v1::Mount> for Mount {
    fn from(wire: v1::Mount) -> Self {
        Self {
            source: wire.source,
            target: wire.target,
            read_only: wire.read_only,
        }
    }
}

impl From<&Mount> for v1::Mount {
    fn from(mount: &Mount) -> Self {
        Self {
            source: mount.source.clone(),
            target: mount.target.clone(),
            read_only: mount.read_only,
        }
    }
}

/// Converts a pull policy; unspecified means the default, a number from a newer build is rejected.
fn pull_policy(number: i32) -> Result<PullPolicy, InvalidField> {
    match v1::PullPolicy::try_from(number) {
        Ok(v1::PullPolicy::Unspecified | v1::PullPolicy::Missing) => Ok(PullPolicy::Missing),
        Ok(v1::PullPolicy::Always) => Ok(PullPolicy::Always),
        Ok(v1::PullPolicy::Never) => Ok(PullPolicy::Never),
        Err(_) => Err(InvalidField::new(
            "pull",
            format!("{number} is not a value that this version knows"),
        )),
    }
}

impl From<PullPolicy> for v1::PullPolicy {
    fn from(policy: PullPolicy) -> Self {
        match policy {
            PullPolicy::Missing => Self::Missing,
            PullPolicy::Always => Self::Always,
            PullPolicy::Never => Self::Never,
        }
    }
}
