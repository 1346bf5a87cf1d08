//! Messages of exec sessions between agent and supervisor.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};

use crate::limits::EXEC_REQUEST_BYTES_MAX;

/// Number of files of a request: standard input, output and error.
pub(super) const FILES: usize = 3;

/// Request of an agent, accompanied by the three files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// `TERM`, if the files are a terminal.
    pub terminal: Option<String>,
}

/// State of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecAnswer {
    /// It runs.
    Started,
    /// It ended.
    Ended {
        /// Exit code, if it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// It was not started.
    Refused {
        /// Reason, as a message for the user.
        detail: String,
    },
}

/// Receives a request with its files; `None` if it is malformed or the agent hung up.
pub(super) fn receive(agent: &OwnedFd) -> Result<Option<(ExecRequest, [OwnedFd; FILES])>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0u8; EXEC_REQUEST_BYTES_MAX];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(agent, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files: Vec<OwnedFd> = Vec::with_capacity(FILES);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    let count = received.bytes;
    let request = serde_json::from_slice(&bytes[..count]).ok();
    Ok(request.zip(files.try_into().ok()))
}
