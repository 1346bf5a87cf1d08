//! Tests of leases and epochs on real hosts: with any process frozen or disconnected, a task ends in time,
//! and no old attempt starts.

use muster_model::desired::{CheckpointRef, TaskAssignment};
use muster_model::heartbeat::DamageReport;
use muster_model::ids::AttemptEpoch;
use muster_model::lifecycle::TaskPhase;
use muster_model::timings::CLOCK_DRIFT_PERMILLE;
use muster_worker::clock::boottime_ms;
use muster_worker::process::ProcessIdentity;
use rustix::process::Signal;

use crate::agent::{Host, exited, running, signal_process};
use crate::support::leader::Leader;
use crate::support::{eventually, script};

/// A short lease: the shortest that jobs may ask for.
const LEASE_MS: u64 = 5_000;
/// A lease that leaves time for the guard of a frozen supervisor on a busy machine.
const GUARDED_LEASE_MS: u64 = 10_000;

fn leased(text: &str, lease_ms: u64) -> TaskAssignment {
    TaskAssignment {
        partition_grace_ms: lease_ms,
        stop_grace_ms: 0,
        ..script(text)
    }
}

async fn started(leader: &Leader, host: &Host, task: &TaskAssignment) -> ProcessIdentity {
    leader.want([task.clone()]);
    leader.eventually_task("running", running).await;
    host.directory(task).process().unwrap().unwrap()
}

/// Waits for a process's death, and returns the time at which it was noticed.
fn death(process: ProcessIdentity) -> u64 {
    eventually("the task's death", || !process.is_alive());
    boottime_ms()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_dead_before_its_lease_is_over_by_any_clock_of_the_leaders() {
    let leader = Leader::start(3).await;
    let host = Host::start(&[&leader]);
    let task = leased("trap '' TERM; while :; do sleep 0.05; done", LEASE_MS);
    let process = started(&leader, &host, &task).await;
    // No later heartbeat is acknowledged; the lease of the last one began before.
    leader.inner().acking = false;
    let cut_off = boottime_ms();
    let lived_ms = death(process) - cut_off;
    // Worst case: the leader's clock runs fast and this host's slow; the difference is subtracted from the
    // lease.
    let fastest_ms = LEASE_MS * (1_000 - CLOCK_DRIFT_PERMILLE) / (1_000 + CLOCK_DRIFT_PERMILLE);
    assert!((1_000..=fastest_ms).contains(&lived_ms), "{lived_ms} ms");
    let exit = leader.eventually_task("the end", exited).await;
    assert!(exit.lease_expired, "{exit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_frozen_past_its_lease_is_killed_by_its_agent() {
    let leader = Leader::start(3).await;
    let host = Host::start(&[&leader]);
    let task = leased("sleep 1000", GUARDED_LEASE_MS);
    let process = started(&leader, &host, &task).await;
    let supervisor = host.directory(&task).supervisor().unwrap().unwrap();
    signal_process(supervisor.pid, Signal::STOP);
    leader.inner().acking = false;
    let cut_off = boottime_ms();
    let lived_ms = death(process) - cut_off;
    assert!(lived_ms <= GUARDED_LEASE_MS, "{lived_ms} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_dies_with_its_lease_although_agent_and_supervisor_are_frozen() {
    let leader = Leader::start(3).await;
    let host = Host::start(&[&leader]);
    let task = leased("sleep 1000", GUARDED_LEASE_MS);
    let process = started(&leader, &host, &task).await;
    let supervisor = host.directory(&task).supervisor().unwrap().unwrap();
    signal_process(supervisor.pid, Signal::STOP);
    host.signal_agent(Signal::STOP);
    let cut_off = boottime_ms();
    let lived_ms = death(process) - cut_off;
    assert!(lived_ms <= GUARDED_LEASE_MS, "{lived_ms} ms");
    host.signal_agent(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_attempt_is_not_started_after_a_newer_one_ended_nor_by_the_next_agent() {
    let leader = Leader::start(3).await;
    let mut host = Host::start(&[&leader]);
    let mut newer = script("exit 5");
    newer.epoch = AttemptEpoch(20);
    leader.want([newer.clone()]);
    leader.eventually_task("the end", exited).await;
    newer.acknowledged = TaskPhase::Exited;
    leader.want([newer.clone()]);
    let is_forgotten = || !host.directory(&newer).path().exists();
    eventually("the directory's end", is_forgotten);
    let older = script("echo > started");
    for _ in 0..2 {
        leader.want([older.clone()]);
        let heartbeats = leader.inner().heartbeats;
        leader
            .eventually("heartbeats", |inner| {
                (inner.heartbeats > heartbeats + 5).then_some(())
            })
            .await;
        assert!(!host.directory(&older).path().exists());
        host.kill_agent();
        host.restart_agent();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_a_task_reach_the_leader_and_survive_the_agent() {
    let leader = Leader::start(3).await;
    let mut host = Host::start(&[&leader]);
    let mut task = script("sleep 1000");
    task.checkpoint = Some(CheckpointRef {
        step: 40,
        path: "/c/step_40".to_owned(),
    });
    started(&leader, &host, &task).await;
    let socket = host.directory(&task).control_socket();
    request(&socket, r#"{"op":"progress","step":7}"#);
    request(&socket, r#"{"op":"invalidate","step":40,"reason":"torn"}"#);
    request(&socket, r#"{"op":"begin","step":8}"#);
    request(&socket, r#"{"op":"commit","step":8,"path":"/c/8"}"#);
    let expected = DamageReport {
        step: 40,
        reason: "torn".to_owned(),
    };
    for _ in 0..2 {
        leader
            .eventually_task("all its requests", |report| {
                let saved = report.checkpoints.last()?;
                let is_all = report.progress_step == Some(7)
                    && report.damaged == [expected.clone()]
                    && saved.step == 8
                    && saved.save_ms.is_some();
                is_all.then_some(())
            })
            .await;
        host.kill_agent();
        leader.inner().status = None;
        host.restart_agent();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_made_without_an_agent_are_reported_although_their_supervisor_is_gone() {
    let leader = Leader::start(3).await;
    let mut host = Host::start(&[&leader]);
    let task = script("sleep 1000");
    started(&leader, &host, &task).await;
    host.kill_agent();
    leader.inner().status = None;
    let socket = host.directory(&task).control_socket();
    let steps = [3, 5, 8];
    for step in steps {
        request(
            &socket,
            &format!(r#"{{"op":"commit","step":{step},"path":"/c/{step}"}}"#),
        );
    }
    let supervisor = host.directory(&task).supervisor().unwrap().unwrap();
    signal_process(supervisor.pid, Signal::KILL);
    host.restart_agent();
    leader
        .eventually_task("every commit", |task| {
            let committed = task.checkpoints.iter().map(|report| report.step);
            committed.eq(steps).then_some(())
        })
        .await;
}

/// Sends a line to a task's control socket, which must succeed.
fn request(socket: &std::path::Path, line: &str) {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert_eq!(answer, "{\"ok\":true}\n", "{line}");
}
