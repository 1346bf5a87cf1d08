//! Draws of host locations: mostly consistent reports, occasionally contradictory ones.

use std::sync::Arc;

use muster_model::command::{Command, ConfigCommand, HostRegistration};
use muster_model::testing::request_key;
use muster_model::topology::{
    CellGroup, CellPlace, HostShape, NamedCell, ReportedGpu, ReportedTopology, Topology,
};

use crate::draw::{Draw, HOSTS, REQUESTS};

impl Draw<'_> {
    /// A worker's report: half of them empty, most others racks of two hosts and sockets of two GPUs.
    pub(super) fn learn_place(&mut self, registration: &mut HostRegistration) {
        if self.once_in(2) {
            return;
        }
        let own = u64::from(registration.worker_id.0 > 2);
        let rack = if self.once_in(6) { self.below(3) } else { own };
        let pod = if self.once_in(6) { self.below(2) } else { 0 };
        let named = |level: &str, number: u64| NamedCell {
            level: level.to_owned(),
            name: format!("{level}-{number}"),
        };
        let mut above = vec![named("pod", pod), named("rack", rack)];
        match self.below(12) {
            0 => above.clear(),
            1 | 2 => drop(above.remove(0)),
            3 => above.reverse(),
            4 => above.insert(0, named("zone", 0)),
            _ => {}
        }
        let mut inside = vec!["socket".to_owned(), "switch".to_owned()];
        if self.once_in(10) {
            inside.reverse();
        }
        let straddles = self.once_in(8);
        let mut gpus: Vec<ReportedGpu> = registration
            .gpus
            .iter()
            .map(|gpu| ReportedGpu {
                uuid: gpu.uuid,
                pci_address: String::new(),
                cells: vec![
                    (gpu.index / 2).to_string(),
                    if straddles {
                        "x".to_owned()
                    } else {
                        (gpu.index / 2).to_string()
                    },
                ],
            })
            .collect();
        gpus.sort_by_key(|gpu| gpu.uuid);
        gpus.dedup_by_key(|gpu| gpu.uuid);
        if self.once_in(6) {
            gpus.pop();
        }
        registration.reported = ReportedTopology {
            above,
            inside,
            gpus,
        };
    }

    /// A topology that names some of the hosts, or none.
    pub(super) fn topology(&mut self) -> Command {
        let mut topology = Topology::default();
        if self.once_in(2) {
            topology.above = vec!["rack".to_owned()];
            let hosts = (1..=HOSTS).filter(|_| self.once_in(2));
            let hosts: Vec<String> = hosts.map(|number| format!("node-{number:04}")).collect();
            topology.places.push(CellPlace {
                cell: vec![format!("rack-{}", self.below(2))],
                hosts,
            });
        }
        if self.once_in(2) {
            topology.inside = vec!["pcie".to_owned()];
            topology.shapes.push(HostShape {
                gpus: 4,
                gpu_model: ["A100", "H100"][usize::from(self.once_in(2))].to_owned(),
                groups: vec![CellGroup {
                    level: "pcie".to_owned(),
                    gpus: vec![1, 2],
                }],
                ..HostShape::default()
            });
        }
        Command::Config(ConfigCommand::SetTopology {
            request: request_key(self.below(REQUESTS)),
            author: "grace".to_owned(),
            topology: Arc::new(topology),
        })
    }
}
