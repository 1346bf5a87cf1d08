//! Streams that end when the replica stops.

use std::pin::Pin;

use futures::Stream;
use futures::StreamExt as _;
use futures::stream::unfold;
use muster_proto::status;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

/// Stream of messages to a client.
pub(crate) type Messages<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Passes messages until the replica stops. Then the client gets an error: a stream that merely ended would
/// look complete.
pub(crate) fn until_stopped<M: Send + 'static>(
    messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    stop: CancellationToken,
) -> Messages<M> {
    let initial = Some((messages.boxed(), stop));
    Box::pin(unfold(initial, |running| async move {
        let (mut messages, stop) = running?;
        tokio::select! {
            biased;
            () = stop.cancelled() => Some((Err(stopped()), None)),
            message = messages.next() => message.map(|message| (message, Some((messages, stop)))),
        }
    }))
}

fn stopped() -> Status {
    let message = "this replica is stopping: continue at another one";
    status::error(Code::Unavailable, "STOPPED", message, &[])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures::stream;
    use muster_proto::status::ErrorReport;

    use super::*;

    #[tokio::test]
    async fn a_stream_that_ends_by_itself_ends_without_an_error() {
        let messages = stream::iter([Ok(1), Ok(2)]);
        let seen: Vec<_> = until_stopped(messages, CancellationToken::new())
            .collect()
            .await;
        let seen: Result<Vec<u8>, Status> = seen.into_iter().collect();
        assert_eq!(seen.unwrap(), [1, 2]);
    }

    #[tokio::test]
    async fn a_stream_cut_off_by_the_stop_ends_with_an_error() {
        let stop = CancellationToken::new();
        let endless = stream::iter([Ok(1)]).chain(stream::pending());
        let mut messages = until_stopped(endless, stop.clone());
        assert_eq!(messages.next().await.unwrap().unwrap(), 1);
        stop.cancel();
        let error = messages.next().await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert_eq!(ErrorReport::of(&error).reason, "STOPPED");
        assert!(messages.next().await.is_none());
    }
}
