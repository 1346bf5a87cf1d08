//! Topology: configuration, and single cells.

use muster_model::ids::HostId;
use muster_model::limits::GPUS_PER_HOST_MAX;
use muster_model::topology::{CellGroup, CellId, CellPlace, GpuMask, HostShape, Level, Topology};

use crate::field::{InvalidField, required};
use crate::v1;

impl From<v1::Topology> for Topology {
    fn from(wire: v1::Topology) -> Self {
        let places = wire.places.into_iter().map(|place| CellPlace {
            cell: place.cell,
            hosts: place.hosts,
        });
        Self {
            above: wire.above,
            inside: wire.inside,
            places: places.collect(),
            shapes: wire.shapes.into_iter().map(shape_from_wire).collect(),
        }
    }
}

impl From<&Topology> for v1::Topology {
    fn from(topology: &Topology) -> Self {
        let places = topology.places.iter().map(|place| v1::CellPlace {
            cell: place.cell.clone(),
            hosts: place.hosts.clone(),
        });
        Self {
            above: topology.above.clone(),
            inside: topology.inside.clone(),
            places: places.collect(),
            shapes: topology.shapes.iter().map(shape_to_wire).collect(),
        }
    }
}

fn shape_from_wire(wire: v1::HostShape) -> HostShape {
    let groups = wire.groups.into_iter().map(|group| CellGroup {
        level: group.level,
        gpus: group.gpus,
    });
    HostShape {
        gpu_model: wire.gpu_model,
        gpus: wire.gpus,
        hosts: wire.hosts,
        groups: groups.collect(),
    }
}

fn shape_to_wire(shape: &HostShape) -> v1::HostShape {
    let groups = shape.groups.iter().map(|group| v1::CellGroup {
        level: group.level.clone(),
        gpus: group.gpus.clone(),
    });
    v1::HostShape {
        gpu_model: shape.gpu_model.clone(),
        gpus: shape.gpus,
        hosts: shape.hosts.clone(),
        groups: groups.collect(),
    }
}

impl TryFrom<v1::Cell> for CellId {
    type Error = InvalidField;

    fn try_from(wire: v1::Cell) -> Result<Self, InvalidField> {
        use v1::cell::Id;
        Ok(match required("id", wire.id)? {
            Id::Above(path) => Self::Above(path.into()),
            Id::HostId(host) => Self::Host(HostId(host)),
            Id::Inside(cell) => {
                let level = u8::try_from(cell.level).map_err(|_| {
                    let rule = format!("{} is not a level", cell.level);
                    InvalidField::new("inside.level", rule)
                })?;
                Self::Inside(HostId(cell.host_id), Level(level), mask(&cell.gpus)?)
            }
        })
    }
}

/// Mask of GPU positions, which must be ascending.
fn mask(positions: &[u32]) -> Result<GpuMask, InvalidField> {
    let ascend = positions.is_sorted_by(|earlier, later| earlier < later);
    let in_range = positions
        .iter()
        .all(|position| (*position as usize) < GPUS_PER_HOST_MAX);
    if !ascend || !in_range {
        let rule = format!(
            "must be positions below {GPUS_PER_HOST_MAX} (GPUS_PER_HOST_MAX), ascending and each once"
        );
        return Err(InvalidField::new("inside.gpus", rule));
    }
    let gpus = positions.iter().map(|at| GpuMask::one(*at as usize));
    Ok(gpus.fold(GpuMask::default(), GpuMask::or))
}

impl From<&CellId> for v1::Cell {
    fn from(cell: &CellId) -> Self {
        use v1::cell::Id;
        let id = match cell {
            CellId::Above(path) => Id::Above(path.to_string()),
            CellId::Host(host) => Id::HostId(host.get()),
            CellId::Inside(host, level, gpus) => Id::Inside(v1::InsideCell {
                host_id: host.get(),
                level: level.0.into(),
                gpus: positions(*gpus),
            }),
        };
        Self {
            id: Some(id),
            name: String::new(),
        }
    }
}

fn positions(gpus: GpuMask) -> Vec<u32> {
    (0..u128::BITS)
        .filter(|position| gpus.has(*position as usize))
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_cell_inside_a_host_survives_the_round_trip_with_its_last_gpu() {
        let cell = CellId::Inside(HostId(7), Level(3), GpuMask(1 << 127 | 0b101));
        assert_eq!(CellId::try_from(v1::Cell::from(&cell)).unwrap(), cell);
    }

    #[test]
    fn positions_that_do_not_ascend_or_are_too_great_are_refused_by_field() {
        for gpus in [vec![1, 1], vec![2, 1], vec![128]] {
            let inside = v1::InsideCell {
                host_id: 1,
                level: 2,
                gpus,
            };
            let wire = v1::Cell {
                id: Some(v1::cell::Id::Inside(inside)),
                name: String::new(),
            };
            assert_eq!(CellId::try_from(wire).unwrap_err().field, "inside.gpus");
        }
    }
}
