//! The rules for how tasks are run. What a host has is for its worker to say.

use crate::spec::JobSpec;
use crate::spec::validate::{Findings, container};

/// Texts that count for the size of a specification.
pub(super) fn texts(spec: &JobSpec) -> impl Iterator<Item = &String> {
    spec.groups.iter().flat_map(container::texts)
}

pub(super) fn check(found: &mut Findings, spec: &JobSpec) {
    for (position, group) in spec.groups.iter().enumerate() {
        let at = |field: &str| format!("groups[{position}].execution.{field}");
        container::check(found, &group.execution, &at);
    }
}
