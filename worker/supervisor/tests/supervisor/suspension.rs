//! Pausing and resuming tasks.

use muster_model::desired::TaskAssignment;
use muster_supervisor::process::ProcessEntry;
use muster_supervisor::{AgentRequest, SupervisorMessage};

use crate::support::{LONG_LEASE_MS, Rig, eventually, script};

const SIGKILL: i32 = 9;

/// A task with a process in a session of its own, both of which count; it saves when it is asked to stop.
fn counting() -> TaskAssignment {
    script(
        "trap 'echo saved > saved; exit 75' TERM
         setsid sh -c 'echo $$ > hidden; while :; do echo >> hidden-count; sleep 0.01; done' &
         echo $$ > main
         while :; do echo >> main-count; sleep 0.01; done",
    )
}

fn processes(rig: &Rig) -> [i32; 2] {
    ["main", "hidden"].map(|name| rig.scratch_file(name).parse().unwrap())
}

fn are_paused(processes: [i32; 2]) -> bool {
    let all = ProcessEntry::all().unwrap();
    let of_task =
        |entry: &&ProcessEntry| processes.contains(&entry.pid) || processes.contains(&entry.parent);
    all.iter()
        .filter(of_task)
        .all(|entry| entry.is_stopped() || entry.is_dead() || waits_in_the_kernel(entry.pid))
}

/// Whether a shell waits for a child that was stopped before it executed its program.
fn waits_in_the_kernel(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('D'))
}

fn counted(rig: &Rig) -> u64 {
    ["main-count", "hidden-count"]
        .map(|name| rig.directory.scratch().join(name))
        .map(|path| std::fs::metadata(path).map_or(0, |it| it.len()))
        .iter()
        .sum()
}

#[test]
fn every_process_is_paused_until_the_task_is_resumed() {
    let mut rig = Rig::start(counting(), LONG_LEASE_MS);
    rig.receive_started();
    let task = processes(&rig);
    rig.send(&AgentRequest::Suspend);
    eventually("all are paused", || are_paused(task));
    let still = counted(&rig);
    rig.send(&AgentRequest::Status);
    assert!(matches!(
        rig.receive(),
        SupervisorMessage::Status {
            suspended: true,
            ..
        }
    ));
    assert_eq!(counted(&rig), still, "something goes on");
    rig.send(&AgentRequest::Resume);
    eventually("it goes on", || counted(&rig) > still + 4);
}

#[test]
fn a_paused_task_is_resumed_to_receive_a_stop_request() {
    let mut rig = Rig::start(counting(), LONG_LEASE_MS);
    rig.receive_started();
    let task = processes(&rig);
    rig.send(&AgentRequest::Suspend);
    eventually("all are paused", || are_paused(task));
    rig.send(&AgentRequest::Stop {
        reason: "preempt".to_owned(),
        grace_ms: 20_000,
    });
    assert_eq!(rig.receive_exit().code, Some(75));
    assert_eq!(rig.scratch_file("saved"), "saved");
    assert!(!rig.lives());
}

#[test]
fn a_paused_task_ends_with_its_lease() {
    let mut rig = Rig::start(counting(), 1_500);
    rig.receive_started();
    rig.send(&AgentRequest::Suspend);
    let exit = rig.receive_exit();
    assert!(
        exit.lease_expired && exit.signal == Some(SIGKILL),
        "{exit:?}"
    );
    assert!(!rig.lives());
}
