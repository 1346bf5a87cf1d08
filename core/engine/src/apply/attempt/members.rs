//! Member swap: members of a running gang are replaced one by one while the others continue, for jobs whose
//! framework supports it.
//!
//! A member leaves (it failed, was lost, or was ordered to), and its place is vacant once its processes
//! cannot run any more: by the same reports that end whole attempts, so a lost host's lease is awaited here
//! too. Then the planner fills the place by a separate command, which is checked like a placement. Where a
//! swap is impossible, the whole gang is restarted.

use std::sync::Arc;

use muster_model::command::{EXIT_RUN_AGAIN, MemberSwap, StopCause, TaskPlacement, TaskReport};
use muster_model::desired::RestartReason;
use muster_model::event::EventKind;
use muster_model::host::Holder;
use muster_model::ids::{AttemptEpoch, HostId, TaskIndex, UnitId};
use muster_model::job::StopOrder;
use muster_model::lifecycle::UnitPhase;
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::apply::attempt::attribution::AttributedEnd;
use crate::apply::attempt::cell_binding;
use crate::apply::attempt::ending::release_task;
use crate::apply::attempt::placement::{allocate_task, assigned, infeasible};
use crate::apply::attempt::stopping::in_one_line;
use crate::apply::attempt::task_reports::exit_code;
use crate::apply::attempt::verdict::{self, Verdict, VerdictInputs, doubled};
use crate::apply::job::admission::{self, AdmissionRequest};
use crate::feasibility::{self, Freed, Requester};
use crate::state::{
    Answer, Attempt, Joined, Leaving, Membership, Running, State, TaskRun, UsageKind, Vacancy,
    amounts_of,
};

/// The reason of a vacancy and the meaning of the member's end.
struct MemberDeparture {
    reason: RestartReason,
    charged: bool,
    delay_ms: u64,
    detail: String,
    found: Option<AttributedEnd>,
}

impl Step<'_> {
    /// Orders one member to stop if the others can continue without it, else the whole attempt.
    pub(in crate::apply) fn order_stop_at(
        &mut self,
        id: UnitId,
        member: Option<TaskIndex>,
        cause: StopCause,
        grace_ms: u64,
    ) {
        match member.filter(|task| self.may_leave(id, *task)) {
            Some(task) => self.order_leave(id, task, cause, grace_ms),
            None => self.order_stop(id, cause, grace_ms),
        }
    }

    fn may_leave(&self, id: UnitId, task: TaskIndex) -> bool {
        let Some(gang) = Running::of(self.state, id) else {
            return false;
        };
        let run = gang.attempt.task(task);
        let is_alive = run.is_some_and(|run| !run.phase.is_terminal());
        is_alive && may_go_on_without(self.state, gang, task)
    }

    /// Orders one member to stop. Of several orders the reason of the first and the earliest end of the grace
    /// period apply.
    fn order_leave(&mut self, id: UnitId, task: TaskIndex, cause: StopCause, grace_ms: u64) {
        let (at, cause) = (self.state.time, in_one_line(cause));
        let attempt = self.attempt_mut(id);
        let epoch = attempt.epoch;
        let Some(host) = attempt.task(task).map(|run| run.host) else {
            return;
        };
        let membership = attempt.membership.get_or_insert_default();
        let is_new = membership.leaving.is_none();
        let leaving = membership.leaving.get_or_insert_with(|| Leaving {
            task,
            order: StopOrder::new(cause.clone(), at, grace_ms),
        });
        let order = &mut leaving.order;
        let kill_at = at.after(grace_ms).min(order.at.after(order.grace_ms));
        order.grace_ms = kill_at.since(order.at);
        self.touch_desired(host);
        if is_new {
            self.emit(EventKind::MemberLeaving {
                job: id.job,
                unit: id.unit,
                epoch,
                task,
                host,
                cause,
            });
        }
    }

    /// Returns the only task of a unit on a host that has not ended.
    pub(in crate::apply) fn only_member_on(&self, id: UnitId, host: HostId) -> Option<TaskIndex> {
        let attempt = self.state.attempt(id)?;
        let on_host = attempt.tasks.iter().filter(|run| run.host == host);
        let mut alive = on_host.filter(|run| !run.phase.is_terminal());
        let only = alive.next()?.task;
        alive.next().is_none().then_some(only)
    }

    /// Makes the place of a failed task vacant if its attempt is not being stopped and the others continue
    /// without it. Returns whether they do.
    pub(in crate::apply) fn vacate(&mut self, id: UnitId, position: usize) -> bool {
        let Some(departure) = self.departure(id, position) else {
            return false;
        };
        let time = self.state.time;
        let spec = Arc::clone(&self.job_mut(id.job).spec);
        self.settle_histories(&spec);
        self.account_for_member(id, position, departure.reason);
        let run = self.release_member(id, position);
        let (task, host) = (run.task, run.host);
        let (attempt, member, not_before) = self.edit_members(id, |attempt| {
            let member = attempt.epoch_of(task);
            attempt.tasks.remove(position);
            let in_a_row = swaps_in_a_row(attempt, time);
            let delay_ms = departure.delay_ms.max(pause_ms(in_a_row));
            let not_before = time.after(delay_ms);
            let membership = attempt.membership.get_or_insert_default();
            membership.joined.remove(&task);
            membership.leaving = None;
            membership.vacancy = Some(Vacancy {
                run,
                epoch: member,
                since: time,
                not_before,
                reason: departure.reason,
                charged: departure.charged,
                detail: departure.detail.clone(),
            });
            (attempt.epoch, member, not_before)
        });
        self.note_vacancy(id);
        if let Some(found) = &departure.found {
            self.apply_attribution(found);
        }
        self.emit(EventKind::MemberVacated {
            job: id.job,
            unit: id.unit,
            epoch: attempt,
            task,
            member,
            host,
            reason: departure.reason,
            charged: departure.charged,
            not_before,
            detail: departure.detail,
        });
        true
    }

    /// Returns the departure of an ended member; `None` if its gang has to end with it.
    fn departure(&self, id: UnitId, position: usize) -> Option<MemberDeparture> {
        let gang = Running::of(self.state, id)?;
        let Running {
            job, unit, attempt, ..
        } = gang;
        let run = attempt.tasks.get(position)?;
        let leaving = attempt.leaving().filter(|leaving| leaving.task == run.task);
        let wants_all_again = leaving.is_none() && exit_code(run) == Some(EXIT_RUN_AGAIN);
        if wants_all_again || !may_go_on_without(self.state, gang, run.task) {
            return None;
        }
        // The verdict is the same as if the gang had ended with it.
        let trial = Attempt {
            stop: leaving.map(|leaving| leaving.order.clone()),
            decisive: Some(run.task),
            ..attempt.clone()
        };
        let found = self.attribution_of(job, id.unit, &trial);
        let circumstances = VerdictInputs {
            hosts: &self.state.hosts,
            now: self.state.time,
            attribution: found.as_ref().map(|found| &found.attribution.attribution),
        };
        let held_ms = self.state.held_until(job).since(self.state.time);
        match verdict::judge(&circumstances, job, unit, &trial).held(held_ms) {
            Verdict::Requeued {
                reason,
                charged,
                delay_ms,
                detail,
                ..
            } if delay_ms < limits::VACANCY_MS_MAX => Some(MemberDeparture {
                reason,
                charged,
                delay_ms,
                detail,
                found,
            }),
            // The verdict ends the unit, so no replacement would come.
            Verdict::Requeued { .. }
            | Verdict::Succeeded
            | Verdict::Cancelled
            | Verdict::Failed { .. } => None,
        }
    }

    /// Releases what one member of an attempt holds; returns its run.
    fn release_member(&mut self, id: UnitId, position: usize) -> TaskRun {
        let spec = Arc::clone(&self.job_mut(id.job).spec);
        let attempt = self.attempt_mut(id);
        let (run, epoch) = (attempt.tasks[position].clone(), attempt.epoch);
        let part = UsageKind::held_by(attempt);
        let on_host = attempt.tasks.iter().filter(|it| it.host == run.host);
        let is_last = on_host.count() == 1;
        let amounts = amounts_of(&self.state.hosts, &spec, &[run.place()]);
        self.state.index.remove_usage(&spec, part, &amounts);
        let places = spec.task_weights().of(run.task);
        self.state.index.remove_task(run.host, places);
        if is_last {
            self.state.index.units_on_host.remove(&(run.host, id));
        }
        let revision = self.state.revision;
        let holder = holder(id, epoch, run.task);
        self.edit_host(run.host, |host| {
            host.desired_revision = revision;
            release_task(host, &run, holder, &spec);
        });
        self.note_release(run.host);
        run
    }

    /// Changes the members of an attempt and updates everything derived from them.
    fn edit_members<R>(&mut self, id: UnitId, change: impl FnOnce(&mut Attempt) -> R) -> R {
        self.end_deadline(id);
        let result = self.edit_attempt(id, |unit| {
            let attempt = unit.attempt.as_mut().map(Arc::make_mut);
            change(attempt.expect("members belong to an attempt"))
        });
        let State { jobs, index, .. } = &mut *self.state;
        let job = jobs.get(&id.job);
        let attempt = job.and_then(|job| Some((job, job.unit(id.unit)?.attempt.as_deref()?)));
        if let Some((job, attempt)) = attempt {
            index.add_deadline(id, job, attempt);
        }
        result
    }

    fn note_vacancy(&mut self, id: UnitId) {
        let State {
            jobs, index, time, ..
        } = &mut *self.state;
        let job = jobs.get(&id.job);
        let attempt = job.and_then(|job| job.unit(id.unit)?.attempt.as_deref());
        if let Some(attempt) = attempt {
            index.add_vacancy(id, *time, attempt);
        }
    }

    /// Puts a new member into the vacant place.
    pub(in crate::apply) fn swap_member(&mut self, swap: &MemberSwap) -> Result<Answer, Rejection> {
        let vacancy = check_swap(self.state, swap)?;
        let id = swap.unit_id();
        let spec = Arc::clone(&self.job_mut(swap.job).spec);
        self.settle_histories(&spec);
        self.account_for_vacancy(swap.job, &vacancy);
        self.take_place(id, swap, &vacancy);
        let known = self.unit_mut(id);
        known.swaps += 1;
        known.failures += u32::from(vacancy.charged);
        self.emit(EventKind::MemberSwapped {
            job: swap.job,
            unit: swap.unit,
            epoch: swap.epoch,
            task: swap.task.task,
            member: AttemptEpoch(self.state.revision.get()),
            host: swap.task.host,
            from: vacancy.run.host,
            gpus: u32::try_from(swap.task.gpus.len()).unwrap_or(u32::MAX),
            reason: vacancy.reason,
        });
        // The others need the location of the new member.
        self.touch_hosts_of_unit(id);
        Ok(Answer::Done)
    }

    fn take_place(&mut self, id: UnitId, swap: &MemberSwap, vacancy: &Vacancy) {
        let (time, revision) = (self.state.time, self.state.revision);
        let spec = Arc::clone(&self.job_mut(id.job).spec);
        let task = &swap.task;
        let part = UsageKind::held_by(self.attempt_mut(id));
        let holder = holder(id, swap.epoch, task.task);
        self.end_vacancy(id);
        let amounts = amounts_of(&self.state.hosts, &spec, std::slice::from_ref(task));
        self.state.index.add_usage(&spec, part, &amounts);
        let places = spec.task_weights().of(task.task);
        self.state.index.add_task(task.host, places);
        let on_host = &mut self.state.index.units_on_host;
        on_host.insert((task.host, id), swap.epoch);
        self.edit_host(task.host, |host| allocate_task(host, task, holder, &spec));
        self.edit_members(id, |attempt| {
            let in_a_row = swaps_in_a_row(attempt, vacancy.since) + 1;
            attempt
                .tasks
                .insert(attempt.place_of(task.task), assigned(task));
            // The swap resolves the earlier failure: the next one decides for itself.
            attempt.decisive = None;
            let membership: &mut Membership = attempt.membership.get_or_insert_default();
            membership.vacancy = None;
            membership.swaps_in_a_row = in_a_row;
            membership.swapped_at = Some(time);
            membership.joined.insert(
                task.task,
                Joined {
                    epoch: AttemptEpoch(revision.get()),
                    placed_at: time,
                    running_at: None,
                    reason: vacancy.reason,
                },
            );
        });
    }

    /// Marks the desired state of the hosts of a unit's tasks as changed.
    pub(in crate::apply) fn touch_hosts_of_unit(&mut self, id: UnitId) {
        let hosts = self.state.attempt(id).map_or_else(Vec::new, Attempt::hosts);
        for host in hosts {
            self.touch_desired(host);
        }
    }

    /// Records the progress of a replacement member.
    pub(in crate::apply) fn note_joined(&mut self, report: &TaskReport) {
        let id = UnitId::new(report.job, report.unit);
        let time = self.state.time;
        let attempt = self.attempt_mut(id);
        let run = attempt.task(report.task);
        let Some((phase, host)) = run.map(|run| (run.phase, run.host)) else {
            return;
        };
        let is_open = attempt
            .joined(report.task)
            .is_some_and(|it| it.running_at.is_none());
        if !is_open {
            return;
        }
        if phase.has_begun() {
            self.edit_members(id, |attempt| {
                let membership: &mut Membership = attempt.membership.get_or_insert_default();
                if let Some(joined) = membership.joined.get_mut(&report.task) {
                    joined.running_at = Some(time);
                }
            });
        }
        let attempt = self.attempt_mut(id);
        let is_rank_0 = attempt.runs().next().map(|run| run.task) == Some(report.task);
        if is_rank_0 {
            // The others were not updated while it had no port: the old port stays in use if the new member
            // reserves none.
            self.touch_hosts_of_unit(id);
        } else {
            // It waits for its release.
            self.touch_desired(host);
        }
    }

    /// Withdraws the stop order of a member that completed its work first.
    pub(in crate::apply) fn forget_leaving(&mut self, id: UnitId, task: TaskIndex) {
        let attempt = self.attempt_mut(id);
        if let Some(membership) = &mut attempt.membership
            && membership
                .leaving
                .as_ref()
                .is_some_and(|it| it.task == task)
        {
            membership.leaving = None;
        }
    }
}

/// Returns the holder of a member's GPUs: the gang's attempt, regardless of the member.
const fn holder(id: UnitId, epoch: AttemptEpoch, task: TaskIndex) -> Holder {
    Holder {
        job: id.job,
        unit: id.unit,
        epoch,
        task,
    }
}

/// Whether the others of a gang may continue without one of its members.
///
/// Cells of a virtual cluster are bound for the gang as placed: if the departure would leave one of them
/// empty, the gang is restarted whole.
fn may_go_on_without(state: &State, gang: Running<'_>, task: TaskIndex) -> bool {
    let Running {
        job, unit, attempt, ..
    } = gang;
    let lets_it = job.spec.gang && job.spec.lifecycle.member_swap;
    let is_left_alone = job.cancel.is_none()
        && job.suspension.is_none()
        && unit.claim.is_none()
        && unit.phase == UnitPhase::Running
        && attempt.stop.is_none();
    // A gang that was not released yet is ended whole: none of its processes has started, whatever its
    // workers report.
    let has_begun = attempt.barrier.is_none_or(|it| it.released_at.is_some());
    let is_only = |other: TaskIndex| other == task;
    let is_complete = attempt.vacancy().is_none()
        && attempt
            .leaving()
            .is_none_or(|leaving| is_only(leaving.task))
        && attempt
            .joining()
            .is_none_or(|(joining, _)| is_only(joining));
    lets_it
        && is_left_alone
        && has_begun
        && is_complete
        && swaps_in_a_row(attempt, state.time) < limits::SWAPS_IN_A_ROW_MAX
        && attempt.has_others_than(task)
        && cell_binding::others_use_all(state, attempt, task)
}

/// Returns the number of consecutive swaps so far without progress of the gang.
fn swaps_in_a_row(attempt: &Attempt, now: TimeMs) -> u32 {
    let Some(membership) = &attempt.membership else {
        return 0;
    };
    let has_continued = membership
        .swapped_at
        .is_some_and(|at| now.since(at) >= limits::SWAP_ROW_MS);
    if has_continued {
        return 0;
    }
    membership.swaps_in_a_row
}

/// Returns how long a place is kept vacant after this number of consecutive swaps.
fn pause_ms(in_a_row: u32) -> u64 {
    let further = in_a_row.checked_sub(1);
    further.map_or(0, |times| {
        doubled(limits::NO_PROGRESS_BACKOFF_MS, u64::from(times))
    })
}

/// Checks that the place is vacant, may be filled now, and that the new member fits; returns the vacancy.
fn check_swap(state: &State, swap: &MemberSwap) -> Result<Vacancy, Rejection> {
    let MemberSwap {
        job: id,
        unit,
        ref task,
        ..
    } = *swap;
    let stale = Rejection::StaleAttempt {
        job: id,
        unit,
        given: swap.epoch,
    };
    let job = state.job(id).ok_or(Rejection::UnknownJob(id))?;
    let attempt = job.unit(unit).and_then(|known| known.attempt.as_deref());
    let attempt = attempt.filter(|attempt| attempt.epoch == swap.epoch);
    let attempt = attempt.ok_or(stale)?;
    let refused = |detail: String| Rejection::PlacementShape {
        job: id,
        unit,
        detail,
    };
    if attempt.stop.is_some() {
        return Err(refused("its gang is being stopped".to_owned()));
    }
    let vacancy = attempt
        .vacancy()
        .filter(|vacancy| vacancy.run.task == task.task);
    let vacancy =
        vacancy.ok_or_else(|| refused(format!("the place of task {} is not vacant", task.task)))?;
    if job.suspension.is_some() {
        let detail = "is suspended".to_owned();
        return Err(Rejection::Suspension { job: id, detail });
    }
    let not_before = vacancy.not_before.max(state.held_until(job));
    if not_before > state.time {
        let until = not_before;
        return Err(refused(format!("its back-off ends at {until}")));
    }
    let requester = Requester::at(job, unit, state.time);
    feasibility::check_member(state, requester, attempt, task)
        .map_err(|unfit| infeasible(id, unfit))?;
    cell_binding::check_member(state, job, attempt, task)?;
    let tasks: &[TaskPlacement] = std::slice::from_ref(task);
    let freed = Freed::default();
    let request = AdmissionRequest {
        job,
        unit,
        allocation_basis: &attempt.allocation_basis,
        tasks,
        freed: &freed,
    };
    admission::check(state, request)?;
    Ok(vacancy.clone())
}
