//! A supervisor's sockets: the agent's and the task's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::checkpoints::ConnectionId;
use crate::control::{self, TaskRequest};
use crate::directory::TaskDirectory;
use crate::limits::CONTROL_CONNECTIONS_MAX;
use crate::lines::LineStream;
use crate::protocol::{AgentRequest, ControlAnswer, ControlNotice, PreemptFlag, SupervisorMessage};

/// Something that came in.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A new agent: tell it all.
    AgentConnected,
    /// The agent wants something.
    Agent(AgentRequest),
    /// The task says or wants something, and waits for its answer.
    Task(ConnectionId, TaskRequest),
}

/// The agent that is connected, the tasks' connections, and where both come in.
#[derive(Debug)]
pub(crate) struct Connections {
    epoch: u64,
    agents: UnixListener,
    agent: Option<LineStream>,
    controls: UnixListener,
    control: BTreeMap<ConnectionId, LineStream>,
    next_control: ConnectionId,
    /// Connections that want to hear when the task is asked to stop.
    watching: BTreeSet<ConnectionId>,
}

impl Connections {
    /// Opens the sockets; the agent that started us is connected already, through our standard input.
    pub(crate) fn open(directory: &TaskDirectory, epoch: u64) -> io::Result<Self> {
        let agents = UnixListener::bind(directory.agent_socket())?;
        let controls = UnixListener::bind(directory.control_socket())?;
        agents.set_nonblocking(true)?;
        controls.set_nonblocking(true)?;
        Ok(Self {
            epoch,
            agents,
            agent: inherited_agent(),
            controls,
            control: BTreeMap::new(),
            next_control: 0,
            watching: BTreeSet::new(),
        })
    }

    /// Waits until something comes in, one of `others` is readable, or the time is over.
    pub(crate) fn wait(&self, others: &[&dyn AsFd], timeout_ms: u64) -> io::Result<()> {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut polled = vec![
            readable(self.agents.as_fd()),
            readable(self.controls.as_fd()),
        ];
        polled.extend(others.iter().map(|other| readable(other.as_fd())));
        for stream in self.agent.iter().chain(self.control.values()) {
            let mut flags = PollFlags::IN;
            if stream.has_output() {
                flags |= PollFlags::OUT;
            }
            polled.push(PollFd::new(stream, flags));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout_ms / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(timeout_ms % 1_000 * 1_000_000).unwrap_or(0),
        };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes all that came in, and writes what can be written.
    pub(crate) fn receive(&mut self) -> Vec<Incoming> {
        let mut incoming = Vec::new();
        self.accept(&mut incoming);
        // In this order: what the task said before an order came is not taken for an answer to it.
        self.receive_from_task(&mut incoming);
        self.receive_from_agent(&mut incoming);
        incoming
    }

    /// Tells the agent, if one is connected and reads.
    pub(crate) fn tell_agent(&mut self, message: &SupervisorMessage) {
        send(&mut self.agent, message);
    }

    /// Whether an agent is connected.
    pub(crate) const fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Whether something for the agent has not been taken by its socket yet.
    pub(crate) fn agent_has_output(&mut self) -> bool {
        if self.agent.as_mut().is_some_and(|agent| !agent.flush()) {
            self.agent = None;
        }
        self.agent.as_ref().is_some_and(LineStream::has_output)
    }

    /// Answers the task.
    pub(crate) fn answer(&mut self, connection: ConnectionId, answer: &ControlAnswer) {
        if let Some(stream) = self.control.get_mut(&connection)
            && !stream.send(answer)
        {
            self.control.remove(&connection);
        }
    }

    /// Answers a connection that wants to hear when the task is asked to stop, which it hears at once if it was.
    pub(crate) fn watch(&mut self, connection: ConnectionId, stop: Option<&PreemptFlag>) {
        self.answer(connection, &ControlAnswer::done());
        self.watching.insert(connection);
        if let Some(stop) = stop {
            self.notify(connection, stop);
        }
    }

    /// Whether anybody wants to hear when the task is asked to stop.
    pub(crate) fn has_watchers(&self) -> bool {
        let is_there = |connection| self.control.contains_key(connection);
        self.watching.iter().any(is_there)
    }

    /// Tells those who want to hear it that the task is asked to stop.
    pub(crate) fn tell_watchers(&mut self, stop: &PreemptFlag) {
        for connection in self.watching.clone() {
            self.notify(connection, stop);
        }
    }

    fn notify(&mut self, connection: ConnectionId, stop: &PreemptFlag) {
        let notice = ControlNotice { stop: stop.clone() };
        if let Some(stream) = self.control.get_mut(&connection)
            && !stream.send(&notice)
        {
            self.control.remove(&connection);
        }
    }

    fn accept(&mut self, incoming: &mut Vec<Incoming>) {
        // The newest agent is the one that counts: an older one is dead or about to notice.
        while let Ok((stream, _)) = self.agents.accept() {
            if let Ok(stream) = LineStream::new(stream) {
                self.agent = Some(stream);
                incoming.push(Incoming::AgentConnected);
            }
        }
        while let Ok((stream, _)) = self.controls.accept() {
            // One too many is hung up on at once, which the task can see.
            if self.control.len() < CONTROL_CONNECTIONS_MAX
                && let Ok(stream) = LineStream::new(stream)
            {
                self.control.insert(self.next_control, stream);
                self.next_control += 1;
            }
        }
    }

    fn receive_from_agent(&mut self, incoming: &mut Vec<Incoming>) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        let alive = agent.fill() && agent.flush();
        while let Some(line) = agent.next_line() {
            // A request of a newer agent that we do not know is not for us.
            if let Ok(request) = serde_json::from_slice(&line) {
                incoming.push(Incoming::Agent(request));
            }
        }
        if !alive {
            self.agent = None;
        }
    }

    fn receive_from_task(&mut self, incoming: &mut Vec<Incoming>) {
        let (epoch, watching) = (self.epoch, &mut self.watching);
        self.control.retain(|connection, stream| {
            let mut alive = stream.fill() && stream.flush();
            while let Some(line) = stream.next_line() {
                match control::parse(&line, epoch) {
                    Ok(request) => incoming.push(Incoming::Task(*connection, request)),
                    Err(error) => alive &= stream.send(&ControlAnswer::refused(error)),
                }
            }
            if !alive {
                watching.remove(connection);
            }
            alive
        });
    }
}

/// The agent's end of the socket pair that it gave us as standard input; none if a person started us.
fn inherited_agent() -> Option<LineStream> {
    let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().ok()?;
    rustix::net::getsockname(&socket).ok()?;
    LineStream::new(UnixStream::from(socket)).ok()
}

fn send(stream: &mut Option<LineStream>, message: &impl Serialize) {
    if let Some(open) = stream
        && !open.send(message)
    {
        *stream = None;
    }
}
