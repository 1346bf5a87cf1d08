//! One sample of every stored value: the sources of the frozen bytes.
//!
//! Never change a sample: its bytes are on users' disks. Add new ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::{
    AllocationBasis, Block, BlockTarget, CheckpointCommand, CheckpointCommit, Command,
    ConfigCommand, Exit, GpuDescription, GpuHealth, HostCommand, HostHealth, HostRegistration,
    Placement, Planned, StopCause, StopReason, TaskOutcome, TaskPlacement, TaskReport,
};
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, RequestId, RequestKey,
    TaskIndex, UnitIndex,
};
use muster_model::spec::{
    Execution, JobSpec, Layout, Lifecycle, Resources, RetryPolicy, Scheduling, TaskGroup,
};
use muster_model::time::TimeMs;
use muster_model::topology::ReportedTopology;

pub(crate) mod access;
pub(crate) mod barrier;
pub(crate) mod causes;
pub(crate) mod cells;
pub(crate) mod containers;
pub(crate) mod health;
pub(crate) mod histories;
pub(crate) mod lives;
pub(crate) mod members;
pub(crate) mod moves;
pub(crate) mod replicas;
pub(crate) mod reported;
pub(crate) mod retries;
pub(crate) mod silence;
pub(crate) mod state;
pub(crate) mod suspension;

/// A GPU UUID that is easy to find in a dump.
pub(crate) const fn gpu(number: u128) -> GpuUuid {
    GpuUuid(0x0123_4567_89ab_cdef_0011_2233_4455_6600 + number)
}

/// The request of all samples.
pub(crate) const REQUEST: RequestKey = RequestKey {
    id: RequestId(0xfeed_0000_0000_0000_0000_0000_0000_0001),
    fingerprint: 0xdead_beef_0000_0000,
};
pub(crate) const LEADER: LeadershipEpoch = LeadershipEpoch(300);
pub(crate) const JOB: JobId = JobId(1_000_000);

/// A specification in which no field of the first version has its default.
pub(crate) fn spec() -> JobSpec {
    let trainer = TaskGroup {
        name: "trainer".to_owned(),
        count: 4,
        resources: Resources {
            gpus: 2,
            gpu_models: vec!["NVIDIA H100 80GB HBM3".to_owned()],
            cpus_milli: 8_000,
            memory_mib: 65_536,
        },
        command: vec!["python".to_owned(), "train.py".to_owned()],
        environment: BTreeMap::from([("EPOCHS".to_owned(), "3".to_owned())]),
        working_directory: Some("/data/run".to_owned()),
        tasks_per_host_max: Some(2),
        layout: Layout::default(),
        execution: Execution::default(),
    };
    let logger = TaskGroup {
        name: "logger".to_owned(),
        count: 1,
        resources: Resources::default(),
        command: vec!["tail".to_owned()],
        environment: BTreeMap::new(),
        working_directory: None,
        tasks_per_host_max: None,
        layout: Layout::default(),
        execution: Execution::default(),
    };
    JobSpec {
        name: "résumé-7b".to_owned(),
        user: "ada".to_owned(),
        queue: "research".to_owned(),
        priority: -5,
        gang: true,
        groups: vec![trainer, logger],
        retry: RetryPolicy {
            retries_max: 3,
            backoff_ms: 1_500,
        },
        partition_grace_ms: 120_000,
        stop_grace_ms: 45_000,
        labels: BTreeMap::from([("team".to_owned(), "vision".to_owned())]),
        scheduling: Scheduling::default(),
        lifecycle: Lifecycle::default(),
    }
}

/// A block with every field.
pub(crate) fn block() -> Block {
    Block {
        reason: "fan is noisy".to_owned(),
        author: "rule:thermal".to_owned(),
        evidence: "94 C for 60 s".to_owned(),
        since: TimeMs(1_790_000_000_000),
        expires_at: Some(TimeMs(1_790_000_600_000)),
        drain_deadline: Some(TimeMs(1_790_000_060_000)),
        planned: None,
    }
}

/// A block that is planned ahead.
pub(crate) fn planned_block() -> Block {
    Block {
        planned: Some(Planned {
            at: TimeMs(1_790_000_050_000),
            notice_ms: 3_600_000,
        }),
        ..block()
    }
}

/// An exit with every field.
pub(crate) fn exit() -> Exit {
    Exit {
        code: Some(-1),
        signal: Some(9),
        out_of_memory: true,
        lease_expired: true,
        start_error: Some("no such file".to_owned()),
        ..Exit::default()
    }
}

/// A fault with every field.
pub(crate) fn fault() -> GpuHealth {
    GpuHealth::Faulted {
        signal: "xid-79".to_owned(),
        detail: "fell off the bus".to_owned(),
    }
}

fn registration() -> HostRegistration {
    HostRegistration {
        name: "node01".to_owned(),
        address: "10.0.0.1".to_owned(),
        worker_id: RequestId(7),
        incarnation: 3,
        boot_id: "boot-a".to_owned(),
        gpus: vec![GpuDescription {
            uuid: gpu(1),
            index: 0,
            model: "NVIDIA H100 80GB HBM3".to_owned(),
            memory_mib: 81_559,
        }],
        cpus_milli: 96_000,
        memory_mib: 1_048_576,
        labels: BTreeMap::from([("rack".to_owned(), "r1".to_owned())]),
        reported: ReportedTopology::default(),
    }
}

pub(crate) fn placement() -> Placement {
    let tasks = (0..2).map(|task| TaskPlacement {
        task: TaskIndex(task),
        host: HostId(task + 1),
        gpus: vec![gpu(2 * u128::from(task)), gpu(2 * u128::from(task) + 1)],
    });
    Placement {
        leader: LEADER,
        job: JOB,
        unit: UnitIndex(0),
        tasks: tasks.collect(),
        basis: AllocationBasis::Share,
        barrier: false,
    }
}

fn report(outcome: TaskOutcome) -> Command {
    Command::ReportTask(TaskReport {
        leader: LEADER,
        job: JOB,
        unit: UnitIndex(9),
        epoch: AttemptEpoch(1_000_001),
        task: TaskIndex(9),
        outcome,
    })
}

/// A cause with only a reason.
pub(crate) const fn because(reason: StopReason) -> StopCause {
    StopCause::new(reason, String::new())
}

pub(crate) fn stop(reason: StopReason) -> Command {
    Command::StopAttempt {
        leader: LEADER,
        job: JOB,
        unit: UnitIndex(9),
        epoch: AttemptEpoch(1_000_001),
        reason,
    }
}

/// Every command in every shape, under the name of its file.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let gone = TaskOutcome::Gone {
        detail: "host rebooted".to_owned(),
    };
    let mut commands = vec![
        ("place", Command::Place(placement())),
        ("report_task_started", report(TaskOutcome::Started)),
        ("report_task_exited", report(TaskOutcome::Exited(exit()))),
        ("report_task_gone", report(gone)),
        ("report_task_fenced", report(TaskOutcome::Fenced)),
        ("stop_attempt_cancelled", stop(StopReason::Cancelled)),
        ("stop_attempt_member_failed", stop(StopReason::MemberFailed)),
        ("stop_attempt_member_lost", stop(StopReason::MemberLost)),
        (
            "stop_attempt_gpu_fault",
            stop(StopReason::GpuFault { gpu: gpu(1) }),
        ),
        (
            "stop_attempt_drain",
            stop(StopReason::Drain { host: HostId(2) }),
        ),
        ("stop_attempt_preempted", stop(StopReason::Preempted)),
    ];
    commands.extend(user_commands());
    commands.extend(leader_commands());
    commands.extend(cells::commands());
    commands.extend(moves::commands());
    commands.extend(reported::commands());
    commands.extend(lives::commands());
    commands.push(containers::command());
    commands.extend(barrier::commands());
    commands.extend(suspension::commands());
    commands.extend(members::commands());
    commands.extend(health::commands());
    commands.extend(retries::commands());
    commands.push(silence::command());
    commands.push(replicas::command());
    commands.extend(access::commands());
    commands
}

fn user_commands() -> Vec<(&'static str, Command)> {
    let author = "grace".to_owned();
    vec![
        (
            "submit_job",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(spec()),
            },
        ),
        (
            "cancel_job",
            Command::CancelJob {
                request: REQUEST,
                job: JOB,
                author: author.clone(),
                reason: "wrong data".to_owned(),
            },
        ),
        (
            "block_host",
            Command::Block {
                request: REQUEST,
                target: BlockTarget::Host("node01".to_owned()),
                block: block(),
                spares_last: false,
            },
        ),
        (
            "block_host_unless_last",
            Command::Block {
                request: REQUEST,
                target: BlockTarget::Host("node01".to_owned()),
                block: block(),
                spares_last: true,
            },
        ),
        (
            "block_host_planned",
            Command::Block {
                request: REQUEST,
                target: BlockTarget::Host("node01".to_owned()),
                block: planned_block(),
                spares_last: false,
            },
        ),
        (
            "unblock_gpu",
            Command::Unblock {
                request: REQUEST,
                target: BlockTarget::Gpu(gpu(1)),
                author: author.clone(),
                planned: false,
            },
        ),
        (
            "unblock_host_planned",
            Command::Unblock {
                request: REQUEST,
                target: BlockTarget::Host("node01".to_owned()),
                author,
                planned: true,
            },
        ),
        (
            "set_queue",
            Command::Config(ConfigCommand::SetQueue {
                request: REQUEST,
                name: "research".to_owned(),
                live_jobs_max: 500,
            }),
        ),
    ]
}

fn leader_commands() -> Vec<(&'static str, Command)> {
    vec![
        (
            "leadership_started",
            Command::LeadershipStarted {
                replica: ReplicaId(2),
            },
        ),
        (
            "register_host",
            Command::Host(HostCommand::RegisterHost {
                leader: LEADER,
                registration: Arc::new(registration()),
            }),
        ),
        (
            "set_host_health",
            Command::Host(HostCommand::SetHostHealth {
                leader: LEADER,
                host: HostId(1),
                health: HostHealth::Suspect,
                one_way: false,
            }),
        ),
        (
            "set_gpu_health_healthy",
            Command::Host(HostCommand::SetGpuHealth {
                leader: LEADER,
                host: HostId(1),
                gpu: gpu(1),
                health: GpuHealth::Healthy,
            }),
        ),
        (
            "set_gpu_health_faulted",
            Command::Host(HostCommand::SetGpuHealth {
                leader: LEADER,
                host: HostId(1),
                gpu: gpu(1),
                health: fault(),
            }),
        ),
        ("expire_blocks", Command::ExpireBlocks { leader: LEADER }),
        (
            "commit_checkpoint",
            Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                checkpoint: CheckpointCommit {
                    epoch: AttemptEpoch(1_000_001),
                    step: 4_000,
                    path: "/data/run/step_4000".to_owned(),
                    size_bytes: 14_000_000_000,
                    digest: "xxh3:00ff".to_owned(),
                    save_ms: None,
                },
            }),
        ),
        ("prune", Command::Prune { leader: LEADER }),
    ]
}
