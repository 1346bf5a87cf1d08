//! CPU topology of this machine from sysfs: the core of each CPU and its NUMA node.

use std::collections::BTreeMap;
use std::path::Path;

/// The CPUs that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuLayout(BTreeMap<u32, Cpu>);

/// Location of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    node: u32,
    /// The first of the CPUs that share its core.
    core: u32,
}

impl CpuLayout {
    /// Reads the online CPUs from sysfs at `root` that `allowed` lets this process use. Empty if sysfs
    /// shows none: then no task can be bound.
    pub(crate) fn read(root: &Path, allowed: impl Fn(u32) -> bool) -> Self {
        let list = |path: String| read_list(&root.join(path));
        let nodes: BTreeMap<u32, u32> = list("devices/system/node/online".to_owned())
            .into_iter()
            .flat_map(|node| {
                let cpus = list(format!("devices/system/node/node{node}/cpulist"));
                cpus.into_iter().map(move |cpu| (cpu, node))
            })
            .collect();
        let online = list("devices/system/cpu/online".to_owned());
        Self::of(online.into_iter().filter(|cpu| allowed(*cpu)).map(|cpu| {
            let siblings = list(format!(
                "devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            ));
            let core = siblings.into_iter().min().unwrap_or(cpu);
            // A machine without NUMA nodes has one memory.
            (cpu, nodes.get(&cpu).copied().unwrap_or(0), core)
        }))
    }

    /// Builds a layout from CPUs with their nodes and cores.
    pub(crate) fn of(cpus: impl Iterator<Item = (u32, u32, u32)>) -> Self {
        Self(
            cpus.map(|(cpu, node, core)| (cpu, Cpu { node, core }))
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = u32> {
        self.0.values().map(|cpu| cpu.node)
    }

    pub(super) fn cpus_of(&self, node: u32) -> impl Iterator<Item = u32> {
        let on_node = self.0.iter().filter(move |(_, cpu)| cpu.node == node);
        on_node.map(|(number, _)| *number)
    }

    pub(super) fn siblings(&self, core: u32) -> impl Iterator<Item = u32> {
        let on_core = self.0.iter().filter(move |(_, cpu)| cpu.core == core);
        on_core.map(|(number, _)| *number)
    }

    pub(super) fn node_of(&self, cpu: u32) -> u32 {
        self.0.get(&cpu).map_or(0, |cpu| cpu.node)
    }

    pub(super) fn core_of(&self, cpu: u32) -> u32 {
        self.0.get(&cpu).map_or(cpu, |found| found.core)
    }
}

/// The numbers of a list in the kernel's format (`0-3,8`); empty if the file does not exist.
fn read_list(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let ranges = text.trim().split(',').filter(|range| !range.is_empty());
    ranges
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn cores_and_nodes_are_as_the_kernel_lists_them() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join("devices/system").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        };
        write("cpu/online", "0-2,4-7");
        write("node/online", "0-1");
        write("node/node0/cpulist", "0-1,4-5");
        write("node/node1/cpulist", "2-3,6-7");
        for (cpu, siblings) in [
            (0, "0,4"),
            (1, "1,5"),
            (4, "0,4"),
            (5, "1,5"),
            (2, "2,6"),
            (6, "2,6"),
            (7, "3,7"),
        ] {
            write(
                &format!("cpu/cpu{cpu}/topology/thread_siblings_list"),
                siblings,
            );
        }
        let layout = CpuLayout::read(root.path(), |cpu| cpu != 5);
        let expected = [
            (0, 0, 0),
            (1, 0, 1),
            (4, 0, 0),
            (2, 1, 2),
            (6, 1, 2),
            (7, 1, 3),
        ];
        assert_eq!(layout, CpuLayout::of(expected.into_iter()));
        assert!(CpuLayout::read(&root.path().join("nowhere"), |_| true).is_empty());
    }
}
