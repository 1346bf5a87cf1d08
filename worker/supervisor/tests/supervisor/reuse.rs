//! Reuse of one supervisor for several tasks.

use std::io::BufRead;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use muster_model::command::Exit;
use muster_model::desired::TaskAssignment;
use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::limits::{SUPERVISOR_OVERDUE_MS_MAX, SUPERVISOR_SILENT_MS_MAX};
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{AgentRequest, Controller, SupervisorMessage, TaskDirectory};

use crate::confinement::cgroups;
use crate::forked::{Forked, Server};
use crate::support::{LONG_LEASE_MS, eventually, script};

/// A lease that ends during the test.
const SHORT_LEASE_MS: u64 = 1_000;

fn exit_of(forked: &mut Forked) -> Exit {
    loop {
        if let SupervisorMessage::Exited(exit) = forked.receive() {
            return exit;
        }
    }
}

/// Assigns another task to a supervisor and waits for its end.
fn give(forked: &mut Forked, directory: &TaskDirectory) -> Exit {
    let directory = directory.path().to_owned();
    forked.send(&AgentRequest::Next { directory });
    exit_of(forked)
}

fn is_idle(forked: &mut Forked) -> bool {
    let mut line = String::new();
    forked.agent.read_line(&mut line).unwrap();
    let message = serde_json::from_str(&line);
    matches!(message, Ok(SupervisorMessage::Idle { .. }))
}

#[test]
fn an_idle_supervisor_takes_the_next_task_and_ends_with_its_agent() {
    let server = Server::start();
    let mut forked = server.fork("7-0-11", script("echo first"), SHORT_LEASE_MS);
    let first = forked.directory.clone();
    assert_eq!(exit_of(&mut forked).code, Some(0));
    assert!(is_idle(&mut forked));
    let supervisor = first.supervisor().unwrap().unwrap();
    // Its guard expects nothing of it meanwhile, although its first task's lease is over.
    let over = SHORT_LEASE_MS + SUPERVISOR_OVERDUE_MS_MAX + 2 * SUPERVISOR_SILENT_MS_MAX;
    let until = boottime_ms() + over;
    eventually("the guard's look", || boottime_ms() > until);
    assert!(supervisor.is_alive());
    let text = "echo $MUSTER_CTL_DIR > dir; exit 3";
    let next = server.prepared("8-0-12", script(text), LONG_LEASE_MS, &[]);
    assert_eq!(give(&mut forked, &next).code, Some(3));
    assert!(is_idle(&mut forked));
    assert_eq!(next.supervisor().unwrap(), Some(supervisor));
    assert_eq!(next.exit().unwrap().unwrap().exit.code, Some(3));
    let printed = std::fs::read_to_string(next.scratch().join("dir")).unwrap();
    assert_eq!(printed.trim(), next.control().to_str().unwrap());
    // The supervisor's identity is removed first: that process may have another task.
    first.remove().unwrap();
    assert_eq!(first.supervisor().unwrap(), None);
    drop(forked);
    eventually("the supervisor's end", || !supervisor.is_alive());
}

#[test]
fn a_supervisor_that_did_more_than_watch_ends_with_its_task() {
    let server = Server::start();
    let mut forked = server.fork("7-0-11", script("sleep 1000"), LONG_LEASE_MS);
    forked.started();
    forked.send(&AgentRequest::Stop {
        reason: "cancel".to_owned(),
        grace_ms: 0,
    });
    exit_of(&mut forked);
    assert!(!is_idle(&mut forked));
    let supervisor = ProcessIdentity::of(forked.supervisor);
    eventually("its end", || supervisor.is_none_or(|it| !it.is_alive()));
}

#[test]
fn a_directory_that_is_claimed_is_not_begun_again() {
    let server = Server::start();
    let mut forked = server.fork("7-0-11", script("true"), LONG_LEASE_MS);
    exit_of(&mut forked);
    assert!(is_idle(&mut forked));
    let taken = server.prepared("8-0-12", script("echo > begun"), LONG_LEASE_MS, &[]);
    // A process that has ended: all processes that a host's directories name are killed with the host.
    let other = ProcessIdentity {
        pid: 1,
        start_ticks: u64::MAX,
    };
    taken.claim(other).unwrap();
    let directory = taken.path().to_owned();
    forked.send(&AgentRequest::Next { directory });
    assert!(!is_idle(&mut forked), "it ends");
    assert!(!taken.scratch().join("begun").exists());
}

/// The first cgroup that counts memory by version 1.
fn memory(paths: &[PathBuf]) -> Option<&PathBuf> {
    let counts = |path: &&PathBuf| path.join("memory.max_usage_in_bytes").exists();
    paths.iter().find(counts)
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

#[test]
fn cgroups_go_to_a_task_with_the_same_limits_and_to_no_other() {
    let wanted = [Controller::Memory, Controller::Cpu];
    let names = ["reuse-1", "reuse-2", "reuse-3", "reuse-4"];
    let all: Option<Vec<_>> = names.iter().map(|name| cgroups(name, &wanted)).collect();
    let Some([first, second, third, fourth]) = all.as_deref() else {
        return;
    };
    let with = |text: &str, memory_mib: u64| TaskAssignment {
        memory_mib,
        ..script(text)
    };
    let server = Server::start();
    let greedy = "exec dd if=/dev/zero of=/dev/null bs=20000000 count=1";
    let task = server.prepared("7-0-11", with(greedy, 64), LONG_LEASE_MS, first);
    let mut forked = server.fork_in(task);
    let peak = |exit: Exit| exit.memory.unwrap().peak_bytes;
    let peak_of_first = peak(exit_of(&mut forked));
    assert!(is_idle(&mut forked));
    let Some(kept) = memory(first).map(|path| inode(path)) else {
        assert!(!first.iter().any(|path| path.exists()), "none is kept");
        return;
    };
    let modest = server.prepared("8-0-12", with("true", 64), LONG_LEASE_MS, second);
    let peak_of_second = peak(give(&mut forked, &modest));
    assert!(is_idle(&mut forked));
    assert!(peak_of_first > 20_000_000 && peak_of_second < 20_000_000);
    assert_eq!(memory(second).map(|path| inode(path)), Some(kept));
    assert!(!first.iter().any(|path| path.exists()));
    // A cgroup with a child cgroup is not reused.
    let text =
        "d=$(sed -n 's/.*:memory://p' /proc/self/cgroup); mkdir /sys/fs/cgroup/memory$d/below";
    let messy = server.prepared("9-0-13", with(text, 64), LONG_LEASE_MS, third);
    assert_eq!(give(&mut forked, &messy).code, Some(0));
    assert!(is_idle(&mut forked));
    assert!(!third.iter().any(|path| path.exists()));
    let other = server.prepared("10-0-14", with("true", 65), LONG_LEASE_MS, fourth);
    give(&mut forked, &other);
    assert!(is_idle(&mut forked));
    assert!(memory(fourth).is_some());
    drop(forked);
    eventually("their removal", || !fourth.iter().any(|path| path.exists()));
}
