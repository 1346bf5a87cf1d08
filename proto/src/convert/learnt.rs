//! Topology of hosts: as reported by their workers, and as in effect.

use muster_model::topology::{CellSource, HostCells, LearntGpu, LearntTree, NamedCell, Topology};

use crate::convert::{InvalidField, gpu_uuid};
use crate::v1;

/// A reported tree on the wire; none if it is empty.
pub(crate) fn learnt_to_wire(tree: &LearntTree) -> Option<v1::LearntTree> {
    (!tree.is_empty()).then(|| v1::LearntTree {
        above: { tree.above.iter() }
            .map(|cell| v1::NamedCell {
                level: cell.level.clone(),
                name: cell.name.clone(),
            })
            .collect(),
        inside: tree.inside.clone(),
        gpus: { tree.gpus.iter() }
            .map(|gpu| v1::LearntGpu {
                uuid: gpu.uuid.to_string(),
                pci_address: gpu.pci_address.clone(),
                cells: gpu.cells.clone(),
            })
            .collect(),
    })
}

/// A reported tree from the wire; an absent one is empty.
pub(crate) fn learnt_from_wire(wire: Option<v1::LearntTree>) -> Result<LearntTree, InvalidField> {
    let wire = wire.unwrap_or_default();
    let gpus = wire.gpus.into_iter().enumerate().map(|(position, gpu)| {
        let uuid = gpu_uuid("uuid", &gpu.uuid)
            .map_err(|invalid| invalid.within_item("learnt.gpus", position))?;
        Ok::<_, InvalidField>(LearntGpu {
            uuid,
            pci_address: gpu.pci_address,
            cells: gpu.cells,
        })
    });
    let above = wire.above.into_iter().map(|cell| NamedCell {
        level: cell.level,
        name: cell.name,
    });
    Ok(LearntTree {
        above: above.collect(),
        inside: wire.inside,
        gpus: gpus.collect::<Result<_, _>>()?,
    })
}

/// A host's cells in the client interface.
pub(crate) fn cells_to_wire(topology: &Topology, cells: &HostCells) -> v1::HostCells {
    let inside = cells.inside.iter().map(|cell| v1::CellGroup {
        level: topology.name(cell.level).unwrap_or_default().to_owned(),
        gpus: cell
            .gpus
            .positions()
            .filter_map(|at| u32::try_from(at).ok())
            .collect(),
    });
    v1::HostCells {
        path: cells
            .above
            .last()
            .map_or_else(String::new, ToString::to_string),
        path_by: v1::CellSource::from(cells.above_by).into(),
        inside: inside.collect(),
        inside_by: v1::CellSource::from(cells.inside_by).into(),
        flaws: cells.flaws.iter().map(ToString::to_string).collect(),
    }
}

impl From<CellSource> for v1::CellSource {
    fn from(source: CellSource) -> Self {
        match source {
            CellSource::Nobody => Self::Unspecified,
            CellSource::Configuration => Self::Configuration,
            CellSource::Worker => Self::Worker,
        }
    }
}
