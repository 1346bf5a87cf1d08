//! What processes of the cluster tell of themselves, and how much they log.

use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::debug_target::Process;

use crate::client::{Client, admin};
use crate::error::ClientError;

impl Client {
    /// Changes what a process logs for a while (`muster_scheduler::leader=debug`); gives the filter that counts there now.
    ///
    /// A replica changes its own log only: ask it with a client that knows no other. A worker is asked through the leader.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `NOT_YOURS` or `ROLE_TOO_WEAK` for whoever is no admin, `INVALID_REQUEST`,
    /// `UNKNOWN_HOST`, or `HOST_UNREACHABLE` if the worker does not answer.
    pub async fn set_log_level(
        &self,
        author: &str,
        process: Process,
        (change, span): (&str, Duration),
    ) -> Result<String, ClientError> {
        let request = v1::SetLogLevelRequest {
            author: author.to_owned(),
            target: Some(target(process)),
            change: change.to_owned(),
            for_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
        };
        let operation = self.operation("change what is logged");
        let answer = self.call(operation, |channel| {
            let request = request.clone();
            async move { admin(channel).set_log_level(request).await }
        });
        Ok(answer.await?.filter)
    }

    /// What a process is and has said lately, for a bug report.
    ///
    /// # Errors
    /// As of [`Client::set_log_level`].
    pub async fn debug_info(
        &self,
        author: &str,
        process: Process,
    ) -> Result<v1::GetDebugInfoResponse, ClientError> {
        let request = v1::GetDebugInfoRequest {
            author: author.to_owned(),
            target: Some(target(process)),
        };
        self.call(self.operation("look into the process"), |channel| {
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
