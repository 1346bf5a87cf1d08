//! Samples of the third version: topology reported by workers.

use std::sync::Arc;

use muster_engine::state::State;
use muster_model::command::{Command, HostCommand, HostRegistration};
use muster_model::event::EventKind;
use muster_model::ids::{GpuUuid, HostId};
use muster_model::topology::{NamedCell, ReportedGpu, ReportedTopology};

use crate::frozen::samples::{LEADER, gpu, registration};

/// A pod and a rack, and the cells of some GPUs.
pub(crate) fn tree(gpus: &[GpuUuid]) -> ReportedTopology {
    let named = |level: &str, name: &str| NamedCell {
        level: level.to_owned(),
        name: name.to_owned(),
    };
    ReportedTopology {
        above: vec![named("pod", "pod-1"), named("rack", "rack-07")],
        inside: vec!["socket".to_owned(), "switch".to_owned()],
        gpus: gpus
            .iter()
            .map(|uuid| ReportedGpu {
                uuid: *uuid,
                pci_address: "0000:19:00.0".to_owned(),
                cells: vec!["0".to_owned(), "0000:17:00.0".to_owned()],
            })
            .collect(),
    }
}

/// Commands of the third version, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let known = registration();
    let gpus: Vec<GpuUuid> = known.gpus.iter().map(|gpu| gpu.uuid).collect();
    let registration = HostRegistration {
        reported: tree(&gpus),
        ..known
    };
    let command = Command::Host(HostCommand::RegisterHost {
        leader: LEADER,
        registration: Arc::new(registration),
    });
    vec![("register_host_with_reported_cells", command)]
}

/// One event of every kind of the third version.
pub(crate) fn kinds() -> Vec<EventKind> {
    vec![
        EventKind::LevelsChanged {
            above: vec!["pod".to_owned(), "rack".to_owned()],
            inside: vec!["socket".to_owned(), "switch".to_owned()],
        },
        EventKind::HostCellsDoubted {
            host: HostId(2),
            name: "node2".to_owned(),
            flaws: vec!["its worker names no `pod`".to_owned()],
        },
    ]
}

/// The first version's state, with one host at the location reported by its worker.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.hosts[0].reported_topology = Arc::new(tree(&[gpu(0), gpu(1)]));
    State::restore(parts)
}
