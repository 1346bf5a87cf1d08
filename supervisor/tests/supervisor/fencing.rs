//! Leases on real processes: whatever is frozen or asleep, nothing outlives its lease.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{LONG_LEASE_MS, PATIENCE_MS, PROGRAM, Rig, eventually, is_gone, script};
use muster_core::desired::TaskAssignment;
use muster_supervisor::clock::boottime_ms;
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{
    AgentRequest, Confinement, LogLimits, SPEC_FORMAT, SecretFolders, SupervisorMessage,
    TaskDirectory, TaskSpec, server,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A machine that sleeps: supervisor and task stand still while the clock of leases goes on.
#[test]
fn a_machine_that_slept_past_a_lease_ends_its_task_before_it_listens_to_anybody() {
    let mut rig = Rig::start(
        script("while :; do echo tick >> ticks; sleep 0.01; done"),
        1_500,
    );
    let task = rig.hear_started();
    let supervisor = rig.supervisor.id().cast_signed();
    signal(supervisor, Signal::STOP);
    signal(task.pid, Signal::STOP);
    // The extension comes while it sleeps, and is the first thing that it could read.
    rig.say(&AgentRequest::Extend {
        deadline_boottime_ms: boottime_ms() + LONG_LEASE_MS,
    });
    let lease_end = boottime_ms() + 2_000;
    eventually("the lease's end", || boottime_ms() > lease_end);
    signal(supervisor, Signal::CONT);
    signal(task.pid, Signal::CONT);
    let exit = rig.hear_exit();
    assert!(exit.lease_expired, "{exit:?}");
    assert!(!task.is_alive());
}

/// An agent's end of a server that forks supervisors.
struct Server {
    home: tempfile::TempDir,
    socket: Option<OwnedFd>,
    process: Child,
}

/// A task under a forked supervisor.
struct Forked {
    directory: TaskDirectory,
    supervisor: i32,
    agent: BufReader<UnixStream>,
}

impl Server {
    fn start() -> Self {
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

    fn fork(&self, name: &str, assignment: TaskAssignment, lease_ms: u64) -> Forked {
        let directory = TaskDirectory::new(self.home.path().join("tasks").join(name));
        let spec = TaskSpec {
            format: SPEC_FORMAT,
            assignment,
            deadline_boottime_ms: boottime_ms() + lease_ms,
            log_directory: self.home.path().join("logs"),
            log_limits: LogLimits::default(),
            checkpoint_directory: self.home.path().join("checkpoints").join(name),
            checkpoint_scan_ms: 20,
            cgroup: None,
            confinement: Confinement::default(),
            secrets: SecretFolders::default(),
            lease_warning_ms: 0,
            engine: None,
        };
        directory.create(&spec).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS)))
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
    fn hang_up(&mut self) {
        self.socket = None;
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
    fn hear(&mut self) -> SupervisorMessage {
        let mut line = String::new();
        self.agent.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn started(&mut self) -> ProcessIdentity {
        assert!(matches!(self.hear(), SupervisorMessage::Started { .. }));
        self.directory.process().unwrap().unwrap()
    }

    fn say(&mut self, request: &AgentRequest) {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        self.agent.get_mut().write_all(&line).unwrap();
    }
}

/// Starts a process in a session of its own, which dies with nobody.
const RUNAWAY: &str = "setsid sh -c 'echo $$ > runaway; exec sleep 1000' >/dev/null 2>&1 & while [ ! -s runaway ]; do sleep 0.01; done; sleep 1000";

#[test]
fn a_frozen_supervisor_without_an_agent_is_killed_with_all_of_its_task() {
    let mut server = Server::start();
    let mut forked = server.fork("7-0-11", script(RUNAWAY), 1_500);
    let task = forked.started();
    let runaway = forked.directory.scratch().join("runaway");
    eventually("the runaway", || runaway.exists());
    let runaway = std::fs::read_to_string(&runaway).unwrap();
    // Another task, whose supervisor is well, is left alone.
    let mut other = server.fork("8-0-11", script("sleep 1000"), LONG_LEASE_MS);
    let other_task = other.started();
    signal(forked.supervisor, Signal::STOP);
    server.hang_up();
    drop(forked.agent);
    eventually("the task's death", || !task.is_alive());
    eventually("the runaway's death", || is_gone(runaway.trim()));
    assert!(other_task.is_alive());
    // When nothing is left to guard, the guard goes.
    other.say(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 0,
    });
    eventually("the guard's end", || {
        server.process.try_wait().unwrap().is_some()
    });
}

#[test]
fn what_a_killed_supervisor_leaves_dies_without_an_agent() {
    let mut server = Server::start();
    let mut forked = server.fork("7-0-11", script(RUNAWAY), LONG_LEASE_MS);
    forked.started();
    let runaway = forked.directory.scratch().join("runaway");
    eventually("the runaway", || runaway.exists());
    let runaway = std::fs::read_to_string(&runaway).unwrap();
    server.hang_up();
    signal(forked.supervisor, Signal::KILL);
    eventually("the runaway's death", || is_gone(runaway.trim()));
    eventually("the guard's end", || {
        server.process.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_supervisor_that_only_waits_for_its_task_to_die_is_no_frozen_one() {
    let mut server = Server::start();
    // It takes longer to stop than a frozen supervisor gets.
    let text = "trap 'sleep 1.5; exit 4' TERM; echo ready > ready; while :; do sleep 0.02; done";
    let mut forked = server.fork("7-0-11", script(text), LONG_LEASE_MS);
    forked.started();
    let ready = forked.directory.scratch().join("ready");
    eventually("ready", || ready.exists());
    server.hang_up();
    forked.say(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 20_000,
    });
    let SupervisorMessage::Exited(exit) = forked.hear() else {
        panic!("no end");
    };
    assert_eq!(exit.code, Some(4));
}
