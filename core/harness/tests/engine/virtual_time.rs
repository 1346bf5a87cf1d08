//! Tests of the engine behind a virtual clock.

use muster_harness::{Agenda, Cluster, EngineError, single};
use muster_model::command::{Command, StopReason};
use muster_model::ids::LeadershipEpoch;
use muster_model::limits;
use muster_model::time::TimeMs;

#[test]
fn an_attempt_is_due_to_stop_at_its_time_limit_and_once() {
    let mut cluster = Cluster::with_hosts(1, 1);
    let mut spec = single("train", 1, 1);
    spec.scheduling.run_time_ms_max = Some(1_000);
    let job = cluster.submit(spec);
    assert_eq!(cluster.place_all(job), 1);
    cluster.start_all(job);
    let limit = cluster.now.after(1_000);
    assert_eq!(cluster.next_due(), Some(limit));
    cluster.wait(999);
    assert_eq!(cluster.due().next(), None);
    cluster.wait(1);
    let due: Vec<Command> = cluster.due().collect();
    let [stop @ Command::StopAttempt { reason, .. }] = due.as_slice() else {
        panic!("not one stop: {due:?}");
    };
    assert_eq!(*reason, StopReason::TimeLimit);
    cluster.carry_out(stop).unwrap();
    assert_eq!(cluster.due().next(), None);
    assert_eq!(cluster.next_due(), None);
}

#[test]
fn a_finished_job_is_pruned_after_its_retention() {
    let mut cluster = Cluster::with_hosts(1, 1);
    let job = cluster.submit(single("train", 1, 1));
    assert_eq!(cluster.place_all(job), 1);
    cluster.finish_all(job);
    cluster.wait(limits::FINISHED_JOB_KEPT_MS);
    cluster.prune().unwrap();
    assert!(cluster.state.job(job).is_some());
    cluster.wait(1);
    cluster.prune().unwrap();
    assert!(cluster.state.job(job).is_none());
    let commands = cluster.commands();
    cluster.prune().unwrap();
    assert_eq!(cluster.commands(), commands, "nothing is left to prune");
}

#[test]
fn a_refused_command_that_must_take_effect_is_an_error() {
    let mut cluster = Cluster::new();
    let stale = Command::Prune {
        leader: LeadershipEpoch::default(),
    };
    assert!(cluster.apply(&stale).result.is_err());
    let error = cluster.carry_out(&stale).unwrap_err();
    assert!(matches!(error, EngineError::Refused { at, .. } if at == cluster.now));
}

#[test]
fn an_agenda_is_ordered_by_time_and_then_by_event() {
    let mut agenda = Agenda::default();
    for (at, event) in [(2, 'c'), (1, 'b'), (1, 'a')] {
        agenda.add(TimeMs(at), event);
    }
    assert_eq!(agenda.next_at(), Some(TimeMs(1)));
    assert_eq!(agenda.due(TimeMs(0)), None);
    let due: String = std::iter::from_fn(|| agenda.due(TimeMs(1))).collect();
    assert_eq!(due, "ab");
    assert_eq!(agenda.due(TimeMs(5)), Some('c'));
}
