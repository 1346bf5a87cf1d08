//! Supervisors that are forked from a server, as a worker's are.

use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_model::desired::TaskAssignment;
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::supervise::server;
use muster_supervisor::{AgentRequest, SupervisorMessage, TaskDirectory, TaskSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use crate::support::{PROGRAM, TIMEOUT_MS, spec_in};

/// The agent's end of the connection to a fork server.
pub(crate) struct Server {
    pub(crate) home: tempfile::TempDir,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) process: Child,
}

/// A task under a forked supervisor.
pub(crate) struct Forked {
    pub(crate) directory: TaskDirectory,
    pub(crate) supervisor: i32,
    pub(crate) agent: BufReader<UnixStream>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let process = Command::new(PROGRAM)
            .args(["supervise", "--serve"])
            .arg(home.path())
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        Self {
            home,
            socket: Some(ours),
            process,
        }
    }

    /// The directory of a task that no supervisor has claimed, in these cgroups.
    pub(crate) fn prepared(
        &self,
        name: &str,
        assignment: TaskAssignment,
        lease_ms: u64,
        cgroups: &[PathBuf],
    ) -> TaskDirectory {
        let directory = TaskDirectory::new(self.home.path().join("tasks").join(name));
        let mut spec = TaskSpec {
            checkpoint_directory: self.home.path().join("checkpoints").join(name),
            ..spec_in(self.home.path(), assignment, lease_ms)
        };
        spec.confinement.cgroups = cgroups.to_vec();
        directory.create(&spec).unwrap();
        directory
    }

    pub(crate) fn fork(&self, name: &str, assignment: TaskAssignment, lease_ms: u64) -> Forked {
        self.fork_in(self.prepared(name, assignment, lease_ms, &[]))
    }

    /// Forks a supervisor for a directory.
    pub(crate) fn fork_in(&self, directory: TaskDirectory) -> Forked {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(TIMEOUT_MS)))
            .unwrap();
        let socket = self.socket.as_ref().unwrap();
        let supervisor = server::ask(socket.as_fd(), directory.path(), theirs.as_fd()).unwrap();
        Forked {
            directory,
            supervisor,
            agent: BufReader::new(ours),
        }
    }

    /// The agent dies.
    pub(crate) fn hang_up(&mut self) {
        self.socket = None;
    }

    /// The agent is killed before it has read an answer.
    pub(crate) fn hang_up_before_the_answer(&mut self) {
        let socket = self.socket.take().unwrap();
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let nowhere = [IoSlice::new(b"/nowhere/9-0-11")];
        sendmsg(&socket, &nowhere, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        let mut answer = [PollFd::new(&socket, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: i64::try_from(TIMEOUT_MS / 1_000).unwrap(),
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut answer, Some(&limit)).unwrap(), 1, "no answer");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        crate::support::kill_host(self.home.path());
        self.hang_up();
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Forked {
    pub(crate) fn receive(&mut self) -> SupervisorMessage {
        let mut line = String::new();
        self.agent.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn started(&mut self) -> ProcessIdentity {
        assert!(matches!(self.receive(), SupervisorMessage::Started { .. }));
        self.directory.process().unwrap().unwrap()
    }

    pub(crate) fn send(&mut self, request: &AgentRequest) {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        self.agent.get_mut().write_all(&line).unwrap();
    }
}
