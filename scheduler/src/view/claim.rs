//! Allocation bases and claims, with names of cells and hosts.

use muster_engine::state::{Claim, Purpose, State};
use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::ids::UnitId;
use muster_model::topology::CellId;
use muster_proto::v1;

use crate::view::host_name;

/// Converts a claim, with names of cells and hosts.
pub(crate) fn claim_to_wire(state: &State, claim: &Claim) -> v1::Claim {
    let tasks = claim.tasks.iter();
    v1::Claim {
        revision: claim.revision.get(),
        since_ms: claim.since.0,
        tasks: tasks.map(|task| task_to_wire(state, task)).collect(),
        allocation_basis: Some(basis_to_wire(state, &claim.allocation_basis)),
        victims: claim
            .victims
            .iter()
            .map(|victim| (*victim).into())
            .collect(),
        expected_at_ms: claim.expected_at.map(|at| at.0),
        purpose: purpose_to_wire(&claim.purpose),
    }
}

/// Role of a claim in moves; none for an ordinary one.
fn purpose_to_wire(purpose: &Purpose) -> Option<v1::claim::Purpose> {
    use v1::claim::Purpose as Wire;
    match purpose {
        Purpose::Ordinary => None,
        Purpose::Gathered {
            moved,
            cost_gpu_ms,
            gain_gpu_ms,
        } => Some(Wire::Gathered(v1::Gathered {
            moved: moved.iter().map(|one| (*one).into()).collect(),
            cost_gpu_ms: *cost_gpu_ms,
            gain_gpu_ms: *gain_gpu_ms,
        })),
        Purpose::Destination { job, unit } => {
            Some(Wire::Destination(UnitId::new(*job, *unit).into()))
        }
    }
}

fn task_to_wire(state: &State, task: &TaskPlacement) -> v1::ClaimedTask {
    v1::ClaimedTask {
        task: task.task.get(),
        host_id: task.host.get(),
        host: host_name(state, task.host),
        gpus: task.gpus.iter().map(ToString::to_string).collect(),
    }
}

/// Converts an allocation basis, with names of its cells.
pub(crate) fn basis_to_wire(
    state: &State,
    allocation_basis: &AllocationBasis,
) -> v1::AllocationBasis {
    let mut wire = v1::AllocationBasis::from(allocation_basis);
    if let (Some(v1::allocation_basis::Kind::Cells(named)), AllocationBasis::Cells(cells)) =
        (&mut wire.kind, allocation_basis)
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
        CellId::Host(host) => host_name(state, *host),
        CellId::Inside(host, _, gpus) => {
            let host = host_name(state, *host);
            format!("{host}:{}", gpus.0.trailing_zeros())
        }
    }
}
