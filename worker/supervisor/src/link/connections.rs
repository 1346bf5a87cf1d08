//! A supervisor's sockets: the agent's and the task's.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::checkpoint::checkpoints::ConnectionId;
use crate::isolation::account::acting_as_owner_of;
use crate::limits::{CONNECTS_AT_ONCE_MAX, CONTROL_CONNECTIONS_MAX, REQUESTS_AT_ONCE_MAX};
use crate::link::control::{self, TaskRequest};
use crate::link::lines::LineStream;
use crate::link::protocol::{
    AgentRequest, ControlAnswer, ControlNotice, GangNotice, PreemptFlag, SupervisorMessage,
};
use crate::task::directory::TaskDirectory;

/// Number of listening sockets, which are polled first.
const LISTENERS: usize = 2;

/// An event received from a socket.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A new agent connected: send it the complete state.
    AgentConnected,
    /// A request of the agent.
    Agent(AgentRequest),
    /// A message or request of the task, which waits for an answer.
    Task(ConnectionId, TaskRequest),
}

/// The connected agent, the task's connections, and the listeners of both.
#[derive(Debug)]
pub(crate) struct Connections {
    epoch: u64,
    agents: UnixListener,
    agent: Option<LineStream>,
    /// Whether the connected agent is the one that assigned the task.
    is_first_agent: bool,
    controls: UnixListener,
    control: BTreeMap<ConnectionId, LineStream>,
    next_control: ConnectionId,
    /// Whether complete lines are buffered but not yet processed: they must not wait for further bytes.
    has_unprocessed: bool,
    /// Whether the last wait found no events here.
    is_quiet: Cell<bool>,
    /// Connections that subscribe to stop requests.
    watching: BTreeSet<ConnectionId>,
    /// Those that also subscribe to changes of the gang's rendezvous address.
    watching_gang: BTreeSet<ConnectionId>,
}

impl Connections {
    /// Opens the sockets; the agent that assigned the task is connected already.
    pub(crate) fn open(
        directory: &TaskDirectory,
        epoch: u64,
        mut agent: Option<LineStream>,
    ) -> io::Result<Self> {
        let agents = UnixListener::bind(directory.agent_socket())?;
        // It is owned by the task's account, as is its folder.
        let controls = acting_as_owner_of(&directory.control(), || {
            UnixListener::bind(directory.control_socket())
        })?;
        agents.set_nonblocking(true)?;
        controls.set_nonblocking(true)?;
        Ok(Self {
            epoch,
            agents,
            is_first_agent: agent.is_some(),
            // The agent may have sent further lines with the request for this task.
            has_unprocessed: agent.as_mut().is_some_and(LineStream::has_line),
            agent,
            controls,
            control: BTreeMap::new(),
            next_control: 0,
            is_quiet: Cell::new(false),
            watching: BTreeSet::new(),
            watching_gang: BTreeSet::new(),
        })
    }

    /// Waits until something arrives, one of `others` is readable, or the time is over; returns at once while
    /// received lines are unprocessed.
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
        let timeout_ms = if self.has_unprocessed { 0 } else { timeout_ms };
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
        self.is_quiet.set(is_quiet && !self.has_unprocessed);
        Ok(())
    }

    /// Reads what arrived since the last wait and writes what the sockets accept. Work beyond the bound per
    /// round is left to the next round.
    pub(crate) fn receive(&mut self) -> Vec<Incoming> {
        match self.is_quiet.take() {
            true => Vec::new(),
            false => self.receive_now(),
        }
    }

    /// Like `receive`, without a preceding wait.
    pub(crate) fn receive_now(&mut self) -> Vec<Incoming> {
        let mut incoming = Vec::new();
        self.accept(&mut incoming);
        // The order matters: a message that the task sent before a request arrived must not count as its
        // answer.
        self.receive_from_task(&mut incoming);
        self.receive_from_agent(&mut incoming);
        incoming
    }

    /// Whether received input is still to be taken.
    pub(crate) fn has_more(&self) -> bool {
        // A failing poll counts as nothing received.
        self.wait(&[], 0).is_ok() && !self.is_quiet.take()
    }

    /// Sends to the agent, if one is connected and reads.
    pub(crate) fn send_to_agent(&mut self, message: &SupervisorMessage) {
        send(&mut self.agent, message);
    }

    /// Sends all of these to the agent by one write.
    pub(crate) fn send_all_to_agent(&mut self, messages: &[SupervisorMessage]) {
        if let Some(open) = &mut self.agent
            && !open.send_all(messages)
        {
            self.agent = None;
        }
    }

    /// Whether the agent that assigned the task is connected.
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

    /// Whether output for the agent is still buffered.
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
            self.hang_up(connection);
        }
    }

    /// Subscribes a connection to stop requests; notifies it at once if one was made.
    pub(crate) fn watch(&mut self, connection: ConnectionId, stop: Option<&PreemptFlag>) {
        self.answer(connection, &ControlAnswer::done());
        // A closed connection would stay subscribed forever.
        if !self.control.contains_key(&connection) {
            return;
        }
        self.watching.insert(connection);
        if let Some(stop) = stop {
            self.notify(connection, &ControlNotice::Stop(stop.clone()));
        }
    }

    /// Subscribes a connection to the gang's rendezvous address too; notifies it at once if that has changed.
    pub(crate) fn watch_gang(&mut self, connection: ConnectionId, moved: Option<GangNotice>) {
        if !self.control.contains_key(&connection) {
            return;
        }
        self.watching_gang.insert(connection);
        if let Some(notice) = moved {
            self.notify(connection, &ControlNotice::Gang(notice));
        }
    }

    /// Notifies subscribers of the gang's rendezvous address.
    pub(crate) fn notify_gang(&mut self, notice: GangNotice) {
        let notice = ControlNotice::Gang(notice);
        for connection in self.watching_gang.clone() {
            self.notify(connection, &notice);
        }
    }

    /// Whether any connection subscribes to stop requests.
    pub(crate) fn has_watchers(&self) -> bool {
        let is_there = |connection| self.control.contains_key(connection);
        self.watching.iter().any(is_there)
    }

    /// Notifies subscribers that the task is asked to stop.
    pub(crate) fn notify_watchers(&mut self, stop: &PreemptFlag) {
        let notice = ControlNotice::Stop(stop.clone());
        for connection in self.watching.clone() {
            self.notify(connection, &notice);
        }
    }

    fn notify(&mut self, connection: ConnectionId, notice: &ControlNotice) {
        if let Some(stream) = self.control.get_mut(&connection)
            && !stream.send(notice)
        {
            self.hang_up(connection);
        }
    }

    fn hang_up(&mut self, connection: ConnectionId) {
        self.control.remove(&connection);
        self.watching.remove(&connection);
        self.watching_gang.remove(&connection);
    }

    /// Connections beyond the bound are accepted in the next round: until then the sockets stay readable.
    fn accept(&mut self, incoming: &mut Vec<Incoming>) {
        // The newest agent counts: an older one is dead or about to notice.
        for stream in connects(&self.agents) {
            if let Ok(stream) = LineStream::of_agent(stream) {
                self.agent = Some(stream);
                self.is_first_agent = false;
                incoming.push(Incoming::AgentConnected);
            }
        }
        for stream in connects(&self.controls) {
            // A connection beyond the limit is closed at once, which the task can detect.
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
            // An unknown request of a newer agent is ignored.
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
        let mut has_unprocessed = false;
        self.control.retain(|connection, stream| {
            let is_open = stream.fill() && stream.flush();
            take_requests(*connection, stream, epoch, incoming);
            // Lines sent before a hang-up count; lines of a peer that no longer reads do not.
            let has_lines = !stream.has_excess_output() && stream.has_line();
            has_unprocessed |= has_lines;
            let stays = has_lines || is_open && !stream.has_excess_output();
            if !stays {
                watching.remove(connection);
                watching_gang.remove(connection);
            }
            stays
        });
        self.has_unprocessed = has_unprocessed;
    }
}

/// Accepts pending connections, up to the bound per round.
fn connects(listener: &UnixListener) -> impl Iterator<Item = UnixStream> {
    let accepted = std::iter::from_fn(|| listener.accept().ok());
    accepted
        .take(CONNECTS_AT_ONCE_MAX)
        .map(|(stream, _)| stream)
}

/// Reads the requests of a task's connection, up to the bound per round; refuses malformed ones.
fn take_requests(
    connection: ConnectionId,
    stream: &mut LineStream,
    epoch: u64,
    incoming: &mut Vec<Incoming>,
) {
    for _ in 0..REQUESTS_AT_ONCE_MAX {
        if stream.has_excess_output() {
            return;
        }
        let Some(line) = stream.next_line() else {
            return;
        };
        match control::parse(&line, epoch) {
            Ok(request) => incoming.push(Incoming::Task(connection, request)),
            Err(error) => {
                // A closed connection shows at the next read or write.
                stream.send(&ControlAnswer::refused(error));
            }
        }
    }
}

fn send(stream: &mut Option<LineStream>, message: &impl Serialize) {
    if let Some(open) = stream
        && !open.send(message)
    {
        *stream = None;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// Longer than any step of these tests takes.
    const LONG_MS: u64 = 5_000;
    const PROGRESS: &str = "{\"op\":\"progress\",\"step\":1}\n";

    fn open(agent: Option<LineStream>) -> (tempfile::TempDir, TaskDirectory, Connections) {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("tasks/7-0-11"));
        fs::create_dir_all(directory.control()).unwrap();
        let connections = Connections::open(&directory, 11, agent).unwrap();
        (home, directory, connections)
    }

    fn connect(directory: &TaskDirectory) -> UnixStream {
        UnixStream::connect(directory.control_socket()).unwrap()
    }

    /// Number of events received by one wait.
    fn round(connections: &mut Connections) -> usize {
        connections.wait(&[], LONG_MS).unwrap();
        connections.receive().len()
    }

    /// Rounds until no more events arrive.
    fn rounds(connections: &mut Connections) -> usize {
        let mut rounds = 0;
        while connections.has_more() {
            connections.receive_now();
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn connections_that_open_and_close_without_end_delay_no_others() {
        let (_home, directory, mut connections) = open(None);
        for _ in 0..3 * CONNECTS_AT_ONCE_MAX {
            drop(connect(&directory));
        }
        connections.receive_now();
        assert!(
            connections.controls.accept().is_ok(),
            "some connections wait"
        );
        assert!(rounds(&mut connections) > 1);
        assert!(connections.control.is_empty());
        assert!(
            connections.controls.accept().is_err(),
            "no connection waits"
        );
    }

    #[test]
    fn requests_beyond_the_bound_of_a_round_are_processed_without_further_bytes() {
        for hangs_up in [false, true] {
            let (_home, directory, mut connections) = open(None);
            let mut task = connect(&directory);
            let lines = PROGRESS.repeat(3 * REQUESTS_AT_ONCE_MAX + 1);
            task.write_all(lines.as_bytes()).unwrap();
            let task = (!hangs_up).then_some(task);
            let counts: Vec<usize> = (0..4).map(|_| round(&mut connections)).collect();
            let all = REQUESTS_AT_ONCE_MAX;
            assert_eq!(counts, [all, all, all, 1], "{hangs_up}");
            rounds(&mut connections);
            assert_eq!(connections.control.is_empty(), hangs_up);
            drop(task);
        }
    }

    #[test]
    fn requests_that_arrived_with_the_order_for_a_task_are_processed_without_further_bytes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut agent = LineStream::of_agent(ours).unwrap();
        theirs.write_all(b"\"resume\"\n\"status\"\n").unwrap();
        assert!(agent.fill() && agent.next_line().is_some());
        let (_home, _, mut connections) = open(Some(agent));
        assert_eq!(round(&mut connections), 1);
    }

    #[test]
    fn a_peer_that_reads_no_answers_is_disconnected() {
        const LINES: usize = 60_000;
        let (_home, directory, mut connections) = open(None);
        let mut task = connect(&directory);
        task.write_all(&[b'\n'; LINES]).unwrap();
        let rounds = rounds(&mut connections);
        assert!(
            (2..LINES / REQUESTS_AT_ONCE_MAX).contains(&rounds),
            "{rounds}"
        );
        assert!(connections.control.is_empty());
    }

    #[test]
    fn a_closed_connection_is_forgotten() {
        let (_home, directory, mut connections) = open(None);
        let mut task = connect(&directory);
        task.write_all(b"{\"op\":\"watch\",\"gang\":true}\n")
            .unwrap();
        drop(task);
        for incoming in connections.receive_now() {
            let Incoming::Task(connection, _) = incoming else {
                continue;
            };
            connections.watch(connection, None);
            connections.watch_gang(connection, None);
        }
        assert!(connections.watching.is_empty() && connections.watching_gang.is_empty());
        assert_eq!(connections.next_control, 1, "its request was processed");
    }
}
