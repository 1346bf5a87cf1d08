//! Leases of real processes: even if frozen or suspended, no task outlives its lease.

use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::{AgentRequest, SupervisorMessage};
use rustix::process::{Pid, Signal, kill_process};

use crate::forked::Server;
use crate::support::{LONG_LEASE_MS, Rig, eventually, is_gone, script};

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A suspended machine: supervisor and task are stopped while the clock of leases runs.
#[test]
fn a_machine_that_slept_past_a_lease_ends_its_task_before_it_reads_messages() {
    let mut rig = Rig::start(
        script("while :; do echo tick >> ticks; sleep 0.01; done"),
        1_500,
    );
    let task = rig.receive_started();
    let supervisor = rig.supervisor.id().cast_signed();
    signal(supervisor, Signal::STOP);
    signal(task.pid, Signal::STOP);
    // The extension arrives during the suspend, and is the first message that the supervisor could read.
    rig.send(&AgentRequest::Extend {
        deadline_boottime_ms: boottime_ms() + LONG_LEASE_MS,
    });
    let lease_end = boottime_ms() + 2_000;
    eventually("the lease's end", || boottime_ms() > lease_end);
    // The supervisor last: it must find nothing to resume.
    signal(task.pid, Signal::CONT);
    signal(supervisor, Signal::CONT);
    let exit = rig.receive_exit();
    assert!(exit.lease_expired, "{exit:?}");
    assert!(!task.is_alive());
}

/// Starts a process in a session of its own, which is not killed with any parent.
const RUNAWAY: &str = "setsid sh -c 'echo $$ > runaway; exec sleep 1000' >/dev/null 2>&1 & while [ ! -s runaway ]; do \
                       sleep 0.01; done; sleep 1000";

#[test]
fn a_frozen_supervisor_without_an_agent_is_killed_with_all_of_its_task() {
    let mut server = Server::start();
    let mut forked = server.fork("7-0-11", script(RUNAWAY), 1_500);
    let task = forked.started();
    let runaway = forked.directory.scratch().join("runaway");
    eventually("the runaway", || runaway.exists());
    let runaway = std::fs::read_to_string(&runaway).unwrap();
    // Another task, with a healthy supervisor, is left alone.
    let mut other = server.fork("8-0-11", script("sleep 1000"), LONG_LEASE_MS);
    let other_task = other.started();
    signal(forked.supervisor, Signal::STOP);
    server.hang_up();
    drop(forked.agent);
    eventually("the task's death", || !task.is_alive());
    eventually("the runaway's death", || is_gone(runaway.trim()));
    assert!(other_task.is_alive());
    // When nothing is left to guard, the guard exits.
    other.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 0,
    });
    eventually("the guard's end", || {
        server.process.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_guard_continues_after_its_agent_left_an_answer_unread() {
    let mut server = Server::start();
    let mut forked = server.fork("7-0-11", script("sleep 1000"), 1_500);
    let task = forked.started();
    signal(forked.supervisor, Signal::STOP);
    server.hang_up_before_the_answer();
    eventually("the task's death", || !task.is_alive());
}

#[test]
fn processes_of_a_killed_supervisor_die_without_an_agent() {
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
fn a_supervisor_that_only_waits_for_its_task_to_die_does_not_count_as_frozen() {
    let mut server = Server::start();
    // It takes longer to stop than a frozen supervisor gets.
    let text = "trap 'sleep 1.5; exit 4' TERM; echo ready > ready; while :; do sleep 0.02; done";
    let mut forked = server.fork("7-0-11", script(text), LONG_LEASE_MS);
    forked.started();
    let ready = forked.directory.scratch().join("ready");
    eventually("ready", || ready.exists());
    server.hang_up();
    forked.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 20_000,
    });
    let SupervisorMessage::Exited(exit) = forked.receive() else {
        panic!("no end");
    };
    assert_eq!(exit.code, Some(4));
}
