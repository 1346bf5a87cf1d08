//! A state in which nothing is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{
    Answer, Attempt, EventGaps, EventLog, HealthRules, Job, Leadership, PastAttempt, Queue,
    Reliability, State, StateParts, StoredAnswer, TaskRun, Unit,
};
use muster_health::state::HealthState;
use muster_model::command::{AllocationBasis, BlockTarget, GpuHealth, HostHealth, StopReason};
use muster_model::desired::RestartReason;
use muster_model::event::{Event, EventKind};
use muster_model::host::{Gpu, Holder, Host};
use muster_model::ids::{
    AttemptEpoch, HostId, JobId, LeadershipEpoch, ReplicaId, RequestId, Revision, TaskIndex,
    UnitIndex,
};
use muster_model::job::{CancelRequest, Checkpoint, Ledger, StopOrder, UnitCounts};
use muster_model::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use muster_model::time::TimeMs;

use crate::frozen::samples::{REQUEST, because, block, exit, fault, gpu, spec};

const JOB: JobId = JobId(20);
const EPOCH: AttemptEpoch = AttemptEpoch(25);

/// The state of the frozen snapshot.
pub(crate) fn state() -> State {
    State::restore(parts())
}

/// Parts of the frozen snapshot's state.
pub(crate) fn parts() -> StateParts {
    StateParts {
        revision: Revision(40),
        time: TimeMs(5_000),
        leadership: Leadership {
            replica: ReplicaId(2),
            epoch: LeadershipEpoch(3),
            since: TimeMs(100),
        },
        recovery: None,
        replicas: Arc::default(),
        jobs: vec![running_job(), array_job()],
        hosts: vec![host(HostId(1), 0), host(HostId(2), 2)],
        queues: vec![queue("default", 0), queue("research", 2)],
        requests: answers(),
        events: EventLog::restore(Revision(6), EventGaps::default(), events()),
        history_half_life_ms: None,
        defragment: None,
        job_defaults: None,
        reliability: Reliability::default(),
        ledger: Ledger::default(),
        health: HealthState::default(),
        health_rules: HealthRules::default(),
        configured_topology: Arc::default(),
        users: Vec::new(),
        join_tokens: Vec::new(),
    }
}

fn queue(name: &str, live_jobs: u64) -> Queue {
    Queue {
        live_jobs,
        ..Queue::new(name)
    }
}

fn host(id: HostId, first_gpu: u128) -> Host {
    Host {
        on_probation: false,
        no_gangs: false,
        id,
        name: format!("node{id}").into(),
        address: format!("10.0.0.{id}"),
        worker_id: RequestId(70 + u128::from(id.get())),
        incarnation: 3,
        boot_id: "boot-a".to_owned(),
        health: HostHealth::Up,
        health_since: TimeMs(200),
        one_way: false,
        block: (id.get() == 2).then(block),
        planned: None,
        gpus: vec![
            sample_gpu(first_gpu, Some(TaskIndex(id.get() - 1))),
            sample_gpu(first_gpu + 1, None),
        ],
        cpus_milli: 96_000,
        memory_mib: 1_048_576,
        cpus_milli_used: 8_000,
        memory_mib_used: 65_536,
        labels: BTreeMap::from([("rack".to_owned(), "r1".to_owned())]),
        registered_at: TimeMs(150),
        desired_revision: Revision(25),
        claims: Vec::new(),
        reported_topology: Arc::default(),
    }
}

fn sample_gpu(number: u128, task: Option<TaskIndex>) -> Gpu {
    Gpu {
        uuid: gpu(number),
        index: u32::from(task.is_none()),
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_mib: 81_559,
        health: if task.is_some() {
            GpuHealth::Healthy
        } else {
            fault()
        },
        health_since: TimeMs(210),
        block: task.is_none().then(block),
        holder: task.map(|task| Holder {
            job: JOB,
            unit: UnitIndex(0),
            epoch: EPOCH,
            task,
        }),
        claim: None,
    }
}

/// A gang in its second attempt, of which one task has ended.
fn running_job() -> Job {
    let unit = Unit {
        phase: UnitPhase::Stopping,
        attempts: 2,
        failures: 1,
        not_before: TimeMs(900),
        restart_reason: RestartReason::Infra,
        attempt: Some(Arc::new(attempt())),
        claim: None,
        past: vec![past()],
        moved_at: None,
        local_retries: 0,
        swaps: 0,
        without_progress: 0,
        removals: Vec::new(),
        checkpoints: vec![Checkpoint {
            epoch: AttemptEpoch(21),
            step: 4_000,
            path: "/data/run/step_4000".to_owned(),
            size_bytes: 14_000_000_000,
            digest: "xxh3:00ff".to_owned(),
            committed_at: TimeMs(2_500),
            save_ms: None,
            damaged: None,
            damaged_by: None,
        }],
    };
    Job {
        id: JOB,
        spec: Arc::new(spec()),
        submitted_at: TimeMs(1_000),
        phase: JobPhase::Cancelling,
        finished_at: None,
        finish_reason: String::new(),
        cancel: Some(CancelRequest {
            author: "grace".to_owned(),
            reason: "wrong data".to_owned(),
            at: TimeMs(4_000),
        }),
        suspension: None,
        units: [(UnitIndex(0), Arc::new(unit))].into_iter().collect(),
        pipeline: None,
        first_untouched: UnitIndex(1),
        requeued: imbl::OrdSet::new(),
        counts: UnitCounts {
            stopping: 1,
            ..UnitCounts::default()
        },
        ledger: Ledger::default(),
    }
}

fn attempt() -> Attempt {
    let task = |index: u32, phase, exit| TaskRun {
        task: TaskIndex(index),
        host: HostId(index + 1),
        gpus: vec![gpu(2 * u128::from(index))],
        phase,
        exit,
    };
    Attempt {
        epoch: EPOCH,
        leader: LeadershipEpoch(3),
        number: 2,
        placed_at: TimeMs(3_000),
        running_at: Some(TimeMs(3_100)),
        stop: Some(StopOrder::new(
            because(StopReason::GpuFault { gpu: gpu(1) }),
            TimeMs(4_000),
            45_000,
        )),
        tasks: vec![
            task(0, TaskPhase::Running, None),
            task(1, TaskPhase::Exited, Some(exit())),
        ],
        decisive: Some(TaskIndex(1)),
        allocation_basis: AllocationBasis::Share,
        barrier: None,
        membership: None,
        pauses: Vec::new(),
    }
}

fn past() -> PastAttempt {
    PastAttempt {
        epoch: AttemptEpoch(21),
        number: 1,
        placed_at: TimeMs(1_100),
        running_at: Some(TimeMs(1_200)),
        ended_at: TimeMs(2_900),
        detail: "host node2 was lost".to_owned(),
        exit: Some(exit()),
        hosts: vec![HostId(2), HostId(1)],
        culprit: None,
        attribution: None,
        gpus: Vec::new(),
        members: Vec::new(),
    }
}

/// An array with one requeued task; most have no history.
fn array_job() -> Job {
    let mut spec = spec();
    spec.gang = false;
    spec.groups[0].count = 100_000;
    let unit = Unit {
        attempts: 1,
        not_before: TimeMs(9_000),
        restart_reason: RestartReason::User,
        ..Unit::default()
    };
    Job {
        id: JobId(30),
        spec: Arc::new(spec),
        submitted_at: TimeMs(1_000),
        phase: JobPhase::Queued,
        finished_at: None,
        finish_reason: "exit code 1 of task 0".to_owned(),
        cancel: None,
        suspension: None,
        units: [(UnitIndex(0), Arc::new(unit))].into_iter().collect(),
        pipeline: None,
        first_untouched: UnitIndex(1),
        requeued: [UnitIndex(0)].into_iter().collect(),
        counts: UnitCounts {
            waiting: 100_001,
            ..UnitCounts::default()
        },
        ledger: Ledger::default(),
    }
}

fn answers() -> Vec<(RequestId, StoredAnswer)> {
    let answers = [
        Answer::Done,
        Answer::Began,
        Answer::Job(JOB),
        Answer::Host(HostId(1)),
        Answer::Count(12),
    ];
    let stored = answers.into_iter().zip(0u64..).map(|(answer, position)| {
        let id = RequestId(REQUEST.id.0 + u128::from(position));
        let stored = StoredAnswer {
            revision: Revision(20 + position),
            at: TimeMs(1_000 + position),
            fingerprint: REQUEST.fingerprint + position,
            answer,
        };
        (id, stored)
    });
    stored.collect()
}

/// Every kind of event of the first version, two revisions of several each.
fn events() -> Vec<(Revision, Arc<[Event]>)> {
    let kinds = kinds();
    let half = kinds.len() / 2;
    let revision = |number: u64, kinds: &[EventKind]| {
        let events = kinds.iter().map(|kind| Event {
            revision: Revision(number),
            time: TimeMs(number * 100),
            kind: kind.clone(),
        });
        (Revision(number), events.collect())
    };
    vec![revision(7, &kinds[..half]), revision(9, &kinds[half..])]
}

/// One event of every kind.
pub(crate) fn all_kinds() -> Vec<EventKind> {
    let mut kinds = kinds();
    kinds.extend(super::cells::kinds());
    kinds.extend(super::moves::kinds());
    kinds.extend(super::reported::kinds());
    kinds.extend(super::lives::kinds());
    kinds.extend(super::barrier::kinds());
    kinds.extend(super::suspension::kinds());
    kinds.extend(super::members::kinds());
    kinds.extend(super::health::kinds());
    kinds.extend(super::retries::kinds());
    kinds.push(super::replicas::kind());
    kinds.extend(super::access::kinds());
    kinds
}

/// One event of every kind of the first version.
fn kinds() -> Vec<EventKind> {
    let mut kinds = job_kinds();
    kinds.extend(task_kinds());
    kinds.extend(cluster_kinds());
    kinds
}

fn job_kinds() -> Vec<EventKind> {
    let (job, unit, epoch) = (JOB, UnitIndex(0), EPOCH);
    vec![
        EventKind::JobSubmitted {
            job,
            name: "résumé-7b".to_owned(),
            user: "ada".to_owned(),
            queue: "research".to_owned(),
        },
        EventKind::JobCancelRequested {
            job,
            author: "grace".to_owned(),
            reason: "wrong data".to_owned(),
        },
        EventKind::JobFinished {
            job,
            phase: JobPhase::Failed,
            reason: "exit code 1 of task 0".to_owned(),
        },
        EventKind::JobPruned { job },
        EventKind::AttemptPlaced {
            job,
            unit,
            epoch,
            number: 2,
            hosts: vec![HostId(1), HostId(2)],
            gpus: 2,
            resumes_step: None,
        },
        EventKind::AttemptRunning { job, unit, epoch },
        EventKind::AttemptStopping {
            job,
            unit,
            epoch,
            cause: because(StopReason::Drain { host: HostId(2) }),
        },
        EventKind::AttemptEnded {
            job,
            unit,
            epoch,
            hosts: vec![HostId(1)],
            detail: "succeeded".to_owned(),
            attribution: None,
        },
        EventKind::UnitRequeued {
            job,
            unit,
            reason: RestartReason::Preempt,
            not_before: TimeMs(9_000),
        },
        EventKind::CheckpointCommitted {
            job,
            unit,
            epoch,
            step: 4_000,
            path: "/data/run/step_4000".to_owned(),
            size_bytes: 14_000_000_000,
        },
    ]
}

fn task_kinds() -> Vec<EventKind> {
    let (job, unit, epoch) = (JOB, UnitIndex(0), EPOCH);
    let (task, host) = (TaskIndex(1), HostId(2));
    vec![
        EventKind::TaskStarted {
            job,
            unit,
            epoch,
            task,
            host,
        },
        EventKind::TaskExited {
            job,
            unit,
            epoch,
            task,
            host,
            exit: exit(),
        },
        EventKind::TaskLost {
            job,
            unit,
            epoch,
            task,
            host,
            detail: "lease ran out".to_owned(),
        },
    ]
}

fn cluster_kinds() -> Vec<EventKind> {
    let target = BlockTarget::Gpu(gpu(1));
    vec![
        EventKind::LeadershipStarted {
            replica: ReplicaId(2),
            epoch: LeadershipEpoch(3),
        },
        EventKind::HostRegistered {
            host: HostId(1),
            name: "node1".to_owned(),
            gpus: 8,
        },
        EventKind::HostHealthChanged {
            host: HostId(1),
            name: "node1".to_owned(),
            health: HostHealth::Lost,
            one_way: false,
        },
        EventKind::GpuHealthChanged {
            gpu: gpu(1),
            host: HostId(1),
            host_name: "node1".to_owned(),
            health: fault(),
        },
        EventKind::Blocked {
            target: target.clone(),
            block: block(),
        },
        EventKind::Unblocked {
            target,
            author: "expiry".to_owned(),
        },
        EventKind::QueueSet {
            name: "research".to_owned(),
        },
    ]
}
