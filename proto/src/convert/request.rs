//! Conversion of client writes to commands.

use std::sync::Arc;

use muster_model::command::{Block, BlockTarget, Command, ConfigCommand, HealthCommand, Planned};
use muster_model::ids::JobId;
use muster_model::limits::{CONFIGURATION_BYTES_MAX, LIVE_JOBS_PER_QUEUE_MAX, SPEC_BYTES_MAX};
use muster_model::quota::QueueTree;
use muster_model::rejection::Rejection;
use muster_model::spec::{JobSpec, Violation, validate};
use muster_model::time::TimeMs;
use muster_model::topology::Topology;
use prost::Message;

use crate::convert::request_key::request_key;
use crate::field::{InvalidField, not_empty, required};
use crate::v1;

/// Converts a submission to a command, fills in defaults and checks every rule that needs no state.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, `InvalidSpec` with every violated rule of the specification.
pub fn submit_command(mut request: v1::SubmitJobRequest) -> Result<Command, Rejection> {
    request.validate_only = false;
    let key = request_key("submit_job", &request.request_id, &request)?;
    let spec = request
        .spec
        .ok_or_else(|| InvalidField::new("spec", "must be present"))?;
    let size_bytes = spec.encoded_len();
    if size_bytes > SPEC_BYTES_MAX {
        return Err(Rejection::InvalidSpec(vec![Violation {
            field: "spec".to_owned(),
            rule: format!(
                "{size_bytes} encoded bytes are over the limit of {SPEC_BYTES_MAX} (SPEC_BYTES_MAX)"
            ),
        }]));
    }
    let spec =
        JobSpec::try_from(spec).map_err(|invalid| Rejection::InvalidSpec(vec![invalid.into()]))?;
    let violations = validate(&spec);
    if !violations.is_empty() {
        return Err(Rejection::InvalidSpec(violations));
    }
    Ok(Command::SubmitJob {
        request: key,
        spec: Arc::new(spec),
    })
}

/// Converts a cancellation to a command.
///
/// # Errors
/// `InvalidRequest` for an invalid request id.
pub fn cancel_command(request: v1::CancelJobRequest) -> Result<Command, Rejection> {
    Ok(Command::CancelJob {
        request: request_key("cancel_job", &request.request_id, &request)?,
        job: JobId(request.job_id),
        author: request.author,
        reason: request.reason,
    })
}

/// Converts a suspension to a command.
///
/// # Errors
/// `InvalidRequest` for an invalid request id.
pub fn suspend_command(request: v1::SuspendJobRequest) -> Result<Command, Rejection> {
    Ok(Command::SuspendJob {
        request: request_key("suspend_job", &request.request_id, &request)?,
        job: JobId(request.job_id),
        author: request.author,
        reason: request.reason,
    })
}

/// Converts a resume request to a command.
///
/// # Errors
/// `InvalidRequest` for an invalid request id.
pub fn resume_command(request: v1::ResumeJobRequest) -> Result<Command, Rejection> {
    Ok(Command::ResumeJob {
        request: request_key("resume_job", &request.request_id, &request)?,
        job: JobId(request.job_id),
        author: request.author,
        reason: request.reason,
    })
}

/// Converts a block to a command; `apply` stamps its time.
///
/// # Errors
/// `InvalidRequest` for an invalid request id or target, or a missing reason or author.
pub fn block_command(mut request: v1::BlockRequest) -> Result<Command, Rejection> {
    request.dry_run = false;
    let key = request_key("block", &request.request_id, &request)?;
    let target = target(request.target)?;
    not_empty("reason", &request.reason)?;
    not_empty("author", &request.author)?;
    Ok(Command::Block {
        request: key,
        target,
        block: Block {
            reason: request.reason,
            author: request.author,
            evidence: request.evidence,
            since: TimeMs::default(),
            expires_at: request.expires_at_ms.map(TimeMs),
            drain_deadline: request.drain_deadline_ms.map(TimeMs),
            planned: request.begins_at_ms.map(|at_ms| Planned {
                at: TimeMs(at_ms),
                notice_ms: request.notice_ms.unwrap_or(Planned::NOTICE_MS_DEFAULT),
            }),
        },
        // The state of the pool at the beginning of a planned block is unknown.
        spares_last: !request.force && request.begins_at_ms.is_none(),
    })
}

/// Converts an unblock request to a command.
///
/// # Errors
/// `InvalidRequest` for an invalid request id or target, or a missing author.
pub fn unblock_command(request: v1::UnblockRequest) -> Result<Command, Rejection> {
    let key = request_key("unblock", &request.request_id, &request)?;
    let target = target(request.target)?;
    not_empty("author", &request.author)?;
    Ok(Command::Unblock {
        request: key,
        target,
        author: request.author,
        planned: request.planned,
    })
}

/// Converts the creation or change of a queue to a command.
///
/// # Errors
/// `InvalidRequest` for an invalid request id or an empty name.
pub fn set_queue_command(request: v1::SetQueueRequest) -> Result<Command, Rejection> {
    let key = request_key("set_queue", &request.request_id, &request)?;
    not_empty("name", &request.name)?;
    Ok(Command::Config(ConfigCommand::SetQueue {
        request: key,
        name: request.name,
        live_jobs_max: request.live_jobs_max.unwrap_or(LIVE_JOBS_PER_QUEUE_MAX),
    }))
}

/// Converts a new queue tree to a command; `apply` checks its rules.
///
/// # Errors
/// `InvalidRequest` for an invalid request id or a missing author, `InvalidConfiguration` for a tree that
/// is absent, too large or unreadable.
pub fn configure_queues_command(
    mut request: v1::ConfigureQueuesRequest,
) -> Result<Command, Rejection> {
    request.dry_run = false;
    let key = request_key("configure_queues", &request.request_id, &request)?;
    not_empty("author", &request.author)?;
    let tree = configuration("tree", request.tree)?;
    let tree = QueueTree::try_from(tree).map_err(invalid_configuration)?;
    Ok(Command::Config(ConfigCommand::ConfigureQueues {
        request: key,
        author: request.author,
        tree: Arc::new(tree),
    }))
}

/// Converts a new topology to a command; `apply` checks its rules.
///
/// # Errors
/// `InvalidRequest` for an invalid request id or a missing author, `InvalidConfiguration` for a topology
/// that is absent or too large.
pub fn set_topology_command(mut request: v1::SetTopologyRequest) -> Result<Command, Rejection> {
    request.dry_run = false;
    let key = request_key("set_topology", &request.request_id, &request)?;
    not_empty("author", &request.author)?;
    let topology = configuration("topology", request.topology)?;
    Ok(Command::Config(ConfigCommand::SetTopology {
        request: key,
        author: request.author,
        topology: Arc::new(Topology::from(topology)),
    }))
}

/// Converts the reset of a circuit breaker to a command.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, a missing author or a missing pool.
pub fn reset_breaker_command(request: v1::ResetBreakerRequest) -> Result<Command, Rejection> {
    let key = request_key("reset_breaker", &request.request_id, &request)?;
    not_empty("author", &request.author)?;
    not_empty("pool", &request.pool)?;
    Ok(Command::Health(HealthCommand::ResetBreaker {
        request: key,
        author: request.author,
        pool: request.pool,
    }))
}

/// A configuration that is present and fits into one record of the log.
fn configuration<M: Message>(field: &str, wire: Option<M>) -> Result<M, Rejection> {
    let wire = required(field, wire).map_err(invalid_configuration)?;
    let size_bytes = wire.encoded_len();
    if size_bytes > CONFIGURATION_BYTES_MAX {
        return Err(invalid_configuration(InvalidField::new(
            field,
            format!(
                "{size_bytes} encoded bytes are over the limit of {CONFIGURATION_BYTES_MAX} (CONFIGURATION_BYTES_MAX)"
            ),
        )));
    }
    Ok(wire)
}

fn invalid_configuration(invalid: InvalidField) -> Rejection {
    Rejection::InvalidConfiguration(vec![invalid.into()])
}

fn target(wire: Option<v1::BlockTarget>) -> Result<BlockTarget, InvalidField> {
    BlockTarget::try_from(required("target", wire)?).map_err(|invalid| invalid.within("target"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn submission(argument: &str) -> v1::SubmitJobRequest {
        v1::SubmitJobRequest {
            request_id: "nightly".to_owned(),
            spec: Some(v1::JobSpec {
                name: "train".to_owned(),
                user: "ada".to_owned(),
                groups: vec![v1::TaskGroup {
                    command: vec!["echo".to_owned(), argument.to_owned()],
                    ..v1::TaskGroup::default()
                }],
                ..v1::JobSpec::default()
            }),
            validate_only: false,
        }
    }

    #[test]
    fn a_plain_submission_is_a_command() {
        let command = submit_command(submission("hello")).unwrap();
        assert!(matches!(command, Command::SubmitJob { spec, .. } if spec.queue == "default"));
    }

    #[test]
    fn a_submission_has_a_fingerprint_of_all_of_it() {
        let key = |argument| match submit_command(submission(argument)).unwrap() {
            Command::SubmitJob { request, .. } => request,
            other => panic!("{other:?}"),
        };
        assert_eq!(key("hello"), key("hello"));
        assert_eq!(key("hello").id, key("world").id);
        assert_ne!(key("hello").fingerprint, key("world").fingerprint);
    }

    #[test]
    fn a_check_has_the_fingerprint_of_the_submission() {
        let check = v1::SubmitJobRequest {
            validate_only: true,
            ..submission("hello")
        };
        assert_eq!(
            submit_command(check).unwrap(),
            submit_command(submission("hello")).unwrap()
        );
    }

    #[test]
    fn requests_of_different_kinds_have_different_fingerprints() {
        let (request_id, job_id) = ("nightly".to_owned(), 7);
        let (author, reason) = ("ada".to_owned(), String::new());
        let suspend = suspend_command(v1::SuspendJobRequest {
            request_id: request_id.clone(),
            job_id,
            author: author.clone(),
            reason: reason.clone(),
        });
        let resume = resume_command(v1::ResumeJobRequest {
            request_id,
            job_id,
            author,
            reason,
        });
        let (
            Ok(Command::SuspendJob {
                request: suspend, ..
            }),
            Ok(Command::ResumeJob {
                request: resume, ..
            }),
        ) = (suspend, resume)
        else {
            panic!("both are valid");
        };
        assert_eq!(suspend.id, resume.id);
        assert_ne!(suspend.fingerprint, resume.fingerprint);
    }

    #[test]
    fn a_submission_over_the_size_limit_names_the_limit() {
        let error = submit_command(submission(&"x".repeat(10 << 20))).unwrap_err();
        assert!(error.to_string().contains("SPEC_BYTES_MAX"), "{error}");
    }

    #[test]
    fn zero_tasks_and_a_billion_tasks_are_refused_by_field() {
        for count in [0, 1_000_000_000] {
            let mut request = submission("hello");
            request.spec.as_mut().unwrap().groups[0].count = Some(count);
            let error = submit_command(request).unwrap_err();
            assert!(error.to_string().contains("groups"), "{error}");
        }
    }

    #[test]
    fn a_block_without_a_reason_or_a_target_is_refused_by_field() {
        let request = v1::BlockRequest {
            request_id: "one".to_owned(),
            target: Some(v1::BlockTarget {
                target: Some(v1::block_target::Target::Host("node01".to_owned())),
            }),
            author: "ada".to_owned(),
            ..v1::BlockRequest::default()
        };
        let error = block_command(request.clone()).unwrap_err();
        assert!(error.to_string().contains("reason"), "{error}");
        let nowhere = v1::BlockRequest {
            target: None,
            reason: "noisy fan".to_owned(),
            ..request
        };
        let error = block_command(nowhere).unwrap_err();
        assert!(error.to_string().contains("target"), "{error}");
    }
}
