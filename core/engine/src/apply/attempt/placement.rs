//! Placements: one unit whole or not at all, checked again independently of the planner.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::{Placement, TaskPlacement};
use muster_model::event::EventKind;
use muster_model::host::{Holder, Host};
use muster_model::ids::{AttemptEpoch, HostId, JobId, UnitId, UnitIndex};
use muster_model::job::Barrier;
use muster_model::lifecycle::{TaskPhase, UnitPhase};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::apply::attempt::cell_binding;
use crate::apply::job::admission::{self, AdmissionRequest};
use crate::feasibility::{self, Freed, Requester, Unfit};
use crate::state::{Answer, Attempt, Job, State, TaskRun, UsageKind, amounts_of};

impl Step<'_> {
    pub(in crate::apply) fn place(&mut self, placement: &Placement) -> Result<Answer, Rejection> {
        let by_host = check_placement(self.state, placement)?;
        self.release_claim(placement.unit_id());
        self.begin_attempt(placement, &by_host);
        Ok(Answer::Done)
    }

    /// Begins an attempt with the resources of a checked placement.
    pub(in crate::apply) fn begin_attempt(&mut self, placement: &Placement, by_host: &ByHost) {
        let epoch = AttemptEpoch(self.state.revision.get());
        let spec = Arc::clone(&self.job_mut(placement.job).spec);
        self.settle_histories(&spec);
        self.bind(&spec, &placement.basis);
        let places = spec.task_weights();
        for (host, positions) in by_host {
            let tasks = positions.iter().map(|position| &placement.tasks[*position]);
            for task in tasks.clone() {
                self.state.index.add_task(*host, places.of(task.task));
            }
            self.allocate(*host, tasks, placement, &spec);
        }
        let id = placement.unit_id();
        let UnitId { job, unit } = id;
        let allocation = &mut self.state.index.allocation;
        allocation.note(&spec, (epoch, id), Some(&placement.basis));
        let attempt = self.new_attempt(placement, epoch);
        let amounts = amounts_of(&self.state.hosts, &spec, &placement.tasks);
        self.state
            .index
            .add_usage(&spec, UsageKind::held_by(&attempt), &amounts);
        let (number, hosts) = (attempt.number, attempt.hosts());
        self.account_for_wait(id, attempt.gpus());
        let State { jobs, index, .. } = &mut *self.state;
        if let Some(job) = jobs.get(&job) {
            index.add_deadline(id, job, &attempt);
        }
        let delayed_until = self.edit_job(job, |job| begin(job, unit, attempt));
        self.note_attempt(id);
        self.state.index.delayed.remove(&(delayed_until, id));
        let known = self.state.unit(id);
        let resumes_step = known.and_then(|unit| Some(unit.newest_checkpoint()?.step));
        self.emit(EventKind::AttemptPlaced {
            job,
            unit,
            epoch,
            number,
            hosts,
            resumes_step,
            gpus: placement
                .tasks
                .iter()
                .map(|task| u32::try_from(task.gpus.len()).unwrap_or(u32::MAX))
                .sum(),
        });
    }

    /// Allocates a host's resources to the tasks of a placement on it.
    fn allocate<'a>(
        &mut self,
        host: HostId,
        tasks: impl Iterator<Item = &'a TaskPlacement>,
        placement: &Placement,
        spec: &JobSpec,
    ) {
        let Placement { job, unit, .. } = *placement;
        let revision = self.state.revision;
        let epoch = AttemptEpoch(revision.get());
        self.edit_host(host, |host| {
            host.desired_revision = revision;
            for task in tasks {
                let holder = Holder {
                    job,
                    unit,
                    epoch,
                    task: task.task,
                };
                allocate_task(host, task, holder, spec);
            }
        });
        let on_host = &mut self.state.index.units_on_host;
        on_host.insert((host, placement.unit_id()), epoch);
    }

    fn new_attempt(&self, placement: &Placement, epoch: AttemptEpoch) -> Attempt {
        let unit = self.state.unit(placement.unit_id());
        let attempts = unit.map_or(0, |unit| unit.attempts);
        Attempt {
            epoch,
            leader: placement.leader,
            number: attempts + 1,
            placed_at: self.state.time,
            running_at: None,
            allocation_basis: placement.basis.clone(),
            stop: None,
            tasks: placement.tasks.iter().map(assigned).collect(),
            decisive: None,
            barrier: placement.barrier.then(Barrier::default),
            membership: None,
            pauses: Vec::new(),
        }
    }
}

pub(in crate::apply) fn assigned(task: &TaskPlacement) -> TaskRun {
    TaskRun {
        task: task.task,
        host: task.host,
        gpus: task.gpus.clone(),
        phase: TaskPhase::Assigned,
        exit: None,
    }
}

/// Adds the new attempt to a unit; returns the end of its former back-off.
fn begin(job: &mut Job, index: UnitIndex, attempt: Attempt) -> TimeMs {
    job.move_unit(index, UnitPhase::Placed);
    let unit = job.unit_mut(index);
    unit.attempts = attempt.number;
    unit.local_retries = 0;
    unit.attempt = Some(Arc::new(attempt));
    unit.not_before
}

pub(in crate::apply) fn allocate_task(
    host: &mut Host,
    task: &TaskPlacement,
    holder: Holder,
    spec: &JobSpec,
) {
    for gpu in &mut host.gpus {
        if task.gpus.contains(&gpu.uuid) {
            gpu.holder = Some(holder);
        }
    }
    if let Some((group, _)) = spec.group_of(task.task) {
        host.cpus_milli_used += group.resources.cpus_milli;
        host.memory_mib_used += group.resources.memory_mib;
    }
}

/// Positions of a placement's tasks by host.
pub(in crate::apply) type ByHost = BTreeMap<HostId, Vec<usize>>;

/// Checks that the unit may be placed now, that it fits, and that its queue permits it.
fn check_placement(state: &State, placement: &Placement) -> Result<ByHost, Rejection> {
    check_unit(state, placement.unit_id(), &placement.tasks)?;
    check_room(state, placement)
}

/// Like [`check_placement`] for a retry in place: a back-off is ignored.
pub(in crate::apply) fn check_again(
    state: &State,
    placement: &Placement,
) -> Result<ByHost, Rejection> {
    check_waits(state, placement.unit_id())?;
    check_room(state, placement)
}

fn check_room(state: &State, placement: &Placement) -> Result<ByHost, Rejection> {
    let Placement { job: id, unit, .. } = *placement;
    let by_host = check_hosts(state, placement)?;
    let job = state.job(id).ok_or(Rejection::UnknownJob(id))?;
    if placement.barrier && !job.spec.gang {
        return Err(Rejection::PlacementShape {
            job: id,
            unit,
            detail: "only the members of a gang wait for each other".to_owned(),
        });
    }
    let freed = Freed::default();
    let request = AdmissionRequest {
        job,
        unit,
        allocation_basis: &placement.basis,
        tasks: &placement.tasks,
        freed: &freed,
    };
    admission::check(state, request)?;
    cell_binding::check(state, request)?;
    Ok(by_host)
}

/// Checks that the unit waits, may be placed now, and that the tasks are exactly its own.
pub(in crate::apply) fn check_unit(
    state: &State,
    id: UnitId,
    tasks: &[TaskPlacement],
) -> Result<(), Rejection> {
    let job = check_waits(state, id)?;
    let unit = id.unit;
    let misshapen = |detail: String| Rejection::PlacementShape {
        job: id.job,
        unit,
        detail,
    };
    let not_before = job.unit(unit).map_or(state.time, |known| known.not_before);
    let not_before = not_before.max(state.held_until(job));
    if not_before > state.time {
        return Err(misshapen(format!("its back-off ends at {not_before}")));
    }
    let skipped = unit.get().saturating_sub(job.first_untouched.get());
    if skipped > limits::UNITS_SKIPPED_MAX {
        return Err(misshapen(format!(
            "it skips {skipped} units, over the limit of {} (UNITS_SKIPPED_MAX)",
            limits::UNITS_SKIPPED_MAX
        )));
    }
    if !is_whole(job, unit, tasks) {
        let expected = job.tasks_of(unit);
        let (first, last) = (expected.start, expected.end - 1);
        let partial = job
            .spec
            .groups
            .iter()
            .any(|group| group.layout.count_min.is_some());
        let members = if partial {
            "; of a group with count_min, at least that many from its first on"
        } else {
            ""
        };
        return Err(misshapen(format!(
            "it must hold each of the tasks {first} to {last} once, in order{members}"
        )));
    }
    Ok(())
}

/// Checks that the unit waits and that its job may be placed.
fn check_waits(state: &State, id: UnitId) -> Result<&Job, Rejection> {
    let UnitId { job: id, unit } = id;
    let job = state.job(id).ok_or(Rejection::UnknownJob(id))?;
    let phase = job
        .unit_phase(unit)
        .ok_or(Rejection::UnknownUnit { job: id, unit })?;
    if phase != UnitPhase::Waiting {
        return Err(Rejection::UnitPhase {
            job: id,
            unit,
            phase,
        });
    }
    if let Some(open) = state.index.open_of(id).first() {
        return Err(Rejection::JobHeld {
            job: id,
            open: *open,
        });
    }
    if job.suspension.is_some() {
        let detail = "is suspended".to_owned();
        return Err(Rejection::Suspension { job: id, detail });
    }
    if let Some(limit) = job.spec.lifecycle.tasks_at_once_max
        && job.is_at_once_max()
    {
        return Err(Rejection::TasksAtOnce { job: id, limit });
    }
    Ok(job)
}

/// Whether these are all tasks of the unit, in order; of a gang's group with a `count_min`, a prefix of at
/// least that many tasks is enough.
pub(in crate::apply) fn is_whole(job: &Job, unit: UnitIndex, tasks: &[TaskPlacement]) -> bool {
    let given = || tasks.iter().map(|task| task.task.get());
    if !job.spec.gang {
        return given().eq(job.tasks_of(unit));
    }
    let (mut first, mut rest) = (0, tasks);
    for group in &job.spec.groups {
        let end = first + group.count;
        let (own, others) = rest.split_at(rest.partition_point(|task| task.task.get() < end));
        let count = u32::try_from(own.len()).unwrap_or(u32::MAX);
        let enough = count >= group.layout.count_min.unwrap_or(group.count);
        let in_order = own
            .iter()
            .map(|task| task.task.get())
            .eq(first..first + count);
        if !enough || !in_order {
            return false;
        }
        (first, rest) = (end, others);
    }
    rest.is_empty()
}

/// Groups the placement's tasks by host and checks that each host can take all of its own.
fn check_hosts(state: &State, placement: &Placement) -> Result<ByHost, Rejection> {
    let job = state
        .job(placement.job)
        .ok_or(Rejection::UnknownJob(placement.job))?;
    let requester = Requester::at(job, placement.unit, state.time);
    feasibility::check(state, requester, &placement.tasks, &Freed::default())
        .map_err(|unfit| infeasible(placement.job, unfit))
}

/// Builds the rejection of a placement or claim that does not fit.
pub(in crate::apply) fn infeasible(job: JobId, unfit: Unfit) -> Rejection {
    match unfit {
        Unfit::HostUnknown(host) => Rejection::UnknownHost(host.to_string()),
        Unfit::TaskUnknown(task) => Rejection::UnknownTask {
            job,
            epoch: AttemptEpoch(0),
            task,
        },
        Unfit::Host(host, misfit) => Rejection::PlacementInfeasible {
            host,
            detail: misfit.to_string(),
        },
    }
}
