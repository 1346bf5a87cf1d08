//! Parser for a task's lines on its control socket: the contract is `docs/task-interface.md`.

use muster_model::heartbeat::{CheckpointReport, DamageReport};

use crate::link::protocol::ControlRequest;

/// A valid request of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskRequest {
    /// A checkpoint of this step is about to be written.
    Begin(u64),
    /// A checkpoint is complete.
    Commit(Commit),
    /// The task is at this step.
    Progress(u64),
    /// A checkpoint of an earlier attempt cannot be read.
    Damage(DamageReport),
    /// The connection subscribes to stop requests, and optionally to changes of the gang's rendezvous
    /// address.
    Watch {
        /// Whether it subscribes to the gang's changes.
        gang: bool,
    },
}

/// A checkpoint that a task registers on its control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The saved checkpoint.
    pub(crate) report: CheckpointReport,
    /// Whether it is the last one before the task stops, if the task stated that; `Some(false)` means that
    /// more follow.
    pub(crate) last: Option<bool>,
}

/// Parses a task's line; `ours` is the attempt's epoch.
///
/// # Errors
/// What is wrong with it, for the task's author.
pub(crate) fn parse(line: &[u8], ours: u64) -> Result<TaskRequest, String> {
    let request: ControlRequest = serde_json::from_slice(line).map_err(|error| {
        format!("not a request (begin, commit, progress, invalidate, watch): {error}")
    })?;
    match request {
        ControlRequest::Begin { step, epoch, .. } => {
            of_this_attempt(epoch, ours)?;
            Ok(TaskRequest::Begin(step))
        }
        ControlRequest::Progress { step, epoch } => {
            of_this_attempt(epoch, ours)?;
            Ok(TaskRequest::Progress(step))
        }
        ControlRequest::Invalidate {
            step,
            reason,
            epoch,
        } => {
            of_this_attempt(epoch, ours)?;
            if reason.trim().is_empty() {
                return Err("reason: must describe what is wrong with the checkpoint".to_owned());
            }
            Ok(TaskRequest::Damage(DamageReport { step, reason }))
        }
        ControlRequest::Watch { gang } => Ok(TaskRequest::Watch { gang }),
        ControlRequest::Commit {
            step,
            path,
            size_bytes,
            digest,
            epoch,
            last,
        } => {
            of_this_attempt(epoch, ours)?;
            if !path.starts_with('/') {
                return Err(format!("path `{path}` is not absolute"));
            }
            let report = CheckpointReport {
                step,
                path,
                size_bytes,
                digest,
                save_ms: None,
            };
            Ok(TaskRequest::Commit(Commit { report, last }))
        }
    }
}

/// Rejects a request of another attempt, which may have outlived its lease.
fn of_this_attempt(epoch: Option<u64>, ours: u64) -> Result<(), String> {
    match epoch {
        Some(epoch) if epoch != ours => {
            Err(format!("epoch {epoch} is not this attempt's epoch {ours}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_another_attempt_are_refused() {
        for line in [
            r#"{"op":"begin","step":5,"epoch":8}"#,
            r#"{"op":"commit","step":5,"path":"/c/5","epoch":8}"#,
            r#"{"op":"progress","step":5,"epoch":8}"#,
            r#"{"op":"invalidate","step":5,"reason":"torn","epoch":8}"#,
        ] {
            assert!(parse(line.as_bytes(), 8).is_ok(), "{line}");
            assert!(parse(line.as_bytes(), 9).is_err(), "{line}");
        }
    }

    #[test]
    fn bad_lines_are_refused_with_the_reason() {
        for line in [
            "",
            "x",
            "{}",
            r#"{"op":"commit","step":5}"#,
            r#"{"op":"commit","step":5,"path":"relative"}"#,
            r#"{"op":"commit","step":-5,"path":"/c"}"#,
            r#"{"op":"invalidate","step":5,"reason":" "}"#,
            r#"{"op":"destroy"}"#,
        ] {
            assert!(parse(line.as_bytes(), 1).is_err(), "{line}");
        }
        let progress = parse(br#"{"op":"progress","step":3}"#, 1);
        assert_eq!(progress, Ok(TaskRequest::Progress(3)));
        let watch = |gang| Ok(TaskRequest::Watch { gang });
        assert_eq!(parse(br#"{"op":"watch"}"#, 1), watch(false));
        assert_eq!(parse(br#"{"op":"watch","gang":true}"#, 1), watch(true));
    }
}
