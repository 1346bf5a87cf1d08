//! Limits on the bytes that each caller may send.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use metrics::counter;
use muster_proto::status;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::metrics::names;

/// Reason of a refusal for requests that are too large, alone or together.
const TOO_MANY_BYTES: &str = "TOO_MANY_BYTES";
/// Prefix of a limit's name in the settings.
const SETTING: &str = "limits.";
/// Retry delay when the limit is reached.
const RETRY: Duration = Duration::from_millis(100);

/// A limit in bytes and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bytes: u64,
    pub(super) name: &'static str,
}

/// Limits of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteLimits {
    /// Bytes of one request.
    pub(super) of_request: Limit,
    /// Bytes of all unanswered requests.
    pub(super) outstanding: Limit,
}

/// Bytes of unanswered requests, by caller.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    held: Mutex<BTreeMap<String, u64>>,
}

/// Share of one request; released when it is dropped.
#[derive(Debug)]
pub(super) struct ByteShare {
    sizes: Arc<Sizes>,
    sender: String,
    room: ByteLimits,
    bytes: AtomicU64,
}

impl ByteShare {
    /// Starts the share of a request. `sender` is the caller's name in messages.
    pub(super) fn new(sizes: &Arc<Sizes>, sender: &str, room: ByteLimits) -> Self {
        Self {
            sizes: Arc::clone(sizes),
            sender: sender.to_owned(),
            room,
            bytes: AtomicU64::new(0),
        }
    }

    /// Counts further bytes of the request, or returns the limit that they exceed.
    fn take(&self, bytes: u64) -> Result<(), Status> {
        let limit = self.room.of_request;
        if self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > limit.bytes {
            let what = format!("sent more than {} bytes in one request", limit.bytes);
            let way = if limit.name.starts_with(SETTING) {
                "send less at a time, or ask an admin to raise it"
            } else {
                "send less at a time"
            };
            return Err(self.refuse(&what, limit, way, None));
        }
        let limit = self.room.outstanding;
        let mut held = self
            .sizes
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = held.get(&self.sender).copied().unwrap_or(0);
        if before.saturating_add(bytes) > limit.bytes {
            drop(held);
            let what = format!("has more than {} bytes of unanswered requests", limit.bytes);
            let way = "wait for answers before sending more";
            return Err(self.refuse(&what, limit, way, Some(RETRY)));
        }
        held.insert(self.sender.clone(), before + bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn refuse(&self, what: &str, limit: Limit, way: &str, wait: Option<Duration>) -> Status {
        counter!(names::REFUSED_TOTAL, "reason" => TOO_MANY_BYTES).increment(1);
        let message = format!("{} {what} ({}): {way}", self.sender, limit.name);
        let metadata = [
            (
                "limit_name",
                limit.name.trim_start_matches(SETTING).to_owned(),
            ),
            ("limit", limit.bytes.to_string()),
        ];
        let code = Code::ResourceExhausted;
        match wait {
            Some(wait) => status::retryable(code, TOO_MANY_BYTES, &message, &metadata, wait),
            None => status::error(code, TOO_MANY_BYTES, &message, &metadata),
        }
    }
}

impl Drop for ByteShare {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let mut held = self
            .sizes
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let left = held
            .get(&self.sender)
            .map_or(0, |held| held.saturating_sub(bytes));
        if left == 0 {
            held.remove(&self.sender);
        } else {
            held.insert(self.sender.clone(), left);
        }
    }
}

/// Body of a request whose bytes are counted as they arrive.
pub(super) fn measured(body: Body, share: Arc<ByteShare>) -> Body {
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            share.take(u64::try_from(data.len()).unwrap_or(u64::MAX))?;
        }
        Ok::<_, Status>(frame)
    });
    Body::new(StreamBody::new(frames))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use muster_proto::status::ErrorReport;

    use super::*;

    const ROOM: ByteLimits = ByteLimits {
        of_request: Limit {
            bytes: 10,
            name: "limits.a_request",
        },
        outstanding: Limit {
            bytes: 15,
            name: "all_of_them",
        },
    };

    #[test]
    fn single_requests_and_all_unanswered_ones_are_limited_in_bytes() {
        let sizes = Arc::new(Sizes::default());
        let first = ByteShare::new(&sizes, "ada", ROOM);
        first.take(4).unwrap();
        first.take(6).unwrap();
        let refused = first.take(1).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let expected = "ada sent more than 10 bytes in one request (limits.a_request)";
        assert!(refused.message().starts_with(expected), "{refused}");
        assert_eq!(
            ErrorReport::of(&refused).metadata["limit_name"],
            "a_request"
        );
        let second = ByteShare::new(&sizes, "ada", ROOM);
        second.take(5).unwrap();
        let refused = second.take(1).unwrap_err();
        assert_eq!(ErrorReport::of(&refused).reason, TOO_MANY_BYTES);
        assert_eq!(
            ErrorReport::of(&refused).metadata["limit_name"],
            "all_of_them"
        );
        ByteShare::new(&sizes, "bob", ROOM).take(10).unwrap();
        drop(first);
        second.take(1).unwrap();
        drop(second);
        assert!(sizes.held.lock().unwrap().is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn a_body_is_counted_as_it_is_read() {
        let sizes = Arc::new(Sizes::default());
        let body = |bytes: usize| {
            let share = Arc::new(ByteShare::new(&sizes, "ada", ROOM));
            measured(Body::new(Full::from(vec![0; bytes])), share)
        };
        assert_eq!(body(10).collect().await.unwrap().to_bytes().len(), 10);
        let refused = body(11).collect().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }
}
