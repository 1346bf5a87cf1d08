//! The core's rejections as statuses: one arm per kind.

use std::fmt::Display;
use std::time::Duration;

use muster_model::ids::JobId;
use muster_model::rejection::Rejection;
use muster_model::spec::Violation;
use tonic::{Code, Status};
use tonic_types::{BadRequest, ErrorDetail, FieldViolation};

use crate::clip::clip;
use crate::status::{VALUE_BYTES_MAX, VIOLATIONS_MAX, error, info, retryable, with_details};
use crate::v1;

/// Wait before a command of a deposed leader may be retried: its successor is elected by then.
const RETRY_LEADER: Duration = Duration::from_millis(200);
/// Wait until a full resource may have room again.
const RETRY_FULL: Duration = Duration::from_secs(10);
/// Wait before a worker with a name in use may retry: the other one may be lost by then.
const RETRY_IDENTITY: Duration = Duration::from_secs(5);

/// Converts a rejection to a gRPC status.
#[must_use]
pub fn status_of(rejection: &Rejection) -> Status {
    let message = rejection.to_string();
    let reason = reason_of(rejection);
    let metadata = metadata_of(rejection);
    match rejection {
        Rejection::InvalidSpec(violations) | Rejection::InvalidConfiguration(violations) => {
            bad_request(reason, &message, violations)
        }
        Rejection::InvalidRegistration(violation) | Rejection::InvalidRequest(violation) => {
            bad_request(reason, &message, std::slice::from_ref(violation))
        }
        _ => match retry_of(rejection) {
            Some(after) => retryable(code_of(rejection), reason, &message, &metadata, after),
            None => error(code_of(rejection), reason, &message, &metadata),
        },
    }
}

/// Converts a rejected registration to the message of the worker's session.
#[must_use]
pub fn rejected_to_wire(rejection: &Rejection) -> v1::Rejected {
    v1::Rejected {
        reason: reason_of(rejection).to_owned(),
        message: rejection.to_string(),
        retry: retry_of(rejection).is_some(),
    }
}

fn bad_request(reason: &str, message: &str, violations: &[Violation]) -> Status {
    let listed = violations.iter().take(VIOLATIONS_MAX).map(|violation| {
        FieldViolation::new(
            clip(&violation.field, VALUE_BYTES_MAX),
            clip(&violation.rule, VALUE_BYTES_MAX),
        )
    });
    let count = ("violations", violations.len().to_string());
    let details = vec![
        info(reason, &[count]),
        ErrorDetail::BadRequest(BadRequest::new(listed.collect::<Vec<_>>())),
    ];
    with_details(Code::InvalidArgument, message, details)
}

const fn code_of(rejection: &Rejection) -> Code {
    match rejection {
        Rejection::StaleLeader { .. } => Code::Unavailable,
        Rejection::InvalidSpec(_)
        | Rejection::InvalidConfiguration(_)
        | Rejection::InvalidRegistration(_)
        | Rejection::InvalidRequest(_) => Code::InvalidArgument,
        Rejection::UnknownQueue(_)
        | Rejection::UnknownJob(_)
        | Rejection::UnknownPipeline(_)
        | Rejection::UnknownUser(_)
        | Rejection::UnknownJoinToken(_)
        | Rejection::UnknownUnit { .. }
        | Rejection::UnknownTask { .. }
        | Rejection::UnknownCheckpoint { .. }
        | Rejection::UnknownHost(_)
        | Rejection::UnknownComponent(_)
        | Rejection::UnknownGpu(_) => Code::NotFound,
        Rejection::RequestReused
        | Rejection::UserExists(_)
        | Rejection::JoinTokenExists(_)
        | Rejection::HostIdentityTaken(_)
        | Rejection::GpuClaimedTwice { .. } => Code::AlreadyExists,
        Rejection::QueueFull { .. } | Rejection::ClusterFull { .. } => Code::ResourceExhausted,
        Rejection::JobFinished { .. }
        | Rejection::UnitPhase { .. }
        | Rejection::JobHeld { .. }
        | Rejection::GangNotWhole { .. }
        | Rejection::Suspension { .. }
        | Rejection::TasksAtOnce { .. }
        | Rejection::StaleAttempt { .. }
        | Rejection::TaskTransition { .. }
        | Rejection::PlacementShape { .. }
        | Rejection::PlacementInfeasible { .. }
        | Rejection::StaleIncarnation { .. }
        | Rejection::NotBlocked(_)
        | Rejection::LastHost { .. }
        | Rejection::NothingPlanned(_)
        | Rejection::HealthWork { .. }
        | Rejection::BreakerWhole(_)
        | Rejection::QueueHasChildren { .. }
        | Rejection::QueueRetired(_)
        | Rejection::OverLimit { .. }
        | Rejection::ClaimInfeasible { .. }
        | Rejection::NoClaim { .. }
        | Rejection::CellsUnsafe { .. }
        | Rejection::JoinTokenSpent { .. }
        | Rejection::JoinTokenOfOthers { .. }
        | Rejection::HostIsUp(_)
        | Rejection::CheckpointOutOfOrder { .. } => Code::FailedPrecondition,
    }
}

const fn reason_of(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::StaleLeader { .. } => "STALE_LEADER",
        Rejection::InvalidSpec(_) => "INVALID_SPEC",
        Rejection::RequestReused => "REQUEST_REUSED",
        Rejection::UnknownQueue(_) => "UNKNOWN_QUEUE",
        Rejection::QueueFull { .. } => "QUEUE_FULL",
        Rejection::UnknownJob(_) => "UNKNOWN_JOB",
        Rejection::UnknownPipeline(_) => "UNKNOWN_PIPELINE",
        Rejection::JobFinished { .. } => "JOB_FINISHED",
        Rejection::UnknownUnit { .. } => "UNKNOWN_UNIT",
        Rejection::UnitPhase { .. } => "UNIT_PHASE",
        Rejection::StaleAttempt { .. } => "STALE_ATTEMPT",
        Rejection::UnknownTask { .. } => "UNKNOWN_TASK",
        Rejection::TaskTransition { .. } => "TASK_TRANSITION",
        Rejection::PlacementShape { .. } => "PLACEMENT_SHAPE",
        Rejection::PlacementInfeasible { .. } => "PLACEMENT_INFEASIBLE",
        Rejection::UnknownHost(_) => "UNKNOWN_HOST",
        Rejection::UnknownGpu(_) => "UNKNOWN_GPU",
        Rejection::UnknownComponent(_) => "UNKNOWN_COMPONENT",
        Rejection::HealthWork { .. } => "HEALTH_WORK",
        Rejection::BreakerWhole(_) => "BREAKER_WHOLE",
        Rejection::UserExists(_) => "USER_EXISTS",
        Rejection::UnknownUser(_) => "UNKNOWN_USER",
        Rejection::JoinTokenExists(_) => "JOIN_TOKEN_EXISTS",
        Rejection::UnknownJoinToken(_) => "UNKNOWN_JOIN_TOKEN",
        Rejection::JoinTokenSpent { .. } => "JOIN_TOKEN_SPENT",
        Rejection::JoinTokenOfOthers { .. } => "JOIN_TOKEN_OF_OTHERS",
        Rejection::HostIsUp(_) => "HOST_IS_UP",
        Rejection::HostIdentityTaken(_) => "HOST_IDENTITY_TAKEN",
        Rejection::StaleIncarnation { .. } => "STALE_INCARNATION",
        Rejection::GpuClaimedTwice { .. } => "GPU_CLAIMED_TWICE",
        Rejection::InvalidRegistration(_) => "INVALID_REGISTRATION",
        Rejection::InvalidRequest(_) => "INVALID_REQUEST",
        Rejection::NotBlocked(_) => "NOT_BLOCKED",
        Rejection::LastHost { .. } => "LAST_HOST",
        Rejection::NothingPlanned(_) => "NOTHING_PLANNED",
        Rejection::InvalidConfiguration(_) => "INVALID_CONFIGURATION",
        Rejection::QueueHasChildren { .. } => "QUEUE_HAS_CHILDREN",
        Rejection::QueueRetired(_) => "QUEUE_RETIRED",
        Rejection::OverLimit { .. } => "OVER_LIMIT",
        Rejection::ClaimInfeasible { .. } => "CLAIM_INFEASIBLE",
        Rejection::NoClaim { .. } => "NO_CLAIM",
        Rejection::CellsUnsafe { .. } => "CELLS_UNSAFE",
        Rejection::CheckpointOutOfOrder { .. } => "CHECKPOINT_OUT_OF_ORDER",
        Rejection::ClusterFull { .. } => "CLUSTER_FULL",
        Rejection::UnknownCheckpoint { .. } => "UNKNOWN_CHECKPOINT",
        Rejection::JobHeld { .. } => "JOB_HELD",
        Rejection::GangNotWhole { .. } => "GANG_NOT_WHOLE",
        Rejection::Suspension { .. } => "SUSPENSION",
        Rejection::TasksAtOnce { .. } => "TASKS_AT_ONCE",
    }
}

const fn retry_of(rejection: &Rejection) -> Option<Duration> {
    match rejection {
        Rejection::StaleLeader { .. } => Some(RETRY_LEADER),
        Rejection::QueueFull { .. } | Rejection::ClusterFull { .. } => Some(RETRY_FULL),
        Rejection::HostIdentityTaken(_) | Rejection::GpuClaimedTwice { .. } => Some(RETRY_IDENTITY),
        _ => None,
    }
}

fn metadata_of(rejection: &Rejection) -> Metadata {
    match rejection {
        Rejection::StaleLeader { given, current } => {
            texts(&[("given", given), ("current", current)])
        }
        Rejection::UnknownJob(job) => texts(&[("job", job)]),
        Rejection::UnknownPipeline(id) => texts(&[("pipeline", id)]),
        Rejection::JobFinished { job, phase } => {
            let phase = v1::JobPhase::from(*phase).as_str_name();
            texts(&[("job", job), ("phase", &phase)])
        }
        Rejection::UnknownUnit { job, unit }
        | Rejection::PlacementShape { job, unit, .. }
        | Rejection::ClaimInfeasible { job, unit, .. }
        | Rejection::NoClaim { job, unit } => texts(&[("job", job), ("unit", unit)]),
        Rejection::UnitPhase { job, unit, phase } => {
            let phase = v1::UnitPhase::from(*phase).as_str_name();
            texts(&[("job", job), ("unit", unit), ("phase", &phase)])
        }
        Rejection::StaleAttempt { job, unit, given } => {
            texts(&[("job", job), ("unit", unit), ("given", given)])
        }
        Rejection::UnknownTask { job, epoch, task } => {
            texts(&[("job", job), ("epoch", epoch), ("task", task)])
        }
        Rejection::UnknownCheckpoint { .. } | Rejection::CheckpointOutOfOrder { .. } => {
            about_checkpoint(rejection)
        }
        Rejection::GangNotWhole { job, unit, detail } => {
            texts(&[("job", job), ("unit", unit), ("detail", detail)])
        }
        Rejection::Suspension { job, detail } => texts(&[("job", job), ("detail", detail)]),
        Rejection::JobHeld { job, open } => texts(&[("job", job), ("open", open)]),
        Rejection::TasksAtOnce { job, limit } => at_once(*job, *limit),
        Rejection::TaskTransition { job, task, .. } => texts(&[("job", job), ("task", task)]),
        Rejection::PlacementInfeasible { host, .. } => texts(&[("host", host)]),
        Rejection::UnknownHost(_)
        | Rejection::HostIdentityTaken(_)
        | Rejection::JoinTokenOfOthers { .. }
        | Rejection::HostIsUp(_)
        | Rejection::UnknownGpu(_)
        | Rejection::StaleIncarnation { .. }
        | Rejection::GpuClaimedTwice { .. } => about_host(rejection),
        Rejection::NotBlocked(_)
        | Rejection::LastHost { .. }
        | Rejection::NothingPlanned(_)
        | Rejection::UnknownComponent(_)
        | Rejection::HealthWork { .. }
        | Rejection::BreakerWhole(_) => about_health(rejection),
        Rejection::ClusterFull { .. }
        | Rejection::UnknownQueue(_)
        | Rejection::QueueRetired(_)
        | Rejection::CellsUnsafe { .. }
        | Rejection::QueueHasChildren { .. }
        | Rejection::OverLimit { .. }
        | Rejection::QueueFull { .. }
        | Rejection::UserExists(_)
        | Rejection::UnknownUser(_) => about_queue(rejection),
        Rejection::JoinTokenExists(id)
        | Rejection::UnknownJoinToken(id)
        | Rejection::JoinTokenSpent { id, .. } => texts(&[("join_token", id)]),
        Rejection::RequestReused
        | Rejection::InvalidSpec(_)
        | Rejection::InvalidConfiguration(_)
        | Rejection::InvalidRegistration(_)
        | Rejection::InvalidRequest(_) => Vec::new(),
    }
}

/// Metadata of a host in the wrong state, or of its GPUs.
fn about_host(rejection: &Rejection) -> Metadata {
    match rejection {
        Rejection::UnknownHost(name)
        | Rejection::HostIdentityTaken(name)
        | Rejection::JoinTokenOfOthers { host: name, .. }
        | Rejection::HostIsUp(name) => texts(&[("host", name)]),
        Rejection::UnknownGpu(gpu) => texts(&[("gpu", gpu)]),
        Rejection::StaleIncarnation {
            name,
            given,
            current,
        } => texts(&[("host", name), ("given", given), ("current", current)]),
        Rejection::GpuClaimedTwice { gpu, holder } => texts(&[("gpu", gpu), ("host", holder)]),
        _ => Vec::new(),
    }
}

fn about_health(rejection: &Rejection) -> Metadata {
    match rejection {
        Rejection::UnknownComponent(component) | Rejection::HealthWork { component, .. } => {
            texts(&[("component", component)])
        }
        Rejection::BreakerWhole(pool) => texts(&[("pool", pool)]),
        Rejection::LastHost { host, pool } => texts(&[("host", host), ("pool", pool)]),
        Rejection::NotBlocked(target) | Rejection::NothingPlanned(target) => {
            texts(&[("target", target)])
        }
        _ => texts(&[]),
    }
}

/// Metadata of a job whose limit of concurrent units is reached.
fn at_once(job: JobId, limit: u32) -> Metadata {
    texts(&[
        ("job", &job),
        ("limit_name", &"tasks_at_once_max"),
        ("limit", &limit),
    ])
}

/// Metadata of a checkpoint that cannot be committed, or is unknown.
fn about_checkpoint(rejection: &Rejection) -> Metadata {
    match rejection {
        Rejection::UnknownCheckpoint { job, epoch, step } => {
            texts(&[("job", job), ("epoch", epoch), ("step", step)])
        }
        Rejection::CheckpointOutOfOrder {
            job,
            given,
            current,
        } => texts(&[("job", job), ("given", given), ("current", current)]),
        _ => Vec::new(),
    }
}

/// Metadata of limits of a queue or a user.
fn about_queue(rejection: &Rejection) -> Metadata {
    match rejection {
        Rejection::UserExists(user) | Rejection::UnknownUser(user) => texts(&[("user", user)]),
        Rejection::UnknownQueue(queue)
        | Rejection::QueueRetired(queue)
        | Rejection::CellsUnsafe { queue, .. } => texts(&[("queue", queue)]),
        Rejection::QueueHasChildren { queue, child } => {
            texts(&[("queue", queue), ("child", child)])
        }
        Rejection::OverLimit {
            who,
            resource,
            would_have,
            limit,
        } => texts(&[
            ("who", who),
            ("resource", resource),
            ("would_have", would_have),
            ("limit", limit),
        ]),
        Rejection::ClusterFull {
            limit_name, limit, ..
        } => texts(&[("limit_name", limit_name), ("limit", limit)]),
        Rejection::QueueFull { queue, limit } => texts(&[
            ("queue", queue),
            ("limit_name", &"live_jobs_max"),
            ("limit", limit),
        ]),
        _ => Vec::new(),
    }
}

/// `ErrorInfo.metadata` before truncation.
type Metadata = Vec<(&'static str, String)>;

fn texts(values: &[(&'static str, &dyn Display)]) -> Metadata {
    values
        .iter()
        .map(|(key, value)| (*key, value.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use muster_model::lifecycle::JobPhase;

    use super::*;
    use crate::status::ErrorReport;

    #[test]
    fn invalid_fields_are_listed_one_by_one() {
        let violations = ["name", "groups[0].count"].map(|field| Violation {
            field: field.to_owned(),
            rule: "must not be empty".to_owned(),
        });
        let status = status_of(&Rejection::InvalidSpec(violations.to_vec()));
        assert_eq!(status.code(), Code::InvalidArgument);
        let report = ErrorReport::of(&status);
        assert_eq!(report.reason, "INVALID_SPEC");
        assert_eq!(report.violations.len(), 2);
        assert_eq!(report.violations[1].0, "groups[0].count");
    }

    #[test]
    fn an_error_with_many_details_still_fits_into_the_trailers() {
        let violations = (0..10_000).map(|position| Violation {
            field: format!("groups[{position}].{}", "é".repeat(1_000)),
            rule: "é".repeat(1_000),
        });
        let status = status_of(&Rejection::InvalidSpec(violations.collect()));
        // Percent encoding triples the message, base64 adds a third to the details.
        let encoded_bytes = 3 * status.message().len() + status.details().len() * 4 / 3;
        assert!(encoded_bytes < 14_000, "{encoded_bytes}");
        let report = ErrorReport::of(&status);
        assert_eq!(report.violations.len(), VIOLATIONS_MAX);
        assert_eq!(
            report.metadata.get("violations").map(String::as_str),
            Some("10000")
        );
    }

    #[test]
    fn a_full_queue_names_its_limit_and_is_retryable() {
        let status = status_of(&Rejection::QueueFull {
            queue: "vision".to_owned(),
            limit: 10,
        });
        let report = ErrorReport::of(&status);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(report.metadata.get("limit").map(String::as_str), Some("10"));
        assert!(report.retry_after.is_some());
    }

    #[test]
    fn the_rejection_of_a_finished_job_is_not_retryable() {
        let status = status_of(&Rejection::JobFinished {
            job: JobId(4),
            phase: JobPhase::Succeeded,
        });
        let report = ErrorReport::of(&status);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(
            report.metadata.get("phase").map(String::as_str),
            Some("JOB_PHASE_SUCCEEDED")
        );
        assert_eq!(report.retry_after, None);
    }
}
