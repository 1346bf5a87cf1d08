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
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Returns an error if the caller may not continue.
pub(crate) type AccessCheck = Arc<dyn Fn() -> Result<(), Status> + Send + Sync>;

/// Checks before each message. An error of `look` is the last item of the stream.
pub(crate) fn while_allowed<M: Send + 'static>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    look: AccessCheck,
) -> Messages<M> {
    let begun = Some((messages.boxed(), look));
    Box::pin(unfold(begun, |going| async move {
        let (mut messages, look) = going?;
        loop {
            let message = timeout(LOOK_EVERY, messages.next()).await;
            if let Err(refusal) = look() {
                return Some((Err(refusal), None));
            }
            if let Ok(message) = message {
                return message.map(|message| (message, Some((messages, look))));
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
    fn look() -> (Arc<AtomicBool>, AccessCheck) {
        let is_over = Arc::new(AtomicBool::new(false));
        let looked_at = Arc::clone(&is_over);
        let look: AccessCheck = Arc::new(move || {
            if looked_at.load(Ordering::Acquire) {
                return Err(Status::permission_denied("no longer permitted"));
            }
            Ok(())
        });
        (is_over, look)
    }

    #[tokio::test]
    async fn messages_after_the_right_was_revoked_are_not_sent() {
        let (is_over, look) = look();
        let mut messages = while_allowed(stream::iter([Ok(1), Ok(2), Ok(3)]), look);
        assert_eq!(messages.next().await.unwrap().unwrap(), 1);
        is_over.store(true, Ordering::Release);
        let error = messages.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(messages.next().await.is_none());
    }

    #[tokio::test]
    async fn a_stream_that_ends_by_itself_ends_without_an_error() {
        let (_is_over, look) = look();
        let messages = while_allowed(stream::iter([Ok(1), Ok(2)]), look);
        let seen: Vec<_> = messages.collect().await;
        let seen: Result<Vec<u8>, Status> = seen.into_iter().collect();
        assert_eq!(seen.unwrap(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_ends_soon_after_the_right_was_revoked() {
        let (is_over, look) = look();
        let began = Instant::now();
        let mut messages = while_allowed(stream::pending::<Result<u8, Status>>(), look);
        assert!(timeout(4 * LOOK_EVERY, messages.next()).await.is_err());
        is_over.store(true, Ordering::Release);
        let error = messages.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(began.elapsed() <= 6 * LOOK_EVERY);
    }
}
