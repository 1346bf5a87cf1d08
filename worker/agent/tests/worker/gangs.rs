//! Tests of gang members on a real agent: prepared by one agent, released by the next.

use muster_model::desired::{StopInstruction, TaskAssignment};
use muster_model::heartbeat::{TaskStatus, WorkerTaskPhase};
use muster_model::ids::TaskIndex;

use crate::agent::Host;
use crate::support::leader::Leader;
use crate::support::script;

/// A member of a gang of two; the first one is rank 0.
fn member(task: u32) -> TaskAssignment {
    let mut assignment = script("echo $MASTER_PORT > begun; sleep 1000");
    assignment.key.task = TaskIndex(task);
    assignment.rank.rank = task;
    assignment.rank.world_size = 2;
    assignment.rank.master_port = 25_000;
    assignment.barrier = true;
    assignment
}

fn prepared(task: &TaskStatus) -> Option<Option<u16>> {
    match &task.phase {
        WorkerTaskPhase::Prepared { master_port } => Some(*master_port),
        _ => None,
    }
}

async fn wait_for_prepared(leader: &Leader, of: u32) -> Option<u16> {
    leader
        .eventually_task("prepared", |task| {
            prepared(task).filter(|_| task.key.task == TaskIndex(of))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_begin_when_their_gang_is_released_also_under_another_agent() {
    let leader = Leader::start(10).await;
    let mut host = Host::start(&[&leader]);
    let members = [member(0), member(1)];
    leader.want(members.clone());
    let port = wait_for_prepared(&leader, 0).await.unwrap();
    assert_eq!(wait_for_prepared(&leader, 1).await, None);
    assert!(leader.inner().hellos[0].can_hold);
    for task in &members {
        assert!(!host.directory(task).scratch().join("begun").exists());
    }
    host.kill_agent();
    leader.inner().status = None;
    host.restart_agent();
    assert_eq!(wait_for_prepared(&leader, 0).await, Some(port));
    leader.want(members.clone().map(|mut task| {
        task.released = true;
        task.rank.master_port = port;
        task
    }));
    for task in &members {
        assert_eq!(host.scratch_file(task, "begun"), port.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_stopped_before_its_gang_is_whole_is_reported_not_started() {
    let leader = Leader::start(10).await;
    let host = Host::start(&[&leader]);
    let mut task = member(1);
    leader.want([task.clone()]);
    wait_for_prepared(&leader, 1).await;
    task.stop = Some(StopInstruction {
        reason: "preempt".to_owned(),
        grace_ms: 60_000,
    });
    leader.want([task.clone()]);
    let error = leader
        .eventually_task("an end", |task| match &task.phase {
            WorkerTaskPhase::Exited(exit) => exit.start_error.clone(),
            _ => None,
        })
        .await;
    assert!(error.contains("before its gang was released"), "{error}");
    assert!(!host.directory(&task).scratch().join("begun").exists());
}
