//! Why a job waits: the planner's own answer, in the words of the wire.

use muster_core::feasibility::{Asker, Freed, Ledger};
use muster_core::ids::{JobId, TaskIndex, UnitIndex};
use muster_core::plan::{Blocker, ClassCount, Explanation, explain};
use muster_core::spec::TaskGroup;
use muster_core::state::{Host, Job, State};
use muster_proto::v1;
use tonic::Status;

use crate::service::jobs::find;

const MS_PER_SECOND: u64 = 1_000;

/// Why a job waits, in this state.
pub(crate) fn job(state: &State, id: JobId) -> Result<v1::ExplainJobResponse, Status> {
    let job = find(state, id)?;
    let explanation = explain(state, id, state.time)
        .ok_or_else(|| Status::internal("a job that is there has no explanation"))?;
    let unit = job.waiting_units().next();
    let group = unit.and_then(|unit| neediest(job, job.tasks_of(unit)));
    let classes = explanation
        .classes
        .iter()
        .map(|count| class(state, (job, unit.unwrap_or_default()), group, count))
        .collect();
    Ok(v1::ExplainJobResponse {
        revision: state.revision.get(),
        phase: v1::JobPhase::from(job.phase).into(),
        summary: summary(job, &explanation),
        blocker: explanation.blocker.as_ref().map(Into::into),
        unit: unit.unwrap_or_default().get(),
        units_waiting: explanation.waiting_units,
        jobs_ahead: explanation.ahead,
        classes,
        remedy: explanation.remedy.as_ref().map(Into::into),
    })
}

/// The task group of the unit whose tasks need most.
fn neediest(job: &Job, tasks: std::ops::Range<u32>) -> Option<&TaskGroup> {
    if job.spec.gang {
        return job.spec.groups.iter().max_by_key(|group| {
            let needs = &group.resources;
            (needs.gpus, needs.cpus_milli, needs.memory_mib)
        });
    }
    job.spec
        .group_of(TaskIndex(tasks.start))
        .map(|(group, _)| group)
}

fn class(
    state: &State,
    (job, unit): (&Job, UnitIndex),
    group: Option<&TaskGroup>,
    count: &ClassCount,
) -> v1::HostClass {
    let is_of_class = |host: &Host| {
        if count.model.is_empty() {
            host.gpus.is_empty()
        } else {
            host.gpus.iter().any(|gpu| *gpu.model == *count.model)
        }
    };
    let asker = Asker {
        job,
        unit,
        now: state.time,
    };
    let freed = Freed::default();
    let has_room = |host: &Host| {
        host.accepts_work()
            && group.is_some_and(|group| {
                Ledger::open(state, host, asker, &freed)
                    .choose(group)
                    .is_ok()
            })
    };
    let with_room = state
        .hosts
        .values()
        .filter(|host| is_of_class(host) && has_room(host))
        .count();
    v1::HostClass {
        gpu_model: count.model.clone(),
        acceptable: true,
        hosts: narrow(count.hosts),
        hosts_not_accepting: narrow(count.hosts.saturating_sub(count.hosts_accepting)),
        hosts_with_room: u32::try_from(with_room).unwrap_or(u32::MAX),
        gpus: narrow(count.gpus),
        gpus_free: narrow(count.gpus_free),
        gpus_held: narrow(count.gpus_held),
        gpus_out: narrow(count.gpus_faulted + count.gpus_blocked + count.gpus_silent),
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn summary(job: &Job, explanation: &Explanation) -> String {
    let Some(blocker) = &explanation.blocker else {
        return if job.phase.is_terminal() {
            "the job has ended".to_owned()
        } else if explanation.waiting_units == 0 {
            "nothing of the job waits".to_owned()
        } else {
            "there is room; the job is about to be placed".to_owned()
        };
    };
    let reason = reason(blocker);
    match &explanation.remedy {
        Some(remedy) => format!("{reason}; what would help: {remedy}"),
        None => reason,
    }
}

fn reason(blocker: &Blocker) -> String {
    match blocker {
        Blocker::BackOff { .. } => "it waits for the end of its back-off".to_owned(),
        Blocker::Cancelling => "it is being cancelled".to_owned(),
        Blocker::NoSuchHost { need } => format!("no host could hold a task: it needs {need}"),
        Blocker::ExceedsCluster {
            need_gpus,
            have_gpus,
        } => format!("it needs {need_gpus} GPUs, and acceptable hosts have {have_gpus} in all"),
        Blocker::Resources {
            need_gpus,
            free_gpus,
            fits_tasks,
            need_tasks,
        } => format!(
            "it needs {need_gpus} GPUs, {free_gpus} are free; {fits_tasks} of {need_tasks} tasks fit now"
        ),
        Blocker::Behind { ahead } => {
            format!("job {ahead} is ahead of it and waits for the same hosts")
        }
        Blocker::Limit(limit) => limit.to_string(),
        Blocker::Moving {
            moves,
            cost_gpu_ms,
            gain_gpu_ms,
            ..
        } => format!(
            "room is being made for it in one piece by moving {moves} units: that loses {} GPU-seconds, and saves it {} GPU-seconds of waiting",
            cost_gpu_ms / MS_PER_SECOND,
            gain_gpu_ms / MS_PER_SECOND
        ),
        Blocker::Reserved { victims: 0, .. } => {
            "resources are reserved for it; it starts when those who hold them have ended"
                .to_owned()
        }
        Blocker::Reserved { victims, .. } => {
            format!("it starts when {victims} attempts that were stopped for it have ended")
        }
    }
}
