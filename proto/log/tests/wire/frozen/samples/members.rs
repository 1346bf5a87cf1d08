//! Samples of the fourth version: replacement of single gang members.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{Attempt, Joined, Leaving, Membership, State, TaskRun, Vacancy};
use muster_model::command::{Command, MemberSwap, StopReason, TaskPlacement};
use muster_model::desired::RestartReason;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, HostId, TaskIndex, UnitIndex};
use muster_model::job::StopOrder;
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::{JobSpec, Lifecycle};
use muster_model::time::TimeMs;

use crate::frozen::samples::{JOB, LEADER, REQUEST, gpu, spec};

/// Commands that replace members, and jobs that allow it, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let spec = JobSpec {
        lifecycle: swaps(),
        ..spec()
    };
    vec![
        (
            "submit_job_with_member_swap",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(spec),
            },
        ),
        (
            "swap_member",
            Command::SwapMember(MemberSwap {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                epoch: AttemptEpoch(42),
                task: TaskPlacement {
                    task: TaskIndex(1),
                    host: HostId(7),
                    gpus: vec![gpu(5), gpu(6)],
                },
            }),
        ),
        (
            "stop_attempt_not_swapped",
            super::stop(StopReason::NotSwapped),
        ),
    ]
}

fn swaps() -> Lifecycle {
    Lifecycle {
        member_swap: true,
        ..Lifecycle::default()
    }
}

/// One event of every kind about members.
pub(crate) fn kinds() -> Vec<EventKind> {
    let (job, unit, epoch) = (JOB, UnitIndex(0), AttemptEpoch(42));
    let (task, host) = (TaskIndex(1), HostId(2));
    vec![
        EventKind::MemberLeaving {
            job,
            unit,
            epoch,
            task,
            host,
            cause: super::because(StopReason::GpuFault { gpu: gpu(1) }),
        },
        EventKind::MemberVacated {
            job,
            unit,
            epoch,
            task,
            member: epoch,
            host,
            reason: RestartReason::User,
            charged: true,
            not_before: TimeMs(4_700),
            detail: "exit code 1 of task 1".to_owned(),
        },
        EventKind::MemberSwapped {
            job,
            unit,
            epoch,
            task,
            member: AttemptEpoch(50),
            host: HostId(7),
            from: host,
            gpus: 2,
            reason: RestartReason::User,
        },
    ]
}

/// The first version's state, with a gang that lacks a member, has a replacement and a member ordered to
/// leave.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    for job in &mut parts.jobs {
        for index in job.units.keys().copied().collect::<Vec<_>>() {
            let unit = job.units.get_mut(&index).map(Arc::make_mut);
            let attempt = unit.and_then(|unit| {
                unit.swaps = 2;
                for past in &mut unit.past {
                    past.members = vec![(TaskIndex(1), AttemptEpoch(22))];
                }
                unit.attempt.as_mut()
            });
            if let Some(attempt) = attempt.map(Arc::make_mut) {
                attempt.membership = Some(Box::new(membership(attempt)));
            }
        }
    }
    State::restore(parts)
}

fn membership(attempt: &Attempt) -> Membership {
    let joined = Joined {
        epoch: AttemptEpoch(50),
        placed_at: TimeMs(3_500),
        running_at: Some(TimeMs(3_600)),
        reason: RestartReason::Infra,
    };
    Membership {
        joined: BTreeMap::from([(TaskIndex(0), joined)]),
        leaving: Some(Leaving {
            task: TaskIndex(1),
            order: StopOrder::new(
                super::because(StopReason::Drain { host: HostId(2) }),
                TimeMs(4_100),
                30_000,
            ),
        }),
        vacancy: Some(Vacancy {
            run: TaskRun {
                task: TaskIndex(2),
                host: HostId(3),
                gpus: vec![gpu(9)],
                phase: TaskPhase::Exited,
                exit: Some(super::exit()),
            },
            epoch: attempt.epoch,
            since: TimeMs(4_200),
            not_before: TimeMs(5_200),
            reason: RestartReason::User,
            charged: true,
            detail: "exit code 1 of task 2".to_owned(),
        }),
        swaps_in_a_row: 1,
        swapped_at: Some(TimeMs(3_500)),
    }
}
