//! The agent's side of a command beside a task.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

use super::request::{ExecAnswer, ExecRequest, FILES};
use crate::directory::TaskDirectory;
use crate::limits::LINE_BYTES_MAX;

/// Asks a task's supervisor for a command whose input, output and errors are these files. The answers come on the socket
/// that is given back; closing it ends the command.
///
/// # Errors
/// What the kernel says: `NotFound` or `ConnectionRefused` if the supervisor has not opened its socket (yet), and
/// `InvalidInput` for a request that is too long.
pub fn ask(
    directory: &TaskDirectory,
    request: &ExecRequest,
    files: [BorrowedFd<'_>; FILES],
) -> io::Result<OwnedFd> {
    let bytes = serde_json::to_vec(request)?;
    if bytes.len() > LINE_BYTES_MAX {
        let told = format!("a command may have {LINE_BYTES_MAX} bytes (LINE_BYTES_MAX)");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
    }
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
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

/// The next answer, if the socket is ready; none if the supervisor has hung up: its task has ended.
///
/// # Errors
/// What the kernel says, and `InvalidData` for what is no answer.
pub fn hear(socket: BorrowedFd<'_>) -> io::Result<Option<ExecAnswer>> {
    let mut bytes = vec![0u8; LINE_BYTES_MAX];
    let (count, _) = recv(socket, bytes.as_mut_slice(), RecvFlags::empty())?;
    if count == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&bytes[..count])?))
}
