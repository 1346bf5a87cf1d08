//! Allocation bases and claims.

use muster_engine::state::{Claim, Purpose, State};
use muster_model::command::{Standing, TaskPlacement, Victim};
use muster_model::host::HostClaim;
use muster_model::ids::{AttemptEpoch, JobId, UnitId, UnitIndex};
use muster_model::topology::CellId;

use crate::convert::{InvalidField, required};
use crate::v1;

impl TryFrom<v1::Standing> for Standing {
    type Error = InvalidField;

    fn try_from(wire: v1::Standing) -> Result<Self, InvalidField> {
        use v1::standing::Kind;
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

impl From<&Standing> for v1::Standing {
    fn from(standing: &Standing) -> Self {
        use v1::standing::{Cells, Kind, Plain};
        let kind = match standing {
            Standing::Share => Kind::Share(Plain {}),
            Standing::Opportunistic => Kind::Opportunistic(Plain {}),
            Standing::Cells(cells) => Kind::Cells(Cells {
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

/// Converts a claim, with names of cells and hosts.
pub(super) fn claim_to_wire(state: &State, claim: &Claim) -> v1::Claim {
    let tasks = claim.tasks.iter();
    v1::Claim {
        revision: claim.revision.get(),
        since_ms: claim.since.0,
        tasks: tasks.map(|task| task_to_wire(state, task)).collect(),
        standing: Some(standing_to_wire(state, &claim.standing)),
        victims: claim
            .victims
            .iter()
            .map(|victim| (*victim).into())
            .collect(),
        expected_at_ms: claim.expected_at.map(|at| at.0),
        purpose: purpose_to_wire(&claim.purpose).map(Into::into),
    }
}

/// Purpose of a claim, shared by the interface and the log, each of which has its own `oneof` for it.
pub(crate) enum WirePurpose {
    /// Resources freed by moving others.
    Gathered(v1::Gathered),
    /// Destination of a moving unit.
    Destination(v1::UnitName),
}

/// Purpose of a claim; none for an ordinary one.
pub(crate) fn purpose_to_wire(purpose: &Purpose) -> Option<WirePurpose> {
    match purpose {
        Purpose::Ordinary => None,
        Purpose::Gathered {
            moved,
            cost_gpu_ms,
            gain_gpu_ms,
        } => Some(WirePurpose::Gathered(v1::Gathered {
            moved: moved.iter().map(|one| (*one).into()).collect(),
            cost_gpu_ms: *cost_gpu_ms,
            gain_gpu_ms: *gain_gpu_ms,
        })),
        Purpose::Destination { job, unit } => {
            Some(WirePurpose::Destination(UnitId::new(*job, *unit).into()))
        }
    }
}

impl From<WirePurpose> for v1::claim::Purpose {
    fn from(purpose: WirePurpose) -> Self {
        match purpose {
            WirePurpose::Gathered(gathered) => Self::Gathered(gathered),
            WirePurpose::Destination(unit) => Self::Destination(unit),
        }
    }
}

fn task_to_wire(state: &State, task: &TaskPlacement) -> v1::ClaimedTask {
    v1::ClaimedTask {
        task: task.task.get(),
        host_id: task.host.get(),
        host: super::job::host_name(state, task.host),
        gpus: task.gpus.iter().map(ToString::to_string).collect(),
    }
}

/// Converts an allocation basis, with names of its cells.
pub(super) fn standing_to_wire(state: &State, standing: &Standing) -> v1::Standing {
    let mut wire = v1::Standing::from(standing);
    if let (Some(v1::standing::Kind::Cells(named)), Standing::Cells(cells)) =
        (&mut wire.kind, standing)
    {
        for (wire, cell) in named.cells.iter_mut().zip(cells) {
            wire.name = cell_name(state, cell);
        }
    }
    wire
}

/// Name of a cell in the configuration.
fn cell_name(state: &State, cell: &CellId) -> String {
    match cell {
        CellId::Above(path) => path.to_string(),
        CellId::Host(host) => super::job::host_name(state, *host),
        CellId::Inside(host, _, gpus) => {
            let host = super::job::host_name(state, *host);
            format!("{host}:{}", gpus.0.trailing_zeros())
        }
    }
}
