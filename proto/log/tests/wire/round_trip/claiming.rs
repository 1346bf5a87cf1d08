//! Claims and allocation bases.

use muster_model::command::{AllocationBasis, ClaimSpec, Command, Move, Moving, Victim};
use muster_model::ids::{HostId, UnitId};
use muster_model::time::TimeMs;
use muster_model::topology::{CellId, GpuMask, Level};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::{epoch, job, leader, placed_tasks, text, unit};

fn cell() -> impl Strategy<Value = CellId> {
    prop_oneof![
        text().prop_map(|path| CellId::Above(path.into())),
        any::<u32>().prop_map(|host| CellId::Host(HostId(host))),
        (any::<u32>(), any::<u8>(), any::<u128>()).prop_map(|(host, level, gpus)| {
            CellId::Inside(HostId(host), Level(level), GpuMask(gpus))
        }),
    ]
}

pub(super) fn allocation_basis() -> impl Strategy<Value = AllocationBasis> {
    prop_oneof![
        4 => Just(AllocationBasis::Share),
        1 => Just(AllocationBasis::Opportunistic),
        1 => vec(cell(), 0..3).prop_map(AllocationBasis::Cells),
    ]
}

fn victim() -> impl Strategy<Value = Victim> {
    (job(), unit(), epoch()).prop_map(|(job, unit, epoch)| Victim { job, unit, epoch })
}

fn moving() -> impl Strategy<Value = Moving> {
    let one = (victim(), placed_tasks()).prop_map(|(attempt, tasks)| Move {
        attempt,
        tasks: tasks.into(),
    });
    (vec(one, 0..3), any::<u64>()).prop_map(|(moves, gain_gpu_ms)| Moving { moves, gain_gpu_ms })
}

fn claiming() -> impl Strategy<Value = ClaimSpec> {
    let whose = (leader(), job(), unit());
    let others = (
        vec(victim(), 0..3),
        vec(
            (job(), unit()).prop_map(|(job, unit)| UnitId::new(job, unit)),
            0..3,
        ),
        option::of(moving()),
    );
    (
        whose,
        placed_tasks(),
        allocation_basis(),
        others,
        option::of(any::<u64>()),
    )
        .prop_map(
            |((leader, job, unit), tasks, allocation_basis, others, expected_at)| ClaimSpec {
                leader,
                job,
                unit,
                tasks: tasks.into(),
                basis: allocation_basis,
                victims: others.0,
                supersedes: others.1,
                moving: others.2,
                expected_at: expected_at.map(TimeMs),
            },
        )
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        claiming().prop_map(Command::Claim),
        (leader(), job(), unit(), text()).prop_map(|(leader, job, unit, reason)| {
            Command::DropClaim {
                leader,
                job,
                unit,
                reason,
            }
        }),
        (leader(), job(), unit(), epoch(), allocation_basis()).prop_map(
            |(leader, job, unit, epoch, allocation_basis)| Command::SetAllocationBasis {
                leader,
                job,
                unit,
                epoch,
                allocation_basis,
            }
        ),
    ]
}
