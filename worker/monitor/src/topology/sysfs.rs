//! Detection of GPUs that share a socket or a PCIe switch, from sysfs.
//!
//! A device's real path runs through all bridges above it:
//! `devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0` is a GPU below a root port and
//! a switch's two sides (upstream port, downstream port).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::topology::PciAddress;

/// Bridges above a device that is alone below a switch: root port, the switch's upstream port, its
/// downstream port.
const BRIDGES_WITH_SWITCH: usize = 3;

/// Location of a GPU in its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuLocation {
    /// Name of the socket; none if unknown.
    pub socket: Option<String>,
    /// The switch, identified by its topmost bridge; none if it is not behind one.
    pub switch: Option<PciAddress>,
}

/// The kernel's view of a machine.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

/// Location of one device in the tree.
#[derive(Clone, Debug, Default)]
struct Device {
    /// The root bus: all devices below it are attached to one socket.
    root_bus: Option<String>,
    /// Bridges above it, the nearest first.
    bridges: Vec<PciAddress>,
    socket: Option<String>,
}

impl Sysfs {
    /// The view mounted at a path, `/sys` on a real machine.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Locations of these devices, in their order. Values that cannot be read are unknown.
    ///
    /// A device's switch is the nearest bridge that it shares with another one of the list; for one that
    /// shares none, the switch to which it is attached alone, if any.
    #[must_use]
    pub fn places(&self, addresses: &[PciAddress]) -> Vec<GpuLocation> {
        let mut devices: Vec<Device> = addresses
            .iter()
            .map(|address| self.device(*address))
            .collect();
        self.infer_sockets(&mut devices);
        let mut below: BTreeMap<PciAddress, usize> = BTreeMap::new();
        for bridge in devices.iter().flat_map(|device| &device.bridges) {
            *below.entry(*bridge).or_default() += 1;
        }
        let switch = |device: &Device| {
            let shared = device.bridges.iter().find(|bridge| below[*bridge] > 1);
            let is_alone = device.bridges.len() >= BRIDGES_WITH_SWITCH;
            let alone = device.bridges.get(1).filter(|_| is_alone);
            shared.or(alone).copied()
        };
        let place = |device: &Device| GpuLocation {
            switch: switch(device),
            socket: device.socket.clone(),
        };
        devices.iter().map(place).collect()
    }

    /// The NUMA node of a device; none if unknown.
    #[must_use]
    pub fn node_of(&self, address: PciAddress) -> Option<u32> {
        let link = self.root.join("bus/pci/devices").join(address.to_string());
        self.node(&link)
    }

    fn device(&self, address: PciAddress) -> Device {
        let link = self.root.join("bus/pci/devices").join(address.to_string());
        let Ok(path) = link.canonicalize() else {
            return Device::default();
        };
        let names: Vec<&str> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect();
        let mut above = names.iter().rev().skip(1);
        let bridges = above.clone().map_while(|name| name.parse().ok());
        let root_bus = above.find(|name| name.parse::<PciAddress>().is_err());
        Device {
            root_bus: root_bus
                .filter(|name| name.starts_with("pci"))
                .map(|name| (*name).to_owned()),
            bridges: bridges.collect(),
            socket: self.node(&path).map(|node| self.socket_of(node)),
        }
    }

    /// The NUMA node of a device; none if the firmware does not report it (-1).
    fn node(&self, device: &Path) -> Option<u32> {
        read(&device.join("numa_node"))?.parse().ok()
    }

    /// The socket of a NUMA node (a socket may have several); the node itself if its processors do not
    /// report theirs.
    fn socket_of(&self, node: u32) -> String {
        let list = read(
            &self
                .root
                .join(format!("devices/system/node/node{node}/cpulist")),
        );
        let first = list.and_then(|list| list.split([',', '-']).next()?.parse::<u32>().ok());
        let package = first.and_then(|cpu| {
            let path = format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            read(&self.root.join(path))?.parse::<u32>().ok()
        });
        package.unwrap_or(node).to_string()
    }

    /// Fills in sockets that the firmware does not report: that of other devices below the same root bus,
    /// and on a machine with one node the only one.
    fn infer_sockets(&self, devices: &mut [Device]) {
        let reported: BTreeMap<String, String> = devices
            .iter()
            .filter_map(|device| Some((device.root_bus.clone()?, device.socket.clone()?)))
            .collect();
        let only = self.only_node().map(|node| self.socket_of(node));
        for device in devices
            .iter_mut()
            .filter(|device| device.root_bus.is_some())
        {
            let beside = device.root_bus.as_ref().and_then(|bus| reported.get(bus));
            let known = device.socket.take();
            device.socket = known.or_else(|| beside.cloned()).or_else(|| only.clone());
        }
    }

    /// The only NUMA node of the machine; none if it has several or does not list them.
    fn only_node(&self) -> Option<u32> {
        let entries = std::fs::read_dir(self.root.join("devices/system/node")).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let nodes: Vec<u32> = names
            .filter_map(|name| name.strip_prefix("node")?.parse().ok())
            .collect();
        match nodes.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Device trees for tests.
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
pub(super) mod machine {
    use std::fs;
    use std::path::PathBuf;

    /// A simulated machine in a folder.
    pub(crate) struct Machine(tempfile::TempDir);

    impl Machine {
        /// A machine with `nodes` NUMA nodes of one processor each, every one on its own socket.
        pub(crate) fn new(nodes: u32) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for node in 0..nodes {
                machine.write(
                    &format!("devices/system/node/node{node}/cpulist"),
                    &format!("{node}"),
                );
                let package = format!("devices/system/cpu/cpu{node}/topology/physical_package_id");
                machine.write(&package, &node.to_string());
            }
            machine
        }

        pub(crate) fn root(&self) -> PathBuf {
            self.0.path().to_owned()
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        /// A device below bridges, the first of which is the root port.
        pub(crate) fn gpu(&self, root_bus: &str, bridges: &[&str], address: &str, node: &str) {
            let mut path = format!("devices/{root_bus}");
            for part in bridges.iter().chain([&address]) {
                path = format!("{path}/{part}");
            }
            self.write(&format!("{path}/numa_node"), node);
            let links = self.root().join("bus/pci/devices");
            fs::create_dir_all(&links).unwrap();
            std::os::unix::fs::symlink(self.root().join(path), links.join(address)).unwrap();
        }
    }

    /// Two sockets with two switches of two GPUs each.
    pub(crate) fn dgx() -> (Machine, Vec<&'static str>) {
        let machine = Machine::new(2);
        let switches = [
            (
                "pci0000:00",
                ["0000:00:01.0", "0000:01:00.0"],
                ["0000:02:00.0", "0000:02:01.0"],
                ["0000:03:00.0", "0000:04:00.0"],
                "0",
            ),
            (
                "pci0000:10",
                ["0000:10:01.0", "0000:11:00.0"],
                ["0000:12:00.0", "0000:12:01.0"],
                ["0000:13:00.0", "0000:14:00.0"],
                "0",
            ),
            (
                "pci0000:80",
                ["0000:80:01.0", "0000:81:00.0"],
                ["0000:82:00.0", "0000:82:01.0"],
                ["0000:83:00.0", "0000:84:00.0"],
                "1",
            ),
            (
                "pci0000:90",
                ["0000:90:01.0", "0000:91:00.0"],
                ["0000:92:00.0", "0000:92:01.0"],
                ["0000:93:00.0", "0000:94:00.0"],
                "1",
            ),
        ];
        let mut addresses = Vec::new();
        for (bus, [port, upstream], downstream, gpus, node) in switches {
            for (side, gpu) in downstream.into_iter().zip(gpus) {
                machine.gpu(bus, &[port, upstream, side], gpu, node);
                addresses.push(gpu);
            }
        }
        (machine, addresses)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::machine::{Machine, dgx};
    use super::*;

    fn places(machine: &Machine, addresses: &[&str]) -> Vec<(Option<String>, Option<String>)> {
        let addresses: Vec<PciAddress> =
            addresses.iter().map(|text| text.parse().unwrap()).collect();
        let places = Sysfs::new(&machine.root()).places(&addresses);
        places
            .into_iter()
            .map(|place| (place.socket, place.switch.map(|switch| switch.to_string())))
            .collect()
    }

    fn place(socket: &str, switch: &str) -> (Option<String>, Option<String>) {
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        (known(socket), known(switch))
    }

    #[test]
    fn a_switch_is_the_nearest_bridge_that_is_shared() {
        let (machine, addresses) = dgx();
        let found = places(&machine, &addresses);
        let switches = [
            ("0", "0000:01:00.0"),
            ("0", "0000:11:00.0"),
            ("1", "0000:81:00.0"),
            ("1", "0000:91:00.0"),
        ];
        let expected = switches
            .iter()
            .flat_map(|(socket, switch)| [place(socket, switch), place(socket, switch)]);
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    #[test]
    fn one_gpu_has_the_switch_that_it_hangs_on_and_none_if_it_hangs_on_none() {
        let (machine, addresses) = dgx();
        assert_eq!(
            places(&machine, &addresses[..1]),
            [place("0", "0000:01:00.0")]
        );
        machine.gpu("pci0000:20", &["0000:20:01.0"], "0000:21:00.0", "1");
        assert_eq!(places(&machine, &["0000:21:00.0"]), [place("1", "")]);
    }

    #[test]
    fn several_nodes_of_a_socket_are_one_socket_and_without_processors_one_each() {
        let machine = Machine::new(2);
        machine.write("devices/system/cpu/cpu1/topology/physical_package_id", "0");
        machine.gpu("pci0000:00", &[], "0000:00:05.0", "0");
        machine.gpu("pci0000:40", &[], "0000:40:05.0", "1");
        machine.gpu("pci0000:60", &[], "0000:60:05.0", "7");
        let found = places(&machine, &["0000:00:05.0", "0000:40:05.0", "0000:60:05.0"]);
        assert_eq!(found, [place("0", ""), place("0", ""), place("7", "")]);
    }

    #[test]
    fn a_missing_numa_node_is_inferred_from_neighbours_or_the_only_node() {
        let machine = Machine::new(2);
        machine.gpu("pci0000:40", &["0000:40:01.0"], "0000:41:00.0", "1");
        machine.gpu("pci0000:40", &["0000:40:02.0"], "0000:42:00.0", "-1");
        machine.gpu("pci0000:60", &[], "0000:60:05.0", "-1");
        let found = places(&machine, &["0000:41:00.0", "0000:42:00.0", "0000:60:05.0"]);
        assert_eq!(found, [place("1", ""), place("1", ""), place("", "")]);
        let single = Machine::new(1);
        single.gpu("pci0000:00", &[], "0000:00:05.0", "-1");
        assert_eq!(places(&single, &["0000:00:05.0"]), [place("0", "")]);
    }

    #[test]
    fn missing_files_are_unknown_values() {
        let machine = Machine::new(1);
        assert_eq!(places(&machine, &["0000:00:05.0"]), [place("", "")]);
    }
}
