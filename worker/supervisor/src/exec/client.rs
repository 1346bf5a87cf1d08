//! Agent side of exec sessions.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

use crate::exec::request::{ExecAnswer, ExecRequest, FILES};
use crate::limits::{EXEC_ANSWER_BYTES_MAX, EXEC_REQUEST_BYTES_MAX};
use crate::task::directory::TaskDirectory;

/// Requests a command from a task's supervisor, with these files as standard input, output and error. The
/// answers arrive on the returned non-blocking socket; closing it ends the command.
///
/// # Errors
/// Errors of the kernel: `NotFound` or `ConnectionRefused` if the supervisor has not opened its socket (yet),
/// `WouldBlock` if its accept queue is full, and `InvalidInput` for a request that is too long.
pub fn ask(
    directory: &TaskDirectory,
    request: &ExecRequest,
    files: [BorrowedFd<'_>; FILES],
) -> io::Result<OwnedFd> {
    let bytes = serde_json::to_vec(request)?;
    let count = bytes.len();
    if count > EXEC_REQUEST_BYTES_MAX {
        let message = format!(
            "the command has {count} bytes in JSON, more than the limit of {EXEC_REQUEST_BYTES_MAX} \
             (EXEC_REQUEST_BYTES_MAX)"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // A message is sent whole or not at all, and the default buffer may be smaller than the longest one.
    set_socket_send_buffer_size(&socket, EXEC_REQUEST_BYTES_MAX)?;
    connect(&socket, &SocketAddrUnix::new(directory.exec_socket())?)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(
        &socket,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(socket)
}

/// The next answer, if the socket is ready; `None` if the supervisor has hung up because its task has ended.
///
/// # Errors
/// Errors of the kernel, and `InvalidData` for a malformed answer.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<ExecAnswer>> {
    let mut bytes = vec![0u8; EXEC_ANSWER_BYTES_MAX];
    let (count, _) = recv(socket, bytes.as_mut_slice(), RecvFlags::empty())?;
    if count == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&bytes[..count])?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use rustix::net::{bind, listen};

    use super::*;

    #[test]
    fn a_request_to_a_full_accept_queue_fails_without_blocking() {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path());
        let flags = SocketFlags::CLOEXEC;
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let address = SocketAddrUnix::new(directory.exec_socket()).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, 1).unwrap();
        let (sender, result) = sync_channel(1);
        std::thread::spawn(move || {
            let null = File::open("/dev/null").unwrap();
            let request = ExecRequest {
                command: vec!["true".to_owned()],
                terminal: None,
            };
            let mut waiting = Vec::new();
            let error = loop {
                match ask(&directory, &request, [null.as_fd(); FILES]) {
                    Ok(socket) => waiting.push(socket),
                    Err(error) => break error,
                }
            };
            sender.send((waiting.len(), error.kind())).unwrap();
        });
        let (waiting, error) = result.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(waiting > 0);
        assert_eq!(error, io::ErrorKind::WouldBlock);
    }
}
