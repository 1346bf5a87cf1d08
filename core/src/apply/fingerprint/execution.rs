//! Fingerprints of how tasks are run. Each field is led by its number in the format, so that fields that later builds add
//! fold differently from all that there are.

use crate::apply::fingerprint::Fold;
use crate::spec::{Container, Execution, PullPolicy};

/// Sets what follows apart from a layout, which may be absent before it.
const MARK: u64 = 0x6578_6563;

impl Fold {
    pub(super) fn execution(&mut self, execution: &Execution) {
        let Execution { container } = execution;
        self.number(MARK);
        if let Some(container) = container {
            self.number(1);
            self.container(container);
        }
    }

    fn container(&mut self, container: &Container) {
        let Container {
            image,
            pull,
            entrypoint,
            mounts,
            user,
            userns,
            shm_mib,
            gpus,
            init,
        } = container;
        self.text(image);
        self.number(match pull {
            PullPolicy::Missing => 1,
            PullPolicy::Always => 2,
            PullPolicy::Never => 3,
        });
        self.texts(entrypoint.iter());
        self.number(mounts.len() as u64);
        for mount in mounts {
            self.text(&mount.source);
            self.text(&mount.target);
            self.number(u64::from(mount.read_only));
        }
        for name in [user, userns, gpus] {
            self.number(u64::from(name.is_some()));
            self.text(name.as_deref().unwrap_or(""));
        }
        self.option(*shm_mib);
        self.number(u64::from(*init));
    }
}
