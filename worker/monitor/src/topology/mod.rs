//! Location of this host and its GPUs: the surrounding cells from the settings, the inner ones from the
//! settings or by detection.

mod config;
mod pci;
mod sysfs;

use std::collections::BTreeMap;

use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_model::topology::{ReportedGpu, ReportedTopology};

pub use config::{DeclaredCells, TopologyConfig};
pub use pci::{PciAddress, PciAddressError};
pub use sysfs::{GpuLocation, Sysfs};

/// Level of the cells whose GPUs are attached to one CPU socket.
pub const SOCKET_LEVEL: &str = "socket";
/// Level of the cells whose GPUs are attached to one PCIe switch.
pub const SWITCH_LEVEL: &str = "switch";

/// Determines the location of this host.
///
/// Inner cells declared in the settings take precedence; without them the machine is inspected, if the
/// settings permit it and the PCI addresses of the GPUs are known. If nothing can be detected, the inner
/// cells are unknown.
#[must_use]
pub fn learn(
    config: &TopologyConfig,
    gpus: &[GpuDescription],
    addresses: &BTreeMap<GpuUuid, PciAddress>,
) -> ReportedTopology {
    let (inside, mut places) = if config.inside.is_empty() {
        detected(config, gpus, addresses)
    } else {
        declared(&config.inside, gpus)
    };
    for gpu in &mut places {
        if let Some(address) = addresses.get(&gpu.uuid) {
            gpu.pci_address = address.to_string();
        }
    }
    places.sort_by_key(|gpu| gpu.uuid);
    ReportedTopology {
        above: config.above.clone(),
        inside,
        gpus: places,
    }
}

fn declared(levels: &[DeclaredCells], gpus: &[GpuDescription]) -> (Vec<String>, Vec<ReportedGpu>) {
    let cell = |level: &DeclaredCells, position: u32| {
        let cell = level.gpus.iter().position(|cell| cell.contains(&position));
        cell.map_or_else(String::new, |cell| cell.to_string())
    };
    let places = gpus.iter().zip(0..).map(|(gpu, position)| ReportedGpu {
        uuid: gpu.uuid,
        pci_address: String::new(),
        cells: levels.iter().map(|level| cell(level, position)).collect(),
    });
    let names = levels.iter().map(|level| level.level.clone());
    (names.collect(), places.collect())
}

fn detected(
    config: &TopologyConfig,
    gpus: &[GpuDescription],
    addresses: &BTreeMap<GpuUuid, PciAddress>,
) -> (Vec<String>, Vec<ReportedGpu>) {
    let known: Vec<(GpuUuid, PciAddress)> = gpus
        .iter()
        .filter_map(|gpu| Some((gpu.uuid, *addresses.get(&gpu.uuid)?)))
        .collect();
    if known.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let looked_at: Vec<PciAddress> = known.iter().map(|(_, address)| *address).collect();
    let found = if config.detect {
        Sysfs::new(&config.sysfs_root).places(&looked_at)
    } else {
        vec![GpuLocation::default(); looked_at.len()]
    };
    let all = [
        (
            SOCKET_LEVEL,
            found
                .iter()
                .map(|place| place.socket.clone())
                .collect::<Vec<_>>(),
        ),
        (
            SWITCH_LEVEL,
            found
                .iter()
                .map(|place| place.switch.map(|switch| switch.to_string()))
                .collect(),
        ),
    ];
    let (levels, cells): (Vec<String>, Vec<Vec<Option<String>>>) = all
        .into_iter()
        .filter(|(_, cells)| cells.iter().any(Option::is_some))
        .map(|(level, cells)| (level.to_owned(), cells))
        .unzip();
    if levels.is_empty() && config.detect {
        let root = config.sysfs_root.display();
        tracing::info!(%root, "cannot detect which GPUs share a socket or a PCIe switch");
    }
    let places = known
        .iter()
        .enumerate()
        .map(|(position, (uuid, _))| ReportedGpu {
            uuid: *uuid,
            pci_address: String::new(),
            cells: cells
                .iter()
                .map(|level| level[position].clone().unwrap_or_default())
                .collect(),
        });
    (levels, places.collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::sysfs::machine::{Machine, dgx};
    use super::*;

    fn gpus(count: u32) -> Vec<GpuDescription> {
        (0..count)
            .map(|index| GpuDescription {
                // In reverse of the list, which is ordered by index.
                uuid: GpuUuid(u128::from(100 - index)),
                index,
                model: "H100".to_owned(),
                memory_mib: 1,
            })
            .collect()
    }

    fn addressed(gpus: &[GpuDescription], addresses: &[&str]) -> BTreeMap<GpuUuid, PciAddress> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        gpus.iter().map(|gpu| gpu.uuid).zip(addresses).collect()
    }

    fn cells<'a>(tree: &'a ReportedTopology, gpus: &[GpuDescription]) -> Vec<Vec<&'a str>> {
        gpus.iter()
            .map(|gpu| {
                tree.gpu(gpu.uuid)
                    .unwrap()
                    .cells
                    .iter()
                    .map(String::as_str)
                    .collect()
            })
            .collect()
    }

    #[test]
    fn two_sockets_of_two_switches_of_two_gpus_are_found() {
        let (machine, addresses) = dgx();
        let gpus = gpus(8);
        let config = TopologyConfig {
            sysfs_root: machine.root(),
            ..TopologyConfig::default()
        };
        let tree = learn(&config, &gpus, &addressed(&gpus, &addresses));
        assert_eq!(tree.inside, [SOCKET_LEVEL, SWITCH_LEVEL]);
        assert_eq!(tree.broken_rule("reported"), None);
        let cells = cells(&tree, &gpus);
        assert_eq!(cells[0], cells[1]);
        assert_ne!(cells[1][1], cells[2][1]);
        assert_eq!(cells[0][0], cells[3][0]);
        assert_ne!(cells[3][0], cells[4][0]);
        assert_eq!(tree.gpu(gpus[0].uuid).unwrap().pci_address, addresses[0]);
    }

    #[test]
    fn a_flat_machine_has_no_switches_and_one_that_shows_nothing_no_cells() {
        let machine = Machine::new(1);
        machine.gpu("pci0000:00", &[], "0000:00:05.0", "-1");
        machine.gpu("pci0000:00", &[], "0000:00:06.0", "-1");
        let gpus = gpus(2);
        let addresses = addressed(&gpus, &["0000:00:05.0", "0000:00:06.0"]);
        let mut config = TopologyConfig {
            sysfs_root: machine.root(),
            ..TopologyConfig::default()
        };
        let tree = learn(&config, &gpus, &addresses);
        assert_eq!(tree.inside, [SOCKET_LEVEL]);
        assert_eq!(cells(&tree, &gpus), [["0"], ["0"]]);
        config.sysfs_root = machine.root().join("nowhere");
        let tree = learn(&config, &gpus, &addresses);
        assert_eq!((tree.inside.len(), tree.gpus.len()), (0, 2));
        config.detect = false;
        assert_eq!(learn(&config, &gpus, &addresses), tree);
        assert!(learn(&config, &gpus, &BTreeMap::new()).is_empty());
    }

    #[test]
    fn declared_topology_outranks_detected_topology() {
        let (machine, addresses) = dgx();
        let gpus = gpus(8);
        let config = TopologyConfig {
            sysfs_root: machine.root(),
            inside: vec![DeclaredCells {
                level: "island".to_owned(),
                gpus: vec![vec![0, 7], vec![1, 2, 3]],
            }],
            ..TopologyConfig::default()
        };
        let tree = learn(&config, &gpus, &addressed(&gpus, &addresses));
        assert_eq!(tree.inside, ["island"]);
        assert_eq!(
            cells(&tree, &gpus).concat(),
            ["0", "1", "1", "1", "", "", "", "0"]
        );
        assert_eq!(tree.gpu(gpus[7].uuid).unwrap().pci_address, addresses[7]);
    }
}
