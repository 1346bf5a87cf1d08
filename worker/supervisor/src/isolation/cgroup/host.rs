//! Discovery of the cgroup hierarchies of this host and of their controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use crate::isolation::cgroup::devices;
use crate::isolation::mount_table::{self, Mount};

/// Name of the directory that holds the cgroups of all tasks, in every hierarchy.
const PARENT: &str = "muster";

/// A cgroup controller that tasks use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Shares of CPU time.
    Cpu,
    /// Allowed CPUs and memory nodes.
    Cpuset,
    /// Allowed devices: on version 2 by a BPF program, which only root may load.
    Devices,
    /// Memory limits.
    Memory,
    /// Limits of processes and threads.
    Pids,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 5] = [
        Self::Cpu,
        Self::Cpuset,
        Self::Devices,
        Self::Memory,
        Self::Pids,
    ];

    /// The kernel's name for the controller.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Devices => "devices",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The directories under which this host permits this process to create cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupHost {
    /// Parent of each task's cgroup by which its processes are found, frozen and killed.
    base: PathBuf,
    /// Directory of each controller.
    controllers: BTreeMap<Controller, PathBuf>,
    /// Prefix of every cgroup name: workers that share a machine must not share cgroups.
    owner: String,
}

impl CgroupHost {
    /// Discovers the usable hierarchies, for cgroups whose names begin with `owner`; `None` if there are
    /// none.
    #[must_use]
    pub fn find(owner: &str) -> Option<Self> {
        Self::below(&Mounts::of(&mount_table::own().ok()?), owner)
    }

    fn below(mounts: &Mounts, owner: &str) -> Option<Self> {
        let unified = mounts
            .unified
            .as_deref()
            .and_then(|mount| made(mount).map(|it| (mount, it)));
        let mut controllers: BTreeMap<Controller, PathBuf> = BTreeMap::new();
        if let Some((mount, parent)) = &unified {
            let passed = Controller::ALL
                .into_iter()
                .filter(|controller| delegates(mount, parent, *controller));
            controllers.extend(passed.map(|controller| (controller, parent.clone())));
        }
        let is_bare = controllers.is_empty();
        if let Some((_, parent)) = &unified
            && !mounts.legacy.contains_key(Controller::Devices.name())
            && devices::is_available()
        {
            controllers.insert(Controller::Devices, parent.clone());
        }
        for controller in Controller::ALL {
            let mount = mounts.legacy.get(controller.name());
            if let Some(parent) = mount
                .filter(|_| !controllers.contains_key(&controller))
                .and_then(|it| made(it))
                && (controller != Controller::Cpuset || inherits_cpus(&parent))
            {
                controllers.insert(controller, parent);
            }
        }
        let unified = unified.map(|(_, parent)| parent);
        // Version 2 kills a cgroup with one write, but its cgroup has to be created and removed for every
        // task: not worth it where it accounts for nothing, and the kernel creates one at a time.
        let base = unified
            .clone()
            .filter(|_| !is_bare)
            .or_else(|| made(mounts.legacy.get("freezer")?))
            .or(unified)
            .or_else(|| controllers.values().next().cloned())?;
        Some(Self {
            base,
            controllers,
            owner: owner.to_owned(),
        })
    }

    /// Whether a controller is available.
    #[must_use]
    pub fn has(&self, controller: Controller) -> bool {
        self.controllers.contains_key(&controller)
    }

    /// Directories of a task's cgroups: one to find its processes by, and those of the wanted controllers
    /// that are available.
    #[must_use]
    pub fn paths(&self, task: &str, wanted: &[Controller]) -> Vec<PathBuf> {
        let wanted = wanted
            .iter()
            .filter_map(|controller| self.controllers.get(controller));
        let mut paths = vec![&self.base];
        for parent in wanted {
            if !paths.contains(&parent) {
                paths.push(parent);
            }
        }
        let name = format!("{}.{task}", self.owner);
        paths.into_iter().map(|parent| parent.join(&name)).collect()
    }

    /// Tasks that have a cgroup of this owner, live or not.
    #[must_use]
    pub fn tasks(&self) -> BTreeSet<String> {
        let mark = format!("{}.", self.owner);
        let parents: BTreeSet<&PathBuf> = self.controllers.values().chain([&self.base]).collect();
        let entries = parents
            .into_iter()
            .filter_map(|parent| fs::read_dir(parent).ok());
        entries
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_prefix(&mark).map(str::to_owned))
            .collect()
    }
}

/// Returns the `muster` directory of a hierarchy, creating it; `None` without permission.
fn made(mount: &Path) -> Option<PathBuf> {
    let parent = mount.join(PARENT);
    fs::create_dir_all(&parent).is_ok().then_some(parent)
}

/// Enables a controller for the cgroups of tasks on version 2: every ancestor must delegate it.
fn delegates(mount: &Path, parent: &Path, controller: Controller) -> bool {
    let order = format!("+{controller}");
    [mount, parent]
        .iter()
        .all(|path| super::write_existing(&path.join("cgroup.subtree_control"), &order).is_ok())
}

/// Gives the `muster` directory all CPUs and memory nodes of its parent: on version 1 a new directory has
/// none, and its children could have none.
fn inherits_cpus(parent: &Path) -> bool {
    ["cpuset.cpus", "cpuset.mems"].iter().all(|name| {
        let above = parent.parent().map(|above| fs::read_to_string(above.join(name)));
        matches!(above, Some(Ok(text)) if super::write_existing(&parent.join(name), text.trim()).is_ok())
    })
}

/// Mount points of the hierarchies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts {
    /// Mount point of version 2.
    pub(super) unified: Option<PathBuf>,
    /// Mount points of version 1, by controller.
    pub(super) legacy: BTreeMap<String, PathBuf>,
}

impl Mounts {
    pub(super) fn of(mounts: &[Mount]) -> Self {
        let mut found = Self::default();
        for mount in mounts {
            match mount.kind.as_str() {
                "cgroup2" => {
                    found.unified.get_or_insert_with(|| mount.point.clone());
                }
                "cgroup" => {
                    for option in mount.options.split(',') {
                        found
                            .legacy
                            .entry(option.to_owned())
                            .or_insert_with(|| mount.point.clone());
                    }
                }
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_task_has_one_directory_on_version_2_and_one_a_controller_on_hybrid_hosts() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        // The fake version 2 hierarchy delegates memory and pids, whatever is requested.
        for path in ["unified", "unified/muster"] {
            write(&at(path).join("cgroup.subtree_control"), "");
        }
        let unified = Mounts {
            unified: Some(at("unified")),
            legacy: BTreeMap::new(),
        };
        let host = CgroupHost::below(&unified, "w").unwrap();
        let wanted = [Controller::Memory, Controller::Cpu];
        assert_eq!(
            host.paths("7-0-11", &wanted),
            [at("unified/muster/w.7-0-11")]
        );

        let legacy = ["memory", "cpu", "freezer"].map(|name| (name.to_owned(), at(name)));
        fs::create_dir_all(at("bare")).unwrap();
        let hybrid = Mounts {
            unified: Some(at("bare")),
            legacy: legacy.clone().into(),
        };
        let host = CgroupHost::below(&hybrid, "w").unwrap();
        assert!(host.has(Controller::Memory) && !host.has(Controller::Pids));
        let expected = ["freezer", "memory", "cpu"].map(|name| at(name).join("muster/w.7-0-11"));
        assert_eq!(host.paths("7-0-11", &wanted), expected);

        let [memory, cpu, _] = legacy.clone();
        let unfreezable = Mounts {
            unified: Some(at("bare")),
            legacy: [memory, cpu].into(),
        };
        let host = CgroupHost::below(&unfreezable, "w").unwrap();
        let expected = ["bare", "memory", "cpu"].map(|name| at(name).join("muster/w.7-0-11"));
        assert_eq!(host.paths("7-0-11", &wanted), expected);

        let old = Mounts {
            unified: None,
            legacy: legacy.into(),
        };
        let host = CgroupHost::below(&old, "w").unwrap();
        let expected = ["freezer", "memory", "cpu"].map(|name| at(name).join("muster/w.7-0-11"));
        assert_eq!(host.paths("7-0-11", &wanted), expected);
    }

    #[test]
    fn only_the_owners_tasks_are_listed() {
        let home = tempfile::tempdir().unwrap();
        let memory = home.path().join("memory");
        for name in ["w.7-0-11", "w.8-0-12", "other.9-0-13"] {
            fs::create_dir_all(memory.join("muster").join(name)).unwrap();
        }
        let mounts = Mounts {
            unified: None,
            legacy: [("memory".to_owned(), memory)].into(),
        };
        let host = CgroupHost::below(&mounts, "w").unwrap();
        let tasks: Vec<String> = host.tasks().into_iter().collect();
        assert_eq!(tasks, ["7-0-11", "8-0-12"]);
    }

    #[test]
    fn mounts_are_found_by_their_kind_and_options() {
        let text = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup \
                    rw,relatime,cpu,cpuacct 0 0\n\
                    cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /second cgroup rw,cpu 0 0\n";
        let mounts = Mounts::of(&mount_table::parse(text.as_bytes()));
        assert_eq!(mounts.unified.unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(
            mounts.legacy["cpu"],
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert!(!mounts.legacy.contains_key("memory"));
    }
}
