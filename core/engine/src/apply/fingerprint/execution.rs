//! Fingerprints of execution settings. Each field is preceded by its number in the format, so that fields
//! added later fold differently from all existing ones.

use muster_model::spec::{Container, CpuBinding, Execution, PullPolicy, SecretForm};

use crate::apply::fingerprint::Fold;

/// Separates the following fields from the start of a later group.
const MARK: u64 = 0x6578_6563;

impl Fold {
    pub(super) fn execution(&mut self, execution: &Execution) {
        let Execution {
            container,
            ulimits,
            pids_max,
            secrets,
            binding,
        } = execution;
        self.number(MARK);
        if let Some(container) = container {
            self.number(1);
            self.container(container);
        }
        if !ulimits.is_empty() {
            self.number(2);
            self.number(ulimits.len() as u64);
            for (kind, limit) in ulimits {
                self.text(kind.name());
                self.option(limit.soft);
                self.option(limit.hard);
            }
        }
        if let Some(max) = pids_max {
            self.number(3);
            self.number(u64::from(*max));
        }
        if !secrets.is_empty() {
            self.number(4);
            self.number(secrets.len() as u64);
            for secret in secrets {
                self.text(&secret.name);
                self.number(match secret.form {
                    SecretForm::Variable(_) => 2,
                    SecretForm::File(_) => 3,
                });
                self.text(secret.form.variable());
            }
        }
        match binding {
            CpuBinding::None => {}
            CpuBinding::Cpus => self.binding(1),
            CpuBinding::Numa => self.binding(2),
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

    fn binding(&mut self, number: u64) {
        self.number(5);
        self.number(number);
    }
}
