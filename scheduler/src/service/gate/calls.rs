//! How often each call is made, how it is answered, and how long that takes.

use http::HeaderMap;
use metrics::{counter, histogram};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::metrics::names;
use crate::service::gate::rights;

/// Service and method of calls that no service has. Labels are never taken from what was asked for: anybody may ask for anything.
const UNKNOWN: (&str, &str) = ("unknown", "unknown");

/// Answers that say that the cluster failed a caller, as an alert asks for them.
const FAILURES: [Code; 4] = [
    Code::Internal,
    Code::Unavailable,
    Code::DeadlineExceeded,
    Code::Unknown,
];

/// Begins at 0 what users' calls may be answered with when the cluster fails them: `rate` does not see the event that a series begins
/// with, and the first failure is the one to see.
pub(crate) fn begin_counting() {
    for (service, method) in rights::of_users() {
        for code in { [Code::Ok].into_iter() }.chain(FAILURES) {
            count(service, method, code, 0);
        }
    }
}

fn count(service: &'static str, method: &'static str, code: Code, calls: u64) {
    let labels = [
        ("service", service),
        ("method", method),
        ("code", word(code)),
    ];
    counter!(names::REQUESTS_TOTAL, &labels).increment(calls);
}

/// A call that is not answered yet. It is counted when it is dropped.
#[derive(Debug)]
pub(super) struct Call {
    service: &'static str,
    method: &'static str,
    began: Instant,
    code: Code,
}

impl Call {
    /// One by its path (`/muster.v1.JobService/GetJob`), from now on.
    pub(super) fn begin(path: &str) -> Self {
        let (service, method) = rights::name(path).unwrap_or(UNKNOWN);
        Self {
            service,
            method,
            began: Instant::now(),
            // Whoever asked has gone, or has waited long enough, if no answer follows.
            code: Code::Cancelled,
        }
    }

    /// It is answered, or its stream begins: how that ends stands behind it, where nobody waits for it here.
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

/// A code as gRPC's libraries write it.
const fn word(code: Code) -> &'static str {
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
