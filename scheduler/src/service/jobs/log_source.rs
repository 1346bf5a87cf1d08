//! Location of a task's output, and the error if it is unavailable.

use muster_engine::state::{Job, State, Unit};
use muster_model::command::HostHealth;
use muster_model::ids::{AttemptEpoch, HostId, JobId, TaskIndex, UnitIndex};
use muster_model::lifecycle::TaskPhase;
use muster_proto::{status, v1};
use tonic::{Code, Status};

use crate::service::jobs::find as find_job;
use crate::service::replies::HOST_UNREACHABLE;

/// Reason of a failure to find output.
pub(crate) const NO_LOGS: &str = "NO_LOGS";
/// Attempts listed in a message.
const ATTEMPTS_NAMED_MAX: usize = 12;

/// Location of a task's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLocation {
    /// Number of the attempt within the task's unit, from 1.
    pub(crate) attempt: u32,
    pub(crate) epoch: AttemptEpoch,
    /// The task's host; if only the hosts of the attempt are remembered, all of them.
    pub(crate) hosts: Vec<HostId>,
    /// Whether the task has started.
    is_started: bool,
}

/// Finds the requested output.
///
/// # Errors
/// `UNKNOWN_JOB`, `UNKNOWN_TASK` or `NO_LOGS`, each with the available alternatives.
pub(crate) fn find(state: &State, request: &v1::StreamLogsRequest) -> Result<LogLocation, Status> {
    let job = find_job(state, JobId(request.job_id))?;
    let task = TaskIndex(request.task);
    let unit = unit_of(job, task)?;
    let all = job
        .unit(unit)
        .map_or_else(Vec::new, |unit| sources(unit, task));
    let wanted = |source: &&LogLocation| match (request.epoch, request.attempt) {
        (0, 0) => true,
        (0, number) => source.attempt == number,
        (epoch, _) => source.epoch.get() == epoch,
    };
    let found = all.iter().rfind(wanted);
    match found {
        Some(source) if source.is_started => Ok(source.clone()),
        // Its worker has no folder for it yet, which would look like a removed one.
        Some(_) => Err(no_logs(request, "it has not started yet")),
        None if all.is_empty() && request.attempt <= 1 && request.epoch == 0 => {
            Err(no_logs(request, "it has not started yet"))
        }
        None => Err(no_logs(request, &unknown_attempt(request, &all))),
    }
}

/// The unit that a task belongs to.
///
/// # Errors
/// `UNKNOWN_TASK`.
pub(crate) fn unit_of(job: &Job, task: TaskIndex) -> Result<UnitIndex, Status> {
    if job.spec.group_of(task).is_none() {
        return Err(unknown_task(job, task));
    }
    Ok(if job.spec.gang {
        UnitIndex(0)
    } else {
        UnitIndex(task.get())
    })
}

/// All remembered attempts, oldest first.
fn sources(unit: &Unit, task: TaskIndex) -> Vec<LogLocation> {
    let past = unit.past.iter().map(|past| {
        let mut members = past.members.iter();
        let late = members.find(|(member, _)| *member == task);
        LogLocation {
            attempt: past.number,
            epoch: late.map_or(past.epoch, |(_, epoch)| *epoch),
            hosts: past.hosts.clone(),
            is_started: true,
        }
    });
    let current = unit.attempt.as_deref().and_then(|attempt| {
        let run = attempt.run_of(task)?;
        let vacancy = attempt.vacancy().filter(|it| it.run.task == task);
        let vacated = vacancy.map(|vacancy| vacancy.epoch);
        Some(LogLocation {
            attempt: attempt.number,
            epoch: vacated.unwrap_or_else(|| attempt.epoch_of(task)),
            hosts: vec![run.host],
            is_started: run.phase != TaskPhase::Assigned,
        })
    });
    past.chain(current).collect()
}

fn unknown_attempt(request: &v1::StreamLogsRequest, all: &[LogLocation]) -> String {
    let asked = match request.epoch {
        0 => format!("it has no attempt {}", request.attempt),
        epoch => format!("it has no attempt of epoch {epoch}"),
    };
    let newest_first = all.iter().rev().take(ATTEMPTS_NAMED_MAX);
    let names: Vec<String> = newest_first
        .map(|source| format!("{} (epoch {})", source.attempt, source.epoch))
        .collect();
    if names.is_empty() {
        return format!("{asked}, or any other yet");
    }
    format!(
        "{asked}, or it is no longer kept; kept attempts, newest first: {}",
        names.join(", ")
    )
}

/// Error if no worker that may hold the output is reachable.
pub(crate) fn out_of_reach(
    state: &State,
    request: &v1::StreamLogsRequest,
    source: &LogLocation,
    is_connected: impl Fn(HostId) -> bool,
) -> Status {
    let hosts: Vec<String> = source
        .hosts
        .iter()
        .map(|host| host_with_health(state, *host))
        .collect();
    let LogLocation { attempt, .. } = source;
    let mut message = format!(
        "the output of task {} of job {} in attempt {attempt} is on {}, whose worker is not connected to the leader",
        request.task,
        request.job_id,
        if hosts.is_empty() {
            "no known host".to_owned()
        } else {
            hosts.join(", ")
        }
    );
    let others = others_in_reach(state, request, source, is_connected);
    if !others.is_empty() {
        message.push_str(&format!(
            "; the output of attempt {} is available",
            others.join(", ")
        ));
    }
    let first = source.hosts.first().map(|host| host_name(state, *host));
    status::retryable(
        Code::Unavailable,
        HOST_UNREACHABLE,
        &message,
        &[("host", first.unwrap_or_default())],
        std::time::Duration::from_secs(1),
    )
}

fn others_in_reach(
    state: &State,
    request: &v1::StreamLogsRequest,
    source: &LogLocation,
    is_connected: impl Fn(HostId) -> bool,
) -> Vec<String> {
    let task = TaskIndex(request.task);
    let job = state.job(JobId(request.job_id));
    let unit = job.and_then(|job| job.unit(unit_of(job, task).ok()?));
    let all = unit.map_or_else(Vec::new, |unit| sources(unit, task));
    all.iter()
        .rev()
        .filter(|other| other.epoch != source.epoch && other.is_started)
        .filter(|other| other.hosts.iter().any(|host| is_connected(*host)))
        .take(ATTEMPTS_NAMED_MAX)
        .map(|other| other.attempt.to_string())
        .collect()
}

/// Name of a host; empty if unknown.
pub(crate) fn host_name(state: &State, host: HostId) -> String {
    state
        .host(host)
        .map_or_else(String::new, |known| known.name.to_string())
}

fn host_with_health(state: &State, host: HostId) -> String {
    let health = match state.host(host).map(|known| known.health) {
        Some(HostHealth::Up) => "",
        Some(HostHealth::Suspect) => " (suspect)",
        Some(HostHealth::Lost) => " (lost)",
        None => " (no longer known)",
    };
    format!("host `{}`{health}", host_name(state, host))
}

fn unknown_task(job: &Job, task: TaskIndex) -> Status {
    let message = format!(
        "job {} has no task {task}: its last one is {}",
        job.id,
        job.spec.tasks().saturating_sub(1)
    );
    let metadata = [("job", job.id.to_string()), ("task", task.to_string())];
    status::error(Code::NotFound, "UNKNOWN_TASK", &message, &metadata)
}

fn no_logs(request: &v1::StreamLogsRequest, detail: &str) -> Status {
    let message = format!(
        "there is no output of task {} of job {}: {detail}",
        request.task, request.job_id
    );
    let metadata = [
        ("job", request.job_id.to_string()),
        ("task", request.task.to_string()),
    ];
    status::error(Code::NotFound, NO_LOGS, &message, &metadata)
}
