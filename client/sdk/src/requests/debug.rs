//! Debug information and log levels of the cluster's processes.

use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::debug_target::Process;

use crate::client::{Client, admin};
use crate::error::ClientError;

impl Client {
    /// Changes the log level of a process for a while (`muster_scheduler::leader=debug`); returns the
    /// resulting filter.
    ///
    /// A replica changes only its own log: call it with a client that knows no other. A worker is reached
    /// through the leader.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_YOURS` or `ROLE_TOO_WEAK` if the caller is not an admin,
    /// `INVALID_REQUEST`, `UNKNOWN_HOST`, or `HOST_UNREACHABLE` if the worker does not answer.
    pub async fn set_log_level(
        &self,
        author: &str,
        process: Process,
        change: &str,
        span: Duration,
    ) -> Result<String, ClientError> {
        let request = v1::SetLogLevelRequest {
            author: author.to_owned(),
            target: Some(target(process)),
            change: change.to_owned(),
            for_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
        };
        let operation = self.operation("change the log level");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).set_log_level(request).await }
        });
        Ok(answer.await?.filter)
    }

    /// Reads a process's identity and recent log, for a bug report.
    ///
    /// # Errors
    /// As [`Client::set_log_level`].
    pub async fn debug_info(
        &self,
        author: &str,
        process: Process,
    ) -> Result<v1::GetDebugInfoResponse, ClientError> {
        let request = v1::GetDebugInfoRequest {
            author: author.to_owned(),
            target: Some(target(process)),
        };
        self.call(self.operation("read debug information"), |channel| {
            let request = request.clone();
            async move { admin(channel).get_debug_info(request).await }
        })
        .await
    }
}

fn target(process: Process) -> v1::DebugTarget {
    v1::DebugTarget {
        process: Some(process),
    }
}
