//! How much each user may send.

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
/// When there may be room for more.
const RETRY: Duration = Duration::from_millis(100);

/// What a user may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes of one request.
    pub(super) of_request: u64,
    /// Bytes of all requests that are not answered yet.
    pub(super) outstanding: u64,
}

/// The bytes that each user has sent and that are not answered for yet.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    held: Mutex<BTreeMap<String, u64>>,
}

/// One request's part of them; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Parcel {
    sizes: Arc<Sizes>,
    user: String,
    room: Room,
    bytes: AtomicU64,
}

impl Parcel {
    /// Of a request that begins.
    pub(super) fn new(sizes: &Arc<Sizes>, user: &str, room: Room) -> Self {
        Self {
            sizes: Arc::clone(sizes),
            user: user.to_owned(),
            room,
            bytes: AtomicU64::new(0),
        }
    }

    /// Counts further bytes of the request, or says which limit they break.
    fn take(&self, bytes: u64) -> Result<(), Status> {
        let limit = self.room.of_request;
        if self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > limit {
            let what = format!("sends more than {limit} bytes in one request");
            let way = "send less at a time, or an admin raises it";
            return Err(self.refuse(&what, ("request_bytes_per_user_max", limit), (way, None)));
        }
        let limit = self.room.outstanding;
        let mut held = { self.sizes.held.lock() }.unwrap_or_else(PoisonError::into_inner);
        let before = held.get(&self.user).copied().unwrap_or(0);
        if before.saturating_add(bytes) > limit {
            drop(held);
            let what = format!("has requests of more than {limit} bytes that are not answered yet");
            let way = ("wait for answers before more is sent", Some(RETRY));
            return Err(self.refuse(&what, ("outstanding_bytes_per_user_max", limit), way));
        }
        held.insert(self.user.clone(), before + bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn refuse(
        &self,
        what: &str,
        (limit_name, limit): (&str, u64),
        (way, wait): (&str, Option<Duration>),
    ) -> Status {
        counter!(names::REFUSED_TOTAL, "reason" => TOO_MANY_BYTES).increment(1);
        let message = format!("user `{}` {what} (limits.{limit_name}): {way}", self.user);
        let metadata = [
            ("limit_name", limit_name.to_owned()),
            ("limit", limit.to_string()),
        ];
        let code = Code::ResourceExhausted;
        match wait {
            Some(wait) => status::retryable(code, TOO_MANY_BYTES, &message, &metadata, wait),
            None => status::error(code, TOO_MANY_BYTES, &message, &metadata),
        }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let mut held = { self.sizes.held.lock() }.unwrap_or_else(PoisonError::into_inner);
        let left = held
            .get(&self.user)
            .map_or(0, |held| held.saturating_sub(bytes));
        if left == 0 {
            held.remove(&self.user);
        } else {
            held.insert(self.user.clone(), left);
        }
    }
}

/// A request's body whose bytes are counted as they come.
pub(super) fn measured(body: Body, parcel: Arc<Parcel>) -> Body {
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            parcel.take(u64::try_from(data.len()).unwrap_or(u64::MAX))?;
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

    const ROOM: Room = Room {
        of_request: 10,
        outstanding: 15,
    };

    #[test]
    fn a_request_and_all_that_are_not_answered_have_limits() {
        let sizes = Arc::new(Sizes::default());
        let first = Parcel::new(&sizes, "ada", ROOM);
        first.take(4).unwrap();
        first.take(6).unwrap();
        let refused = first.take(1).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(
            refused
                .message()
                .contains("limits.request_bytes_per_user_max")
        );
        let second = Parcel::new(&sizes, "ada", ROOM);
        second.take(5).unwrap();
        let refused = second.take(1).unwrap_err();
        assert_eq!(ErrorReport::of(&refused).reason, TOO_MANY_BYTES);
        assert!(
            refused
                .message()
                .contains("limits.outstanding_bytes_per_user_max")
        );
        Parcel::new(&sizes, "bob", ROOM).take(10).unwrap();
        drop(first);
        second.take(1).unwrap();
        drop(second);
        assert!(
            sizes.held.lock().unwrap().is_empty(),
            "nothing stays behind"
        );
    }

    #[tokio::test]
    async fn a_body_is_counted_as_it_is_read() {
        let sizes = Arc::new(Sizes::default());
        let body = |bytes: usize| {
            let parcel = Arc::new(Parcel::new(&sizes, "ada", ROOM));
            measured(Body::new(Full::from(vec![0; bytes])), parcel)
        };
        assert_eq!(body(10).collect().await.unwrap().to_bytes().len(), 10);
        let refused = body(11).collect().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
    }
}
