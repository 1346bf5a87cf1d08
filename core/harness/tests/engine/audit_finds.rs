//! Tests that the audit finds each planted corruption by its rule.

use std::sync::Arc;

use muster_engine::audit::{Finding, Rule, audit};
use muster_engine::state::{Attempt, EventLog, Job, Membership, Queue, State, Unit};
use muster_harness::{Cluster, gang, single};
use muster_model::command::{
    AllocationBasis, Block, CheckpointCommand, CheckpointCommit, Command, GpuHealth, HostHealth,
    Placement, StopCause, StopReason, TaskOutcome,
};
use muster_model::event::{Event, EventKind};
use muster_model::host::{Holder, Host};
use muster_model::ids::{
    AttemptEpoch, HostId, JobId, LeadershipEpoch, Revision, TaskIndex, UnitId, UnitIndex,
};
use muster_model::job::{Removal, StopOrder};
use muster_model::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use muster_model::topology::CellId;
use muster_planner::{Budget, plan};

/// A running gang on hosts 1 and 2, an array with placed and waiting tasks, and a finished job.
fn sound() -> (State, JobId, JobId) {
    let mut cluster = Cluster::with_hosts(3, 2);
    let train = cluster.submit(gang("train", 3, 1));
    cluster.place_all(train);
    cluster.start_all(train);
    let sweep = cluster.submit(single("sweep", 9, 1));
    cluster.place_all(sweep);
    let done = cluster.submit(single("done", 1, 0));
    cluster.place_all(done);
    cluster.finish_all(done);
    assert_eq!(audit(&cluster.state), []);
    (cluster.state, train, sweep)
}

fn job(state: &mut State, id: JobId) -> &mut Job {
    Arc::make_mut(state.jobs.get_mut(&id).expect("the job was submitted"))
}

fn unit(state: &mut State, id: JobId) -> &mut Unit {
    let units = &mut job(state, id).units;
    Arc::make_mut(units.get_mut(&UnitIndex(0)).expect("the unit was placed"))
}

fn attempt(state: &mut State, id: JobId) -> &mut Attempt {
    let attempt = unit(state, id).attempt.as_mut();
    Arc::make_mut(attempt.expect("the unit has an attempt"))
}

fn host(state: &mut State, id: u32) -> &mut Host {
    let host = state.hosts.get_mut(&HostId(id));
    Arc::make_mut(host.expect("the host was registered"))
}

/// Plants a corruption and expects a finding of a rule.
fn found(rule: Rule, plant: impl FnOnce(&mut State, JobId, JobId)) {
    let (mut state, train, sweep) = sound();
    plant(&mut state, train, sweep);
    let findings = audit(&state);
    assert!(
        findings.iter().any(|finding| finding.rule == rule),
        "no finding of {rule:?} among {findings:#?}"
    );
}

#[test]
fn a_gpu_of_two_attempts() {
    found(Rule::GpuExclusivity, |state, train, sweep| {
        let gpu = attempt(state, train).tasks[0].gpus[0];
        attempt(state, sweep).tasks[0].gpus[0] = gpu;
    });
    found(Rule::GpuExclusivity, |state, _, _| {
        host(state, 1).gpus[0].holder = None;
    });
}

#[test]
fn a_gang_that_lacks_a_task() {
    found(Rule::GangAtomicity, |state, train, _| {
        attempt(state, train).tasks.pop();
    });
    found(Rule::GangAtomicity, |state, train, _| {
        attempt(state, train).tasks[1].phase = TaskPhase::Fenced;
    });
}

/// A gang of three on hosts 1 and 2 with member 1 swapped and member 2 gone, and an empty host.
fn with_a_vacancy() -> (State, JobId) {
    let mut cluster = Cluster::with_hosts(3, 2);
    let mut spec = gang("train", 3, 1);
    spec.lifecycle.member_swap = true;
    let train = cluster.submit(spec);
    cluster.place_all(train);
    cluster.start_all(train);
    cluster.report(train, TaskIndex(1), TaskOutcome::Fenced);
    let swap = plan(&cluster.state, cluster.now, Budget::default()).steps;
    assert!(cluster.apply(&swap[0]).result.is_ok());
    cluster.report(train, TaskIndex(1), TaskOutcome::Started);
    cluster.report(train, TaskIndex(2), TaskOutcome::Fenced);
    assert_eq!(audit(&cluster.state), []);
    (cluster.state, train)
}

fn membership(state: &mut State, id: JobId) -> &mut Membership {
    let membership = attempt(state, id).membership.as_deref_mut();
    membership.expect("a member of it was swapped")
}

fn found_in_members(rule: Rule, plant: impl FnOnce(&mut State, JobId)) {
    let (mut state, train) = with_a_vacancy();
    plant(&mut state, train);
    let findings = audit(&state);
    assert!(
        findings.iter().any(|finding| finding.rule == rule),
        "no finding of {rule:?} among {findings:#?}"
    );
}

#[test]
fn vacancies_that_contradict_the_members_are_found() {
    found_in_members(Rule::GangAtomicity, |state, train| {
        membership(state, train).vacancy = None;
    });
    found_in_members(Rule::GangAtomicity, |state, train| {
        let vacancy = membership(state, train).vacancy.as_mut();
        let run = vacancy.expect("member 2 is gone").run.clone();
        attempt(state, train).tasks.push(run);
    });
    found_in_members(Rule::GangAtomicity, |state, train| {
        let vacancy = membership(state, train).vacancy.as_mut();
        vacancy.expect("member 2 is gone").run.phase = TaskPhase::Running;
    });
    found_in_members(Rule::GpuExclusivity, |state, train| {
        let epoch = attempt(state, train).epoch;
        host(state, 3).gpus[1].holder = Some(Holder {
            job: train,
            unit: UnitIndex(0),
            epoch,
            task: TaskIndex(2),
        });
    });
    found_in_members(Rule::Unindexed, |state, _| state.index.vacant.clear());
    found_in_members(Rule::AttemptEvents, |state, train| {
        let vacancy = membership(state, train).vacancy.as_mut();
        vacancy.expect("member 2 is gone").run.task = TaskIndex(0);
    });
}

#[test]
fn members_that_do_not_fit() {
    found_in_members(Rule::Epochs, |state, train| {
        let first = attempt(state, train).epoch;
        let joined = membership(state, train).joined.get_mut(&TaskIndex(1));
        joined.expect("member 1 was swapped").epoch = first;
    });
    found_in_members(Rule::Epochs, |state, train| {
        let joined = membership(state, train).joined.remove(&TaskIndex(1));
        let joined = joined.expect("member 1 was swapped");
        membership(state, train).joined.insert(TaskIndex(2), joined);
    });
    found_in_members(Rule::Limits, |state, train| {
        membership(state, train).swaps_in_a_row = 9;
    });
    found_in_members(Rule::GangAtomicity, |state, train| {
        Arc::make_mut(&mut job(state, train).spec)
            .lifecycle
            .member_swap = false;
    });
}

#[test]
fn phases_that_do_not_fit() {
    found(Rule::Lifecycle, |state, train, _| {
        unit(state, train).phase = UnitPhase::Placed;
    });
    found(Rule::Lifecycle, |state, train, _| {
        job(state, train).phase = JobPhase::Queued;
    });
    found(Rule::Lifecycle, |state, train, _| {
        job(state, train).counts.running = 0;
    });
    found(Rule::Lifecycle, |state, train, _| {
        job(state, train).finished_at = Some(Default::default());
    });
}

#[test]
fn unindexed_work_is_found() {
    found(Rule::Unindexed, |state, _, _| state.index.waiting.clear());
    found(Rule::Unindexed, |state, _, sweep| {
        unit(state, sweep).attempt = None;
    });
    found(Rule::Unindexed, |state, _, sweep| {
        job(state, sweep).requeued.clear();
        job(state, sweep).first_untouched = UnitIndex(0);
    });
    found(Rule::Unindexed, |state, train, _| {
        for run in &mut attempt(state, train).tasks {
            run.phase = TaskPhase::Gone;
        }
    });
}

#[test]
fn epochs_that_do_not_increase() {
    found(Rule::Epochs, |state, train, _| {
        attempt(state, train).epoch = AttemptEpoch(u64::MAX);
    });
    found(Rule::Epochs, |state, train, _| {
        unit(state, train).attempts = 7;
    });
    found(Rule::Leadership, |state, train, _| {
        attempt(state, train).leader = LeadershipEpoch(99);
    });
    found(Rule::Leadership, |state, _, _| {
        state.leadership.epoch = LeadershipEpoch(u64::MAX);
    });
}

#[test]
fn sums_that_do_not_add_up() {
    found(Rule::Capacity, |state, _, _| {
        host(state, 1).cpus_milli_used += 1;
    });
    found(Rule::QueueUsage, |state, _, _| {
        let queue = state.queues.get_mut("default").expect("it always exists");
        Arc::make_mut(queue).live_jobs += 1;
    });
    found(Rule::RetryBudget, |state, train, _| {
        unit(state, train).failures = 5;
    });
}

#[test]
fn claims_without_a_claimant_are_found() {
    found(Rule::Claims, |state, train, _| {
        host(state, 3).gpus[0].claim = Some(UnitId::new(train, UnitIndex(0)));
    });
    found(Rule::Claims, |state, train, _| {
        attempt(state, train).allocation_basis =
            AllocationBasis::Cells(vec![CellId::Host(HostId(1))]);
    });
    found(Rule::QueueUsage, |state, train, _| {
        attempt(state, train).allocation_basis = AllocationBasis::Opportunistic;
    });
    found(Rule::QueueUsage, |state, _, _| state.index.usage.clear());
    found(Rule::QueueUsage, |state, _, _| {
        let queue = Arc::new(Queue {
            retired: true,
            ..Queue::new("old")
        });
        state.queues.insert("old".into(), queue);
    });
}

#[test]
fn an_index_that_offers_unusable_resources_is_found() {
    found(Rule::Derived, |state, _, _| {
        host(state, 3).health = HostHealth::Lost;
    });
    found(Rule::Derived, |state, _, _| {
        host(state, 1).gpus[1].health = GpuHealth::Faulted {
            signal: "xid-79".to_owned(),
            detail: String::new(),
        };
        host(state, 1).gpus[1].holder = None;
        state.index.free.clear();
    });
    found(Rule::Derived, |state, _, _| {
        state.index.units_on_host.clear()
    });
    found(Rule::Derived, |state, _, _| state.index.finished.clear());
}

#[test]
fn missing_entries_of_identity_maps_are_found() {
    found(Rule::Identity, |state, _, _| state.host_names.clear());
    found(Rule::Identity, |state, _, _| state.gpu_hosts.clear());
    found(Rule::Identity, |state, _, _| state.revision = Revision(3));
}

#[test]
fn an_automatic_block_without_rule_or_evidence_is_found() {
    let (mut state, ..) = sound();
    for (author, evidence, is_founded) in [
        ("rule:xid", "Xid 79", true),
        ("rule:xid", "", false),
        ("rule:", "Xid 79", false),
    ] {
        host(&mut state, 3).block = Some(Block {
            reason: "blocked(auto) by rule xid".to_owned(),
            author: author.to_owned(),
            evidence: evidence.to_owned(),
            since: state.time,
            expires_at: None,
            drain_deadline: None,
            planned: None,
        });
        let findings = audit(&state);
        let mut of_block = findings.iter().filter(|it| it.rule == Rule::Health);
        let found = of_block.any(|it| it.detail.contains("rests on"));
        assert_eq!(found, !is_founded, "{author}, {evidence}");
    }
}

#[test]
fn rows_that_are_too_long() {
    // Within its retries, and for an attempt that continues.
    found(Rule::RetryBudget, |state, train, _| {
        unit(state, train).failures = 1;
    });
    found(Rule::RetryBudget, |state, train, _| {
        unit(state, train).local_retries = 1;
    });
    found(Rule::RetryBudget, |state, train, _| {
        unit(state, train).without_progress = 2;
    });
}

#[test]
fn a_checkpoint_to_be_removed_that_is_kept() {
    found(Rule::Retention, |state, train, _| {
        unit(state, train).removals.push(Removal {
            epoch: AttemptEpoch(1),
            step: 100,
            path: "/checkpoints/step_100".to_owned(),
        });
    });
}

/// The events without the matching ones, or with each of them twice.
fn changed_events(state: &State, twice: bool, matches: impl Fn(&EventKind) -> bool) -> EventLog {
    let revisions = state.events.iter().filter_map(|(revision, events)| {
        let copies = |event: &Event| match matches(&event.kind) {
            true => usize::from(twice) * 2,
            false => 1,
        };
        let kept = events
            .iter()
            .flat_map(|event| std::iter::repeat_n(event.clone(), copies(event)));
        let kept: Vec<Event> = kept.collect();
        (!kept.is_empty()).then(|| (revision, Arc::from(kept)))
    });
    EventLog::restore(
        state.events.floor(),
        state.events.losses(),
        revisions.collect(),
    )
}

#[test]
fn an_attempt_whose_events_are_missing_or_recorded_twice() {
    type Matches = fn(&EventKind) -> bool;
    let kinds: [(Matches, bool); 5] = [
        (
            |kind| matches!(kind, EventKind::AttemptPlaced { .. }),
            false,
        ),
        (|kind| matches!(kind, EventKind::TaskStarted { .. }), true),
        (|kind| matches!(kind, EventKind::TaskExited { .. }), true),
        (
            |kind| matches!(kind, EventKind::AttemptRunning { .. }),
            false,
        ),
        (|kind| matches!(kind, EventKind::AttemptEnded { .. }), true),
    ];
    for (matches, is_missed) in kinds {
        found(Rule::AttemptEvents, |state, _, _| {
            state.events = changed_events(state, true, matches);
        });
        if is_missed {
            found(Rule::AttemptEvents, |state, _, _| {
                state.events = changed_events(state, false, matches);
            });
        }
    }
}

/// A released gang on hosts 1 and 2 with two committed checkpoints, and a gang with one prepared member.
fn released_and_prepared() -> (State, JobId, JobId) {
    let mut cluster = Cluster::with_hosts(4, 2);
    let train = place_together(&mut cluster, "train");
    prepare(&mut cluster, train, 0);
    prepare(&mut cluster, train, 1);
    let epoch = epoch_of(&cluster.state, train);
    let leader = cluster.leader();
    let release = Command::ReleaseGang {
        leader,
        job: train,
        unit: UnitIndex(0),
        epoch,
    };
    assert!(cluster.apply(&release).result.is_ok());
    cluster.start_all(train);
    for step in [100, 200] {
        let commit = Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader,
            job: train,
            unit: UnitIndex(0),
            checkpoint: CheckpointCommit {
                epoch,
                step,
                path: format!("/checkpoints/step_{step}"),
                size_bytes: 1,
                digest: String::new(),
                save_ms: None,
            },
        });
        assert!(cluster.apply(&commit).result.is_ok());
    }
    let pair = place_together(&mut cluster, "pair");
    prepare(&mut cluster, pair, 0);
    (cluster.state, train, pair)
}

/// Places a gang of two with a start barrier.
fn place_together(cluster: &mut Cluster, name: &str) -> JobId {
    let id = cluster.submit(gang(name, 2, 2));
    match cluster.first_fit(id, UnitIndex(0)) {
        Some(Command::Place(placement)) => {
            let placement = Placement {
                barrier: true,
                ..placement
            };
            let applied = cluster.apply(&Command::Place(placement));
            assert!(applied.result.is_ok(), "{:?}", applied.result);
        }
        other => panic!("there is no room: {other:?}"),
    }
    id
}

fn prepare(cluster: &mut Cluster, job: JobId, task: u32) {
    let prepared = TaskOutcome::Prepared { master_port: None };
    let applied = cluster.report(job, TaskIndex(task), prepared);
    assert!(applied.result.is_ok(), "{:?}", applied.result);
}

fn epoch_of(state: &State, id: JobId) -> AttemptEpoch {
    let unit = state.job(id).and_then(|job| job.unit(UnitIndex(0)));
    let attempt = unit.and_then(|unit| unit.attempt.as_deref());
    attempt.expect("the gang was placed").epoch
}

/// The same events in the same revisions, the matching ones last.
fn moved_last(state: &State, matches: impl Fn(&EventKind) -> bool) -> EventLog {
    let all = state.events.iter().flat_map(|(_, events)| events.iter());
    let (last, first): (Vec<&Event>, Vec<&Event>) = all.partition(|event| matches(&event.kind));
    let mut reordered = first.into_iter().chain(last).cloned();
    let revisions = state.events.iter().map(|(revision, events)| {
        let events: Vec<Event> = reordered.by_ref().take(events.len()).collect();
        (revision, Arc::from(events))
    });
    EventLog::restore(
        state.events.floor(),
        state.events.losses(),
        revisions.collect(),
    )
}

#[test]
fn a_gang_whose_barrier_events_are_missing_recorded_twice_or_recorded_late() {
    type Matches = fn(&EventKind) -> bool;
    type Change = fn(&State, Matches) -> EventLog;
    let missing: Change = |state, matches| changed_events(state, false, matches);
    let twice: Change = |state, matches| changed_events(state, true, matches);
    let late: Change = |state, matches| moved_last(state, matches);
    let prepared: Matches = |kind| matches!(kind, EventKind::TaskPrepared { .. });
    let released: Matches = |kind| matches!(kind, EventKind::GangReleased { .. });
    let first: Matches = |kind| matches!(kind, EventKind::CheckpointCommitted { step: 100, .. });
    let second: Matches = |kind| matches!(kind, EventKind::CheckpointCommitted { step: 200, .. });
    let (sound, _, _) = released_and_prepared();
    assert_eq!(audit(&sound), []);
    let plants = [
        ("a preparation is missing", prepared, missing),
        ("a preparation is recorded twice", prepared, twice),
        (
            "a preparation is recorded after the release",
            prepared,
            late,
        ),
        ("the release is missing", released, missing),
        ("the release is recorded twice", released, twice),
        ("a checkpoint is missing", second, missing),
        ("a checkpoint is recorded twice", second, twice),
        ("a checkpoint is recorded after a later one", first, late),
    ];
    for (what, matches, change) in plants {
        let mut planted = sound.clone();
        planted.events = change(&sound, matches);
        let findings = audit(&planted);
        assert!(
            findings
                .iter()
                .any(|finding| finding.rule == Rule::AttemptEvents),
            "{what}: {findings:#?}"
        );
    }
}

#[test]
fn gangs_whose_events_contradict_their_state() {
    let (mut state, train, pair) = released_and_prepared();
    attempt(&mut state, pair).tasks[1].phase = TaskPhase::Prepared;
    attempt(&mut state, train).barrier = None;
    let findings = audit(&state);
    for id in [train, pair] {
        let subject = format!("job {id} ");
        let is_of_it = |finding: &Finding| {
            finding.rule == Rule::AttemptEvents && finding.subject.starts_with(&subject)
        };
        assert!(findings.iter().any(is_of_it), "{findings:#?}");
    }
}

#[test]
fn an_attempt_that_continues_after_its_stop_order() {
    found(Rule::AttemptEvents, |state, train, _| {
        let cause = StopCause::new(StopReason::Cancelled, String::new());
        let stop = StopOrder::new(cause, state.time, 1);
        attempt(state, train).stop = Some(stop);
    });
}
