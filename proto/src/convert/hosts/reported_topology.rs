//! Topology of hosts: as reported by their workers, and as in effect.

use muster_model::topology::{CellSource, NamedCell, ReportedGpu, ReportedTopology};

use crate::convert::gpu_uuid;
use crate::field::InvalidField;
use crate::v1;

/// A reported tree on the wire; none if it is empty.
#[must_use]
pub fn reported_to_wire(tree: &ReportedTopology) -> Option<v1::ReportedTopology> {
    (!tree.is_empty()).then(|| v1::ReportedTopology {
        above: tree
            .above
            .iter()
            .map(|cell| v1::NamedCell {
                level: cell.level.clone(),
                name: cell.name.clone(),
            })
            .collect(),
        inside: tree.inside.clone(),
        gpus: tree
            .gpus
            .iter()
            .map(|gpu| v1::ReportedGpu {
                uuid: gpu.uuid.to_string(),
                pci_address: gpu.pci_address.clone(),
                cells: gpu.cells.clone(),
            })
            .collect(),
    })
}

/// A reported tree from the wire; an absent one is empty.
///
/// # Errors
/// [`InvalidField`] if a GPU has no UUID.
pub fn reported_from_wire(
    wire: Option<v1::ReportedTopology>,
) -> Result<ReportedTopology, InvalidField> {
    let wire = wire.unwrap_or_default();
    let gpus = wire.gpus.into_iter().enumerate().map(|(position, gpu)| {
        let uuid = gpu_uuid("uuid", &gpu.uuid)
            .map_err(|invalid| invalid.within_item("reported.gpus", position))?;
        Ok::<_, InvalidField>(ReportedGpu {
            uuid,
            pci_address: gpu.pci_address,
            cells: gpu.cells,
        })
    });
    let above = wire.above.into_iter().map(|cell| NamedCell {
        level: cell.level,
        name: cell.name,
    });
    Ok(ReportedTopology {
        above: above.collect(),
        inside: wire.inside,
        gpus: gpus.collect::<Result<_, _>>()?,
    })
}

impl From<CellSource> for v1::CellSource {
    fn from(source: CellSource) -> Self {
        match source {
            CellSource::None => Self::Unspecified,
            CellSource::Configuration => Self::Configuration,
            CellSource::Worker => Self::Worker,
        }
    }
}
