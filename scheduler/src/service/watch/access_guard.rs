//! Streams that end when the caller loses its rights: the user was removed, the token has expired, or the
//! role has changed.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use futures::{Stream, StreamExt as _};
use tokio::time::timeout;
use tonic::Status;

use crate::service::watch::until_stopped::Messages;

/// Interval of checks while a stream is idle.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Returns an error if the caller may not continue.
pub(crate) type AccessCheck = Arc<dyn Fn() -> Result<(), Status> + Send + Sync>;

/// Checks before each message. An error of `check` is the last item of the stream.
pub(crate) fn while_allowed<M: Send + 'static>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    check: AccessCheck,
) -> Messages<M> {
    let initial = Some((messages.boxed(), check));
    Box::pin(unfold(initial, |running| async move {
        let (mut messages, check) = running?;
        loop {
            let message = timeout(CHECK_INTERVAL, messages.next()).await;
            if let Err(refusal) = check() {
                return Some((Err(refusal), None));
            }
            if let Ok(message) = message {
                return message.map(|message| (message, Some((messages, check))));
            }
        }
    }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::stream;
    use tokio::time::Instant;
    use tonic::Code;

    use super::*;

    /// A check that fails once requested.
    fn check() -> (Arc<AtomicBool>, AccessCheck) {
        let is_revoked = Arc::new(AtomicBool::new(false));
        let revoked = Arc::clone(&is_revoked);
        let check: AccessCheck = Arc::new(move || {
            if revoked.load(Ordering::Acquire) {
                return Err(Status::permission_denied("no longer permitted"));
            }
            Ok(())
        });
        (is_revoked, check)
    }

    #[tokio::test]
    async fn messages_after_the_right_was_revoked_are_not_sent() {
        let (is_revoked, check) = check();
        let mut messages = while_allowed(stream::iter([Ok(1), Ok(2), Ok(3)]), check);
        assert_eq!(messages.next().await.unwrap().unwrap(), 1);
        is_revoked.store(true, Ordering::Release);
        let error = messages.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(messages.next().await.is_none());
    }

    #[tokio::test]
    async fn a_stream_that_ends_by_itself_ends_without_an_error() {
        let (_is_revoked, check) = check();
        let messages = while_allowed(stream::iter([Ok(1), Ok(2)]), check);
        let seen: Vec<_> = messages.collect().await;
        let seen: Result<Vec<u8>, Status> = seen.into_iter().collect();
        assert_eq!(seen.unwrap(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_ends_soon_after_the_right_was_revoked() {
        let (is_revoked, check) = check();
        let began = Instant::now();
        let mut messages = while_allowed(stream::pending::<Result<u8, Status>>(), check);
        assert!(timeout(4 * CHECK_INTERVAL, messages.next()).await.is_err());
        is_revoked.store(true, Ordering::Release);
        let error = messages.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(began.elapsed() <= 6 * CHECK_INTERVAL);
    }
}
