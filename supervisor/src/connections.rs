//! A supervisor's sockets: the agent's and the task's.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::account::acting_as_owner_of;
use crate::checkpoints::ConnectionId;
use crate::control::{self, TaskRequest};
use crate::directory::TaskDirectory;
use crate::limits::CONTROL_CONNECTIONS_MAX;
use crate::lines::LineStream;
use crate::protocol::{
    AgentRequest, ControlAnswer, ControlNotice, GangNotice, PreemptFlag, SupervisorMessage,
};

/// What is polled before all others: who wants to connect.
const LISTENERS: usize = 2;

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
    /// Whether that is still the one that gave us the task.
    is_first_agent: bool,
    controls: UnixListener,
    control: BTreeMap<ConnectionId, LineStream>,
    next_control: ConnectionId,
    /// Whether the last wait found nothing here.
    is_quiet: Cell<bool>,
    /// Connections that want to hear when the task is asked to stop.
    watching: BTreeSet<ConnectionId>,
    /// Those of them that want to hear where its gang meets, too.
    watching_gang: BTreeSet<ConnectionId>,
}

impl Connections {
    /// Opens the sockets; the agent that gave us the task is connected already.
    pub(crate) fn open(
        directory: &TaskDirectory,
        epoch: u64,
        agent: Option<LineStream>,
    ) -> io::Result<Self> {
        let agents = UnixListener::bind(directory.agent_socket())?;
        // It is the task's, as the folder that it is in.
        let controls = acting_as_owner_of(&directory.control(), || {
            UnixListener::bind(directory.control_socket())
        })?;
        agents.set_nonblocking(true)?;
        controls.set_nonblocking(true)?;
        Ok(Self {
            epoch,
            agents,
            is_first_agent: agent.is_some(),
            agent,
            controls,
            control: BTreeMap::new(),
            next_control: 0,
            is_quiet: Cell::new(false),
            watching: BTreeSet::new(),
            watching_gang: BTreeSet::new(),
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
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ours = polled[..LISTENERS]
            .iter()
            .chain(&polled[LISTENERS + others.len()..]);
        let is_quiet = ours.all(|one| one.revents().is_empty());
        self.is_quiet.set(is_quiet);
        Ok(())
    }

    /// Takes all that came in since the last wait, and writes what can be written.
    pub(crate) fn receive(&mut self) -> Vec<Incoming> {
        match self.is_quiet.take() {
            true => Vec::new(),
            false => self.receive_now(),
        }
    }

    /// The same without having waited.
    pub(crate) fn receive_now(&mut self) -> Vec<Incoming> {
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

    /// Tells the agent all of these by one write.
    pub(crate) fn tell_agent_all(&mut self, messages: &[SupervisorMessage]) {
        if let Some(open) = &mut self.agent
            && !open.send_all(messages)
        {
            self.agent = None;
        }
    }

    /// Whether the agent that gave us the task is connected.
    pub(crate) const fn has_first_agent(&self) -> bool {
        self.is_first_agent && self.agent.is_some()
    }

    /// Closes all but the connection to the agent, if there is one.
    pub(crate) fn close(self) -> Option<LineStream> {
        self.agent
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
            self.notify(connection, &ControlNotice::Stop(stop.clone()));
        }
    }

    /// A connection that watches wants to hear where the task's gang meets, too: at once if that is not where it did.
    pub(crate) fn watch_gang(&mut self, connection: ConnectionId, moved: Option<GangNotice>) {
        self.watching_gang.insert(connection);
        if let Some(notice) = moved {
            self.notify(connection, &ControlNotice::Gang(notice));
        }
    }

    /// Tells those who want to hear it where the task's gang meets.
    pub(crate) fn tell_gang(&mut self, notice: GangNotice) {
        let notice = ControlNotice::Gang(notice);
        for connection in self.watching_gang.clone() {
            self.notify(connection, &notice);
        }
    }

    /// Whether anybody wants to hear when the task is asked to stop.
    pub(crate) fn has_watchers(&self) -> bool {
        let is_there = |connection| self.control.contains_key(connection);
        self.watching.iter().any(is_there)
    }

    /// Tells those who want to hear it that the task is asked to stop.
    pub(crate) fn tell_watchers(&mut self, stop: &PreemptFlag) {
        let notice = ControlNotice::Stop(stop.clone());
        for connection in self.watching.clone() {
            self.notify(connection, &notice);
        }
    }

    fn notify(&mut self, connection: ConnectionId, notice: &ControlNotice) {
        if let Some(stream) = self.control.get_mut(&connection)
            && !stream.send(notice)
        {
            self.control.remove(&connection);
        }
    }

    fn accept(&mut self, incoming: &mut Vec<Incoming>) {
        // The newest agent is the one that counts: an older one is dead or about to notice.
        while let Ok((stream, _)) = self.agents.accept() {
            if let Ok(stream) = LineStream::of_agent(stream) {
                self.agent = Some(stream);
                self.is_first_agent = false;
                incoming.push(Incoming::AgentConnected);
            }
        }
        while let Ok((stream, _)) = self.controls.accept() {
            // One too many is hung up on at once, which the task can see.
            if self.control.len() < CONTROL_CONNECTIONS_MAX
                && let Ok(stream) = LineStream::of_task(stream)
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
        let watching_gang = &mut self.watching_gang;
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
                watching_gang.remove(connection);
            }
            alive
        });
    }
}

fn send(stream: &mut Option<LineStream>, message: &impl Serialize) {
    if let Some(open) = stream
        && !open.send(message)
    {
        *stream = None;
    }
}
