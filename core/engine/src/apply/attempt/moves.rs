//! Moves: attempts that continue elsewhere so that a claim gets contiguous room. Everything is checked again,
//! independently of the planner: which units may be moved, that each of them fits at its destination beside
//! the others, and the cost.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_model::command::{AllocationBasis, ClaimSpec, Move, Moving, StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::ids::{HostId, UnitId};
use muster_model::quota::Defragment;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::apply::attempt::placement::{infeasible, is_whole};
use crate::apply::attempt::{stopping, texts};
use crate::apply::job::admission::{self, AdmissionRequest};
use crate::feasibility::{self, Freed, Requester};
use crate::moves;
use crate::state::{Claim, Purpose, Running, State};

/// Checks the moves of a claim that is otherwise valid.
pub(in crate::apply) fn check_moves(
    state: &State,
    claiming: &ClaimSpec,
    hosts: &BTreeSet<HostId>,
    freed: &Freed,
) -> Result<(), Rejection> {
    let Some(moving) = &claiming.moving else {
        return Ok(());
    };
    let refuse = |detail: String| refused(claiming, detail);
    let config = state.defragment.as_ref();
    let config =
        config.ok_or_else(|| refuse("defragmentation is disabled in this cluster".to_owned()))?;
    check_numbers(state, config, claiming, moving).map_err(refuse)?;
    check_price(state, config, moving).map_err(refuse)?;
    // Each destination is checked together with the claim and the earlier destinations.
    let mut trial = state.clone();
    let mut step = Step {
        state: &mut trial,
        events: Vec::new(),
        finished: std::collections::VecDeque::new(),
        retries_in_place: Vec::new(),
    };
    step.reserve_gathered(claiming, moving, hosts);
    for one in &moving.moves {
        check_move(step.state, claiming, one, freed)?;
        step.reserve_destination(claiming, one);
    }
    Ok(())
}

fn refused(claiming: &ClaimSpec, detail: String) -> Rejection {
    Rejection::ClaimInfeasible {
        job: claiming.job,
        unit: claiming.unit,
        detail,
    }
}

fn check_numbers(
    state: &State,
    config: &Defragment,
    claiming: &ClaimSpec,
    moving: &Moving,
) -> Result<(), String> {
    if !claiming.victims.is_empty() || !claiming.supersedes.is_empty() {
        return Err("it moves units, so it cannot preempt or supersede others".to_owned());
    }
    if claiming.basis != AllocationBasis::Share {
        return Err("units are moved only for work on its queue's share".to_owned());
    }
    let count = u32::try_from(moving.moves.len()).unwrap_or(u32::MAX);
    if count == 0 || count > config.moves_max {
        return Err(format!(
            "its {count} moves do not lie within 1 to {} (moves_max)",
            config.moves_max
        ));
    }
    let in_flight = moves::in_flight(state);
    if in_flight.saturating_add(count) > config.moves_in_flight_max {
        return Err(format!(
            "with its {count} moves {} units would be moving, over the limit of {} (moves_in_flight_max)",
            in_flight.saturating_add(count),
            config.moves_in_flight_max
        ));
    }
    let ascend = moving
        .moves
        .is_sorted_by(|one, other| one.attempt < other.attempt);
    if !ascend {
        return Err("its moves must ascend".to_owned());
    }
    Ok(())
}

/// Checks that every unit may be moved and that the gain is worth the lost work.
fn check_price(state: &State, config: &Defragment, moving: &Moving) -> Result<(), String> {
    for one in &moving.moves {
        let mover = mover(state, one)?;
        moves::may_move(state, config, mover)
            .map_err(|fixed| format!("job {} cannot be moved: {fixed}", one.attempt.job))?;
    }
    let cost_gpu_ms = cost_gpu_ms(state, config, moving);
    if !moves::is_worth(config, cost_gpu_ms, moving.gain_gpu_ms) {
        return Err(format!(
            "its moves cost {cost_gpu_ms} GPU-ms, over {} % of the {} GPU-ms that they gain (cost_percent_max)",
            config.cost_percent_max, moving.gain_gpu_ms
        ));
    }
    Ok(())
}

fn cost_gpu_ms(state: &State, config: &Defragment, moving: &Moving) -> u64 {
    let movers = moving.moves.iter().filter_map(|one| mover(state, one).ok());
    let costs = movers.map(|mover| moves::cost_gpu_ms(config, mover, state.time));
    costs.fold(0, u64::saturating_add)
}

/// Returns the unit that a move names, with its current attempt.
fn mover<'a>(state: &'a State, one: &Move) -> Result<Running<'a>, String> {
    let named = one.attempt;
    Running::of(state, named.unit_id())
        .filter(|running| running.attempt.epoch == named.epoch)
        .ok_or_else(|| {
            format!(
                "attempt {} of unit {} of job {} is not the current one",
                named.epoch, named.unit, named.job
            )
        })
}

/// Checks that a unit fits at its destination beside all claims in the state, and that its queue permits it.
fn check_move(
    state: &State,
    claiming: &ClaimSpec,
    one: &Move,
    freed: &Freed,
) -> Result<(), Rejection> {
    let refuse = |detail: String| refused(claiming, detail);
    let Running {
        job,
        index: unit,
        attempt,
        ..
    } = mover(state, one).map_err(refuse)?;
    if one.tasks.len() < attempt.tasks.len() || !is_whole(job, unit, &one.tasks) {
        let detail = format!(
            "the destination of job {} does not hold all its tasks",
            job.id
        );
        return Err(refuse(detail));
    }
    let requester = Requester::for_claim(job, unit, claiming.expected_at, state.time);
    feasibility::check(state, requester, &one.tasks, freed)
        .map_err(|unfit| infeasible(job.id, unfit))?;
    admission::check(
        state,
        AdmissionRequest {
            job,
            unit,
            allocation_basis: &attempt.allocation_basis,
            tasks: &one.tasks,
            freed,
        },
    )
}

impl Step<'_> {
    /// Makes the claim of a unit for which others are moved, and moves them.
    pub(in crate::apply) fn move_others(
        &mut self,
        claiming: &ClaimSpec,
        moving: &Moving,
        hosts: &BTreeSet<HostId>,
    ) {
        let cost_gpu_ms = self.reserve_gathered(claiming, moving, hosts);
        self.emit_claimed(claiming);
        self.emit(EventKind::UnitsMoved {
            job: claiming.job,
            unit: claiming.unit,
            moved: moving.moves.iter().map(|one| one.attempt).collect(),
            cost_gpu_ms,
            gain_gpu_ms: moving.gain_gpu_ms,
        });
        let detail = texts::claimant(self.job_mut(claiming.job), claiming.unit);
        let cause = StopCause::new(StopReason::Defragmented, detail);
        for one in &moving.moves {
            self.reserve_destination(claiming, one);
            let id = one.attempt.unit_id();
            let UnitId { job, unit } = id;
            let gpus = one.tasks.iter().map(|task| task.gpus.len());
            self.emit(EventKind::UnitClaimed {
                job,
                unit,
                gpus: u32::try_from(gpus.sum::<usize>()).unwrap_or(u32::MAX),
                victims: Vec::new(),
                expected_at: claiming.expected_at,
            });
            self.unit_mut(id).moved_at = Some(self.state.time);
            let grace_ms = stopping::grace_ms(&self.job_mut(job).spec, &cause.reason);
            self.order_stop(id, cause.clone(), grace_ms);
        }
    }

    /// Claims the freed room; returns what the moves lose.
    fn reserve_gathered(
        &mut self,
        claiming: &ClaimSpec,
        moving: &Moving,
        hosts: &BTreeSet<HostId>,
    ) -> u64 {
        let config = self.state.defragment;
        let cost_gpu_ms = config.map_or(0, |config| cost_gpu_ms(self.state, &config, moving));
        let mut claim = self.claim_of(claiming);
        claim.purpose = Purpose::Gathered {
            moved: moving.moves.iter().map(|one| one.attempt).collect(),
            cost_gpu_ms,
            gain_gpu_ms: moving.gain_gpu_ms,
        };
        self.reserve(claiming.unit_id(), claim, hosts);
        cost_gpu_ms
    }

    /// Claims the destination of a moved unit.
    fn reserve_destination(&mut self, claiming: &ClaimSpec, one: &Move) {
        let claim = Claim {
            tasks: Arc::clone(&one.tasks),
            allocation_basis: AllocationBasis::Share,
            purpose: Purpose::Destination {
                job: claiming.job,
                unit: claiming.unit,
            },
            ..self.claim_of(claiming)
        };
        let hosts = one.tasks.iter().map(|task| task.host).collect();
        self.reserve(one.attempt.unit_id(), claim, &hosts);
    }
}
