//! Rate, result and duration of calls.

use http::HeaderMap;
use metrics::{counter, histogram};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::metrics::names;
use crate::service::gate::rights;

/// Service and method of unknown calls. Labels are never taken from the request: clients may request
/// anything.
const UNKNOWN: (&str, &str) = ("unknown", "unknown");

/// Codes that mean that the cluster failed a caller, as used by an alert.
const FAILURES: [Code; 4] = [
    Code::Internal,
    Code::Unavailable,
    Code::DeadlineExceeded,
    Code::Unknown,
];

/// Initializes the counters of failures of users' calls at 0: `rate` misses the event that a series begins
/// with, and the first failure must be visible.
pub(crate) fn begin_counting() {
    for (service, method) in rights::of_users() {
        for code in [Code::Ok].into_iter().chain(FAILURES) {
            count(service, method, code, 0);
        }
    }
}

fn count(service: &'static str, method: &'static str, code: Code, calls: u64) {
    let labels = [
        ("service", service),
        ("method", method),
        ("code", name_of(code)),
    ];
    counter!(names::REQUESTS_TOTAL, &labels).increment(calls);
}

/// A call in progress. It is counted when it is dropped.
#[derive(Debug)]
pub(super) struct Call {
    service: &'static str,
    method: &'static str,
    began: Instant,
    code: Code,
}

impl Call {
    /// Begins the measurement of a call by its path (`/muster.v1.JobService/GetJob`).
    pub(super) fn begin(path: &str) -> Self {
        let (service, method) = rights::name(path).unwrap_or(UNKNOWN);
        Self {
            service,
            method,
            began: Instant::now(),
            // Without an answer the caller has gone, or its time has run out.
            code: Code::Cancelled,
        }
    }

    /// Records the code of the answer, or of the start of a stream: the trailer of a stream is not awaited
    /// here.
    pub(super) fn answered(mut self, headers: &HeaderMap) {
        self.code = Status::from_header_map(headers).map_or(Code::Ok, |status| status.code());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (service, method) = (self.service, self.method);
        histogram!(names::REQUEST_SECONDS, "service" => service, "method" => method)
            .record(self.began.elapsed());
        count(service, method, self.code, 1);
    }
}

/// Name of a code as in gRPC libraries.
const fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "Ok",
        Code::Cancelled => "Cancelled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
