//! Draws of containers, and of hosts that run them.

use muster_model::command::HostRegistration;
use muster_model::host::ENGINE_LABEL;
use muster_model::spec::{Container, PullPolicy};

use crate::draw::Draw;

impl Draw<'_> {
    pub(super) fn container(&mut self) -> Container {
        // Occasionally one without an image, which is refused.
        let image = ["localhost/train:1", "localhost/other:2", ""];
        Container {
            image: image[usize::try_from(self.below(3)).unwrap_or(0)].to_owned(),
            pull: match self.below(3) {
                0 => PullPolicy::Missing,
                1 => PullPolicy::Always,
                _ => PullPolicy::Never,
            },
            ..Container::default()
        }
    }

    /// Lets a host report that it runs containers.
    pub(super) fn equip(&mut self, registration: &mut HostRegistration) {
        let engine = format!("podman 4.{}", self.below(3));
        registration.labels.insert(ENGINE_LABEL.to_owned(), engine);
    }
}
