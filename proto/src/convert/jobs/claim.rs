//! Allocation bases and claims.

use muster_model::command::{AllocationBasis, Victim};
use muster_model::host::HostClaim;
use muster_model::ids::{AttemptEpoch, JobId, UnitId, UnitIndex};
use muster_model::topology::CellId;

use crate::field::{InvalidField, required};
use crate::v1;

impl TryFrom<v1::AllocationBasis> for AllocationBasis {
    type Error = InvalidField;

    fn try_from(wire: v1::AllocationBasis) -> Result<Self, InvalidField> {
        use v1::allocation_basis::Kind;
        Ok(match required("kind", wire.kind)? {
            Kind::Share(_) => Self::Share,
            Kind::Opportunistic(_) => Self::Opportunistic,
            Kind::Cells(cells) => {
                let cells = cells.cells.into_iter().enumerate().map(|(position, cell)| {
                    CellId::try_from(cell)
                        .map_err(|invalid| invalid.within_item("cells.cells", position))
                });
                Self::Cells(cells.collect::<Result<_, _>>()?)
            }
        })
    }
}

impl From<&AllocationBasis> for v1::AllocationBasis {
    fn from(allocation_basis: &AllocationBasis) -> Self {
        use v1::allocation_basis::{Cells, Kind, Plain};
        let kind = match allocation_basis {
            AllocationBasis::Share => Kind::Share(Plain {}),
            AllocationBasis::Opportunistic => Kind::Opportunistic(Plain {}),
            AllocationBasis::Cells(cells) => Kind::Cells(Cells {
                cells: cells.iter().map(Into::into).collect(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl From<v1::Victim> for Victim {
    fn from(wire: v1::Victim) -> Self {
        Self {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
        }
    }
}

impl From<Victim> for v1::Victim {
    fn from(victim: Victim) -> Self {
        Self {
            job_id: victim.job.get(),
            unit: victim.unit.get(),
            epoch: victim.epoch.get(),
        }
    }
}

impl From<UnitId> for v1::UnitName {
    fn from(id: UnitId) -> Self {
        Self {
            job_id: id.job.get(),
            unit: id.unit.get(),
        }
    }
}

impl From<v1::UnitName> for UnitId {
    fn from(wire: v1::UnitName) -> Self {
        Self::new(JobId(wire.job_id), UnitIndex(wire.unit))
    }
}

impl From<HostClaim> for v1::HostClaim {
    fn from(claim: HostClaim) -> Self {
        Self {
            job_id: claim.job.get(),
            unit: claim.unit.get(),
            cpus_milli: claim.cpus_milli,
            memory_mib: claim.memory_mib,
        }
    }
}

impl From<v1::HostClaim> for HostClaim {
    fn from(wire: v1::HostClaim) -> Self {
        Self {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            cpus_milli: wire.cpus_milli,
            memory_mib: wire.memory_mib,
        }
    }
}
