//! The audit finds what it is there to find: each planted corruption, by its rule.

use std::sync::Arc;

use muster_core::audit::{Rule, audit};
use muster_core::command::{GpuHealth, HostHealth, Standing, StopReason};
use muster_core::event::{Event, EventKind};
use muster_core::ids::{AttemptEpoch, HostId, JobId, LeadershipEpoch, Revision, UnitIndex};
use muster_core::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use muster_core::state::{Attempt, EventLog, Host, Job, Queue, Removal, State, StopOrder, Unit};
use muster_core::testing::{Cluster, gang, single};
use muster_core::topology::CellId;

/// A running gang on hosts 1 and 2, a placed array with a waiting rest, a finished job.
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
fn work_that_nobody_sees() {
    found(Rule::Limbo, |state, _, _| state.index.waiting.clear());
    found(Rule::Limbo, |state, _, sweep| {
        unit(state, sweep).attempt = None;
    });
    found(Rule::Limbo, |state, _, sweep| {
        job(state, sweep).requeued.clear();
        job(state, sweep).first_untouched = UnitIndex(0);
    });
    found(Rule::Limbo, |state, train, _| {
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
fn claims_that_nobody_made() {
    found(Rule::Claims, |state, train, _| {
        host(state, 3).gpus[0].claim = Some((train, UnitIndex(0)));
    });
    found(Rule::Claims, |state, train, _| {
        attempt(state, train).standing = Standing::Cells(vec![CellId::Host(HostId(1))]);
    });
    found(Rule::QueueUsage, |state, train, _| {
        attempt(state, train).standing = Standing::Opportunistic;
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
fn an_index_that_offers_what_is_out() {
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
    found(Rule::Derived, |state, _, _| state.index.on_host.clear());
    found(Rule::Derived, |state, _, _| state.index.finished.clear());
}

#[test]
fn names_that_lead_nowhere() {
    found(Rule::Identity, |state, _, _| state.host_names.clear());
    found(Rule::Identity, |state, _, _| state.gpu_hosts.clear());
    found(Rule::Identity, |state, _, _| state.revision = Revision(3));
}

#[test]
fn rows_that_are_too_long() {
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

/// The events without those that match, or with each of them twice.
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
    EventLog::restore(state.events.compacted(), revisions.collect())
}

#[test]
fn an_attempt_whose_events_are_missing_or_told_twice() {
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

#[test]
fn an_attempt_that_goes_on_although_it_was_told_to_stop() {
    found(Rule::AttemptEvents, |state, train, _| {
        let stop = StopOrder {
            reason: StopReason::Cancelled,
            at: state.time,
            grace_ms: 1,
        };
        attempt(state, train).stop = Some(stop);
    });
}
