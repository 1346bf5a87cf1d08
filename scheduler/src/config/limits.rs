//! Limits of the gRPC server.

use muster_service::settings::BrokenRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::require;

/// Limits of the gRPC server; an error caused by a limit names it and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum size of a received message in bytes. Above `SPEC_BYTES_MAX`, so that a specification that is
    /// too large is refused with the name of its own limit.
    pub message_bytes_max: usize,
    /// HTTP/2 streams of one connection.
    pub streams_per_connection_max: u32,
    /// Unary requests processed at a time, over all connections.
    pub requests_in_flight_max: usize,
    /// Concurrent watches.
    pub watches_max: usize,
    /// Revisions queued for one slow watcher before it is dropped.
    pub watch_buffer_revisions: usize,
    /// Concurrent worker streams.
    pub worker_streams_max: usize,
    /// Rows per page of a list.
    #[schemars(extend("x-reload" = true))]
    pub page_rows_max: u32,
    /// Sustained calls per second of a user at one replica; 0: unlimited. Applies where users are
    /// authenticated.
    #[schemars(extend("x-reload" = true))]
    pub calls_per_second_per_user: u32,
    /// Burst of calls of a user after a pause.
    #[schemars(extend("x-reload" = true))]
    pub calls_at_once_per_user: u32,
    /// Bytes of one request of a user at one replica. Applies where users are authenticated;
    /// `message_bytes_max` applies to everyone.
    #[schemars(extend("x-reload" = true))]
    pub request_bytes_per_user_max: u64,
    /// Bytes of a user's unanswered requests at one replica.
    #[schemars(extend("x-reload" = true))]
    pub outstanding_bytes_per_user_max: u64,
    /// Timeout in milliseconds of a request without a deadline of its own.
    #[schemars(extend("x-reload" = true))]
    pub request_ms_default: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 16 << 20,
            streams_per_connection_max: 4_096,
            requests_in_flight_max: 16_384,
            watches_max: 4_096,
            watch_buffer_revisions: 1_024,
            worker_streams_max: 20_000,
            page_rows_max: 1_000,
            calls_per_second_per_user: 2_000,
            calls_at_once_per_user: 4_000,
            request_bytes_per_user_max: 4 << 20,
            outstanding_bytes_per_user_max: 64 << 20,
            request_ms_default: 10_000,
        }
    }
}

impl Limits {
    pub(super) fn validate(&self) -> Result<(), BrokenRule> {
        let sizes = [
            ("limits.message_bytes_max", self.message_bytes_max),
            ("limits.requests_in_flight_max", self.requests_in_flight_max),
            ("limits.watches_max", self.watches_max),
            ("limits.watch_buffer_revisions", self.watch_buffer_revisions),
            ("limits.worker_streams_max", self.worker_streams_max),
        ];
        for (field, value) in sizes {
            require(value > 0, field, || "must not be 0".to_owned())?;
        }
        let spec_bytes_max = muster_model::limits::SPEC_BYTES_MAX;
        require(
            self.message_bytes_max > spec_bytes_max,
            "limits.message_bytes_max",
            || format!("must exceed {spec_bytes_max} (SPEC_BYTES_MAX)"),
        )?;
        require(
            self.streams_per_connection_max > 0,
            "limits.streams_per_connection_max",
            || "must not be 0".to_owned(),
        )?;
        let of_request = self.request_bytes_per_user_max;
        require(of_request > 0, "limits.request_bytes_per_user_max", || {
            "must not be 0".to_owned()
        })?;
        require(
            self.outstanding_bytes_per_user_max >= of_request,
            "limits.outstanding_bytes_per_user_max",
            || format!("must be at least request_bytes_per_user_max, {of_request}"),
        )?;
        require(self.page_rows_max > 0, "limits.page_rows_max", || {
            "must not be 0".to_owned()
        })?;
        require(
            self.request_ms_default > 0,
            "limits.request_ms_default",
            || "must not be 0".to_owned(),
        )
    }
}
