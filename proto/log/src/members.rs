//! Replacement of single members of gangs.

use muster_engine::state::{Joined, Leaving, Membership, Vacancy};
use muster_model::command::MemberSwap;
use muster_model::ids::{AttemptEpoch, JobId, LeadershipEpoch, TaskIndex, UnitIndex};
use muster_model::job::StopOrder;
use muster_model::time::TimeMs;
use muster_proto::field::{InvalidField, enumeration, required};

use crate::error::Field;
use crate::state::{run_from_wire, run_to_wire};
use crate::{claim, v1};

pub(super) fn swap_to_wire(swap: &MemberSwap) -> v1::SwapMember {
    let tasks = claim::tasks_to_wire(std::slice::from_ref(&swap.task));
    v1::SwapMember {
        leader: swap.leader.get(),
        job: swap.job.get(),
        unit: swap.unit.get(),
        epoch: swap.epoch.get(),
        task: tasks.into_iter().next(),
    }
}

pub(super) fn swap_from_wire(wire: v1::SwapMember) -> Field<MemberSwap> {
    let task = required("swap_member.task", wire.task)?;
    let task = claim::tasks_from_wire(vec![task])?.into_iter().next();
    Ok(MemberSwap {
        leader: LeadershipEpoch(wire.leader),
        job: JobId(wire.job),
        unit: UnitIndex(wire.unit),
        epoch: AttemptEpoch(wire.epoch),
        task: task.ok_or_else(|| InvalidField::new("swap_member.task", "is missing"))?,
    })
}

pub(super) fn to_wire(membership: &Membership) -> v1::Membership {
    let joined = membership.joined.iter();
    v1::Membership {
        joined: joined
            .map(|(task, joined)| v1::Joined {
                task: task.get(),
                epoch: joined.epoch.get(),
                placed_at_ms: joined.placed_at.0,
                running_at_ms: joined.running_at.map(|at| at.0),
                reason: muster_proto::v1::RestartReason::from(joined.reason).into(),
            })
            .collect(),
        leaving: membership.leaving.as_ref().map(|leaving| v1::Leaving {
            task: leaving.task.get(),
            order: Some((&leaving.order).into()),
        }),
        vacancy: membership.vacancy.as_ref().map(vacancy_to_wire),
        swaps_in_a_row: membership.swaps_in_a_row,
        swapped_at_ms: membership.swapped_at.map(|at| at.0),
    }
}

fn vacancy_to_wire(vacancy: &Vacancy) -> v1::Vacancy {
    v1::Vacancy {
        run: Some(run_to_wire(&vacancy.run)),
        epoch: vacancy.epoch.get(),
        since_ms: vacancy.since.0,
        not_before_ms: vacancy.not_before.0,
        reason: muster_proto::v1::RestartReason::from(vacancy.reason).into(),
        charged: vacancy.charged,
        detail: vacancy.detail.clone(),
    }
}

pub(super) fn from_wire(wire: v1::Membership) -> Field<Membership> {
    let joined = wire.joined.into_iter().map(|wire| {
        let joined = Joined {
            epoch: AttemptEpoch(wire.epoch),
            placed_at: TimeMs(wire.placed_at_ms),
            running_at: wire.running_at_ms.map(TimeMs),
            reason: enumeration::<muster_proto::v1::RestartReason, _>(
                "joined.reason",
                wire.reason,
            )?,
        };
        Ok((TaskIndex(wire.task), joined))
    });
    Ok(Membership {
        joined: joined.collect::<Field<_>>()?,
        leaving: wire.leaving.map(leaving_from_wire).transpose()?,
        vacancy: wire.vacancy.map(vacancy_from_wire).transpose()?,
        swaps_in_a_row: wire.swaps_in_a_row,
        swapped_at: wire.swapped_at_ms.map(TimeMs),
    })
}

fn leaving_from_wire(wire: v1::Leaving) -> Field<Leaving> {
    Ok(Leaving {
        task: TaskIndex(wire.task),
        order: StopOrder::try_from(required("leaving.order", wire.order)?)?,
    })
}

fn vacancy_from_wire(wire: v1::Vacancy) -> Field<Vacancy> {
    Ok(Vacancy {
        run: run_from_wire(required("vacancy.run", wire.run)?)?,
        epoch: AttemptEpoch(wire.epoch),
        since: TimeMs(wire.since_ms),
        not_before: TimeMs(wire.not_before_ms),
        reason: enumeration::<muster_proto::v1::RestartReason, _>("vacancy.reason", wire.reason)?,
        charged: wire.charged,
        detail: wire.detail,
    })
}
