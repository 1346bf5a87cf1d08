//! Messages of a user to an exec session: the command, then its input.

use std::time::Duration;

use futures::{StreamExt as _, future};
use muster_proto::v1::exec_request::Kind as FromUser;
use muster_proto::{status, v1};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::service::watch::until_stopped::Messages;

/// Longest wait for a user's first message.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// Bytes of a user's first message. It is forwarded in the session of the worker, beside everything that
/// keeps the host's tasks alive: a message too large for that session would break it.
const EXEC_OPEN_BYTES_MAX: usize = 256 << 10;
/// Bytes of input in one message, as documented in the API.
const EXEC_INPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a program's name shown in a log.
const PROGRAM_BYTES_SHOWN: usize = 256;

/// Messages of a user after the first one.
pub(crate) type Inputs = Messages<v1::ExecRequest>;

/// The first message of a user.
pub(crate) async fn opening(
    messages: &mut Streaming<v1::ExecRequest>,
) -> Result<v1::ExecOpen, Status> {
    let first = timeout(OPEN_MAX, messages.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no command received before the timeout"))??;
    opened(first)
}

fn opened(first: Option<v1::ExecRequest>) -> Result<v1::ExecOpen, Status> {
    let open = match first.and_then(|message| message.kind) {
        Some(FromUser::Open(open)) if !open.command.is_empty() => open,
        _ => return Err(invalid("the first message must be `open` with a command")),
    };
    check_bytes(
        "the command",
        open.encoded_len(),
        "EXEC_OPEN_BYTES_MAX",
        EXEC_OPEN_BYTES_MAX,
    )?;
    Ok(open)
}

/// Forwards the user's messages to the worker until the user is gone.
///
/// # Errors
/// An invalid message.
pub(crate) async fn forward_to_worker(
    mut messages: Inputs,
    orders: mpsc::Sender<Result<v1::ExecRequest, Status>>,
) -> Result<(), Status> {
    while let Some(Ok(message)) = messages.next().await {
        check_later(&message)?;
        if orders.send(Ok(message)).await.is_err() {
            // The worker reports how the command ended.
            future::pending::<()>().await;
        }
    }
    Ok(())
}

fn check_later(message: &v1::ExecRequest) -> Result<(), Status> {
    match &message.kind {
        Some(FromUser::Open(_)) => Err(invalid("the command was already sent")),
        Some(FromUser::Input(bytes)) => check_bytes(
            "a message of input",
            bytes.len(),
            "EXEC_INPUT_BYTES_MAX",
            EXEC_INPUT_BYTES_MAX,
        ),
        Some(FromUser::InputEnd(_) | FromUser::Resized(_)) | None => Ok(()),
    }
}

fn check_bytes(what: &str, bytes: usize, limit_name: &str, limit: usize) -> Result<(), Status> {
    if bytes <= limit {
        return Ok(());
    }
    let message = format!("{what} has {bytes} bytes, over the limit of {limit} ({limit_name})");
    let metadata = [
        ("limit_name", limit_name.to_owned()),
        ("limit", limit.to_string()),
    ];
    Err(status::error(
        Code::InvalidArgument,
        "TOO_LARGE",
        &message,
        &metadata,
    ))
}

fn invalid(message: &str) -> Status {
    status::error(Code::InvalidArgument, "INVALID_REQUEST", message, &[])
}

/// The program to run, as shown in a log.
pub(crate) fn program(open: &v1::ExecOpen) -> Option<&str> {
    let program = open.command.first()?;
    Some(&program[..program.floor_char_boundary(PROGRAM_BYTES_SHOWN)])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures::stream::iter;
    use muster_proto::status::ErrorReport;

    use super::*;

    fn message(kind: FromUser) -> v1::ExecRequest {
        v1::ExecRequest { kind: Some(kind) }
    }

    fn open(command: &[&str]) -> v1::ExecOpen {
        v1::ExecOpen {
            job_id: 7,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..v1::ExecOpen::default()
        }
    }

    fn input(bytes: usize) -> v1::ExecRequest {
        message(FromUser::Input(vec![0u8; bytes].into()))
    }

    #[test]
    fn a_command_is_named_first_and_is_not_too_long() {
        let small = open(&["cat", "file"]);
        let first = opened(Some(message(FromUser::Open(small.clone()))));
        assert_eq!(first.unwrap(), small);
        let argument = "x".repeat(EXEC_OPEN_BYTES_MAX);
        let long = message(FromUser::Open(open(&["echo", &argument])));
        let refused = opened(Some(long)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let report = ErrorReport::of(&refused);
        assert_eq!(report.reason, "TOO_LARGE");
        assert_eq!(report.metadata["limit_name"], "EXEC_OPEN_BYTES_MAX");
        for none in [
            None,
            Some(input(1)),
            Some(message(FromUser::Open(open(&[])))),
        ] {
            let refused = opened(none).unwrap_err();
            assert_eq!(ErrorReport::of(&refused).reason, "INVALID_REQUEST");
        }
    }

    #[tokio::test]
    async fn input_over_the_limit_ends_the_command_after_the_input_before_it() {
        for (last, reason) in [
            (input(EXEC_INPUT_BYTES_MAX + 1), "TOO_LARGE"),
            (message(FromUser::Open(open(&["cat"]))), "INVALID_REQUEST"),
        ] {
            let messages = [Ok(input(EXEC_INPUT_BYTES_MAX)), Ok(last)];
            let (orders, mut passed) = mpsc::channel(2);
            let refused = forward_to_worker(iter(messages).boxed(), orders)
                .await
                .unwrap_err();
            assert_eq!(ErrorReport::of(&refused).reason, reason);
            let first = passed.recv().await.unwrap().unwrap();
            assert_eq!(first, input(EXEC_INPUT_BYTES_MAX));
            assert!(passed.recv().await.is_none());
        }
        let (orders, _passed) = mpsc::channel(1);
        let gone = iter([Err(Status::cancelled("gone"))]).boxed();
        assert!(forward_to_worker(gone, orders).await.is_ok());
    }

    #[test]
    fn logs_show_only_the_beginning_of_a_long_name() {
        assert_eq!(program(&open(&["cat", "file"])), Some("cat"));
        let long = format!("x{}", "é".repeat(PROGRAM_BYTES_SHOWN));
        let command = open(&[&long]);
        let shown = program(&command).unwrap();
        assert_eq!(shown.len(), PROGRAM_BYTES_SHOWN - 1);
        assert!(long.starts_with(shown));
    }
}
