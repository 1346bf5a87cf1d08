//! Validation of containers. Whether images and mount sources exist is checked on the host.

use std::collections::BTreeSet;

use crate::limits;
use crate::spec::validate::Findings;
use crate::spec::{Container, Execution, GPU_PLACEHOLDER, Mount, TaskGroup};

/// All texts of a group's container.
pub(super) fn texts(group: &TaskGroup) -> impl Iterator<Item = &String> {
    group.execution.container.iter().flat_map(|container| {
        let mounts = container.mounts.iter();
        let paths = mounts.flat_map(|mount| [&mount.source, &mount.target]);
        let names = [&container.user, &container.userns, &container.gpus];
        std::iter::once(&container.image)
            .chain(&container.entrypoint)
            .chain(names.into_iter().flatten())
            .chain(paths)
    })
}

pub(super) fn check(found: &mut Findings, execution: &Execution, at: &dyn Fn(&str) -> String) {
    let Some(container) = &execution.container else {
        return;
    };
    let at = |field: &str| at(&format!("container.{field}"));
    image(found, container, &at);
    found.check(
        container.entrypoint.iter().all(|word| !word.contains('\0')),
        &at("entrypoint"),
        || "must not contain NUL bytes".to_owned(),
    );
    found.at_most(
        &at("entrypoint"),
        container.entrypoint.len(),
        "COMMAND_ARGUMENTS_MAX",
        limits::COMMAND_ARGUMENTS_MAX,
    );
    for (field, name) in [("user", &container.user), ("userns", &container.userns)] {
        if let Some(name) = name {
            found.name(&at(field), name);
        }
    }
    let shm_mib = container.shm_mib;
    found.check(shm_mib != Some(0), &at("shm_mib"), || {
        "must be at least 1, or absent for the engine's default".to_owned()
    });
    found.at_most(
        &at("shm_mib"),
        shm_mib.unwrap_or(0),
        "SHM_MIB_MAX",
        limits::SHM_MIB_MAX,
    );
    if let Some(pattern) = &container.gpus {
        gpus(found, pattern, &at("gpus"));
    }
    mounts(found, &container.mounts, &at);
}

fn image(found: &mut Findings, container: &Container, at: &dyn Fn(&str) -> String) {
    let image = &container.image;
    found.check(!image.is_empty(), &at("image"), || {
        "must not be empty".to_owned()
    });
    found.at_most(
        &at("image"),
        image.len(),
        "TEXT_BYTES_MAX",
        limits::TEXT_BYTES_MAX,
    );
    let is_plain = image.chars().all(|letter| letter.is_ascii_graphic());
    found.check(is_plain && !image.starts_with('-'), &at("image"), || {
        "must be an image's name, as in `registry/name:tag` or `registry/name@sha256:...`"
            .to_owned()
    });
}

/// `vendor/class=name`, with the placeholder for the GPU's UUID in the name.
fn gpus(found: &mut Findings, pattern: &str, field: &str) {
    let is_qualified = pattern.split_once('=').is_some_and(|(kind, name)| {
        let vendor_and_class = kind.split_once('/');
        let parts_given =
            vendor_and_class.is_some_and(|(vendor, class)| !vendor.is_empty() && !class.is_empty());
        parts_given && !kind.contains(GPU_PLACEHOLDER) && name.contains(GPU_PLACEHOLDER)
    });
    let is_plain = pattern.chars().all(|letter| letter.is_ascii_graphic());
    found.check(is_qualified && is_plain, field, || {
        format!(
            "must be a CDI name with the place of the GPU's identity, as in \
             `nvidia.com/gpu={GPU_PLACEHOLDER}`"
        )
    });
    found.at_most(
        field,
        pattern.len(),
        "NAME_BYTES_MAX",
        limits::NAME_BYTES_MAX,
    );
}

fn mounts(found: &mut Findings, mounts: &[Mount], at: &dyn Fn(&str) -> String) {
    found.at_most(
        &at("mounts"),
        mounts.len(),
        "MOUNTS_MAX",
        limits::MOUNTS_MAX,
    );
    let mut targets = BTreeSet::new();
    for (position, mount) in mounts.iter().enumerate() {
        for (end, path) in [("source", &mount.source), ("target", &mount.target)] {
            let field = at(&format!("mounts[{position}].{end}"));
            found.check(is_absolute(path), &field, || {
                "must be an absolute path without `..` and NUL bytes".to_owned()
            });
        }
        let field = at(&format!("mounts[{position}].target"));
        let is_root = mount.target.trim_end_matches('/').is_empty();
        found.check(!is_root, &field, || {
            "must not be the root of the container".to_owned()
        });
        found.check(targets.insert(&mount.target), &field, || {
            format!("`{}` is mounted twice", mount.target)
        });
    }
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use crate::spec::{Container, Mount, validate};
    use crate::testing::single;

    fn broken(change: impl FnOnce(&mut Container)) -> Vec<String> {
        let mut spec = single("train", 1, 1);
        let mut container = Container {
            image: "localhost/train:1".to_owned(),
            ..Container::default()
        };
        change(&mut container);
        spec.groups[0].command.clear();
        spec.groups[0].execution.container = Some(container);
        validate(&spec).into_iter().map(|it| it.field).collect()
    }

    fn mount(source: &str, target: &str) -> Mount {
        Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only: true,
        }
    }

    #[test]
    fn a_container_needs_no_command_and_every_broken_rule_is_named() {
        let at = |field: &str| vec![format!("groups[0].execution.container.{field}")];
        assert!(broken(|_| {}).is_empty());
        assert_eq!(broken(|it| it.image.clear()), at("image"));
        assert_eq!(broken(|it| it.image = "a b".to_owned()), at("image"));
        assert_eq!(broken(|it| it.image = "--all".to_owned()), at("image"));
        assert_eq!(broken(|it| it.shm_mib = Some(0)), at("shm_mib"));
        assert_eq!(broken(|it| it.shm_mib = Some(u64::MAX)), at("shm_mib"));
        assert_eq!(broken(|it| it.user = Some(String::new())), at("user"));
        assert_eq!(
            broken(|it| it.userns = Some("a\n".to_owned())),
            at("userns")
        );
        for pattern in [
            "all",
            "nvidia.com/gpu=all",
            "gpu={uuid}",
            "{uuid}/a=b",
            "/a={uuid}",
        ] {
            assert_eq!(broken(|it| it.gpus = Some(pattern.to_owned())), at("gpus"));
        }
        assert!(broken(|it| it.gpus = Some("vendor.com/card=g-{uuid}".to_owned())).is_empty());
        let mounts = |mounts: Vec<Mount>| broken(|it| it.mounts = mounts);
        assert!(mounts(vec![mount("/data", "/data")]).is_empty());
        assert_eq!(mounts(vec![mount("data", "/data")]), at("mounts[0].source"));
        assert_eq!(mounts(vec![mount("/a/../b", "/b")]), at("mounts[0].source"));
        assert_eq!(mounts(vec![mount("/a", "/")]), at("mounts[0].target"));
        let twice = vec![mount("/a", "/c"), mount("/b", "/c")];
        assert_eq!(mounts(twice), at("mounts[1].target"));
        assert_eq!(mounts(vec![mount("/a", "/a"); 65])[0], at("mounts")[0]);
    }
}
