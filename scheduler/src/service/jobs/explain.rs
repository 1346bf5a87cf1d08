//! Explanation why a job waits: the planner's answer converted to the API.

use std::time::Duration;

use muster_engine::feasibility::{Freed, HostTrial, Requester};
use muster_engine::state::{Job, State};
use muster_model::health::{Attribution, Component};
use muster_model::host::Host;
use muster_model::ids::{HostId, JobId, TaskIndex, UnitIndex};
use muster_model::spec::TaskGroup;
use muster_planner::{Blocker, ClassCount, Explanation, explain_while, suggestions};
use muster_proto::v1;
use tokio::time::Instant;
use tonic::Status;

use crate::service::jobs::find;
use crate::view::{blocker_to_wire, cells_left_to_wire, remedy_to_wire, start_to_wire};

/// Longest search for a remedy and a start time, whatever the caller's deadline: the search keeps a core
/// busy.
const FORECAST_MAX: Duration = Duration::from_secs(5);

/// Reserve of the request's time for the search step in progress when the search ends.
const LAST_STEP_RESERVE: Duration = Duration::from_millis(500);

/// The instant at which the search ends for a request that must be answered by its deadline.
pub(crate) fn search_end(now: Instant, deadline: Instant) -> Instant {
    let given = deadline.saturating_duration_since(now);
    now + given
        .saturating_sub(LAST_STEP_RESERVE.min(given / 4))
        .min(FORECAST_MAX)
}

/// Explains why a job waits in this state; searches for remedies until an instant.
pub(crate) fn job(
    state: &State,
    id: JobId,
    until: Instant,
) -> Result<v1::ExplainJobResponse, Status> {
    let job = find(state, id)?;
    let may_continue = || Instant::now() < until;
    let explanation = explain_while(state, id, state.time, &may_continue)
        .ok_or_else(|| Status::internal("a job that is there has no explanation"))?;
    let unit = job.waiting_units().next();
    let group = unit.and_then(|unit| neediest(job, job.tasks_of(unit)));
    let classes = explanation
        .classes
        .iter()
        .map(|count| class(state, job, unit.unwrap_or_default(), group, count))
        .collect();
    let position = explanation.position.unwrap_or_default();
    Ok(v1::ExplainJobResponse {
        revision: state.revision.get(),
        phase: v1::JobPhase::from(job.phase).into(),
        summary: summary(state, job, &explanation),
        blocker: explanation.blocker.as_ref().map(blocker_to_wire),
        unit: unit.unwrap_or_default().get(),
        units_waiting: explanation.waiting_units,
        jobs_ahead: position.ahead_in_queue,
        jobs_ahead_overall: position.ahead,
        jobs_ahead_overall_is_exact: position.is_exact,
        expected_start: explanation.start.as_ref().map(start_to_wire),
        classes,
        cells: explanation.cells.iter().map(cells_left_to_wire).collect(),
        cells_missing: explanation
            .cells_missing
            .iter()
            .map(|kind| kind.arithmetic.clone())
            .collect(),
        remedy: explanation.remedy.as_ref().map(remedy_to_wire),
        remedy_is_enough: explanation.remedy_is_enough,
        cut_short: explanation.is_cut_short,
    })
}

/// The task group of the unit whose tasks need the most resources.
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
    job: &Job,
    unit: UnitIndex,
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
    let requester = Requester::at(job, unit, state.time);
    let freed = Freed::default();
    let has_room = |host: &Host| {
        host.accepts_work()
            && group.is_some_and(|group| {
                HostTrial::open(state, host, requester, &freed)
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
        gpus_reserved: narrow(count.gpus_reserved),
        gpus_held: narrow(count.gpus_held),
        gpus_out: narrow(count.gpus_faulted + count.gpus_blocked + count.gpus_silent),
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Why the job waits; and, if it ran before, why its last attempt ended.
fn summary(state: &State, job: &Job, explanation: &Explanation) -> String {
    let waits = why_it_waits(state, job, explanation);
    let unit = job.waiting_units().next().and_then(|unit| job.unit(unit));
    match unit.and_then(|unit| unit.past.last()) {
        Some(last) => {
            let attribution = last.attribution.as_deref();
            let attributed = attribution.map_or_else(String::new, |attribution| {
                format!(" (blamed on: {})", attributed_to(state, attribution))
            });
            format!(
                "{waits}; its last attempt ended: {}{attributed}",
                last.detail
            )
        }
        None => waits,
    }
}

/// Attribution of the end of an attempt, with names instead of ids.
fn attributed_to(state: &State, attribution: &Attribution) -> String {
    let host_name = |id: HostId| {
        let host = state.host(id);
        host.map_or_else(|| id.to_string(), |host| host.name.to_string())
    };
    let component = attribution
        .component
        .as_ref()
        .map(|component| match component {
            Component::Host(host) => format!("host {}", host_name(*host)),
            Component::Nic { host, name } => format!("{name} on {}", host_name(*host)),
            other => other.to_string(),
        });
    attribution.named(component.as_deref())
}

fn why_it_waits(state: &State, job: &Job, explanation: &Explanation) -> String {
    match &explanation.blocker {
        Some(blocker @ Blocker::NoSuchHost { .. }) => {
            let unit = job.waiting_units().next();
            let suggestion = unit.and_then(|unit| suggestions(state, job, unit));
            suggestion.map_or_else(|| blocker.to_string(), |it| format!("{blocker}; {it}"))
        }
        Some(blocker) => blocker.to_string(),
        None if job.phase.is_terminal() && !job.finish_reason.is_empty() => {
            format!("the job has ended: {}", job.finish_reason)
        }
        None if job.phase.is_terminal() => "the job has ended".to_owned(),
        None if explanation.waiting_units == 0 => match &job.suspension {
            Some(suspension) => format!(
                "{}; no other unit of it waits",
                Blocker::Suspended {
                    author: suspension.author.clone(),
                    reason: suspension.reason.clone(),
                }
            ),
            None => "no unit of the job waits".to_owned(),
        },
        None => "resources are free; the job is about to be placed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forecast_ends_before_the_requests_deadline_and_is_limited() {
        let now = Instant::now();
        let limit_for = |seconds: u64| search_end(now, now + Duration::from_secs(seconds)) - now;
        assert_eq!(limit_for(3_600), FORECAST_MAX);
        assert_eq!(limit_for(2), Duration::from_millis(1_500));
        assert_eq!(limit_for(1), Duration::from_millis(750));
        assert_eq!(limit_for(0), Duration::ZERO);
    }
}
