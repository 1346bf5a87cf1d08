//! Arbitrary stored and sent values.

#[path = "claiming.rs"]
mod claiming;
#[path = "configuration.rs"]
mod configuration;
#[path = "container.rs"]
mod container;
#[path = "execution.rs"]
mod execution;
#[path = "layout.rs"]
mod layout;
#[path = "lifecycle.rs"]
mod lifecycle;

use std::collections::BTreeMap;
use std::sync::Arc;

use claiming::allocation_basis;
use execution::execution;
use layout::{layout, scheduling};
use lifecycle::lifecycle;
use muster_model::command::{
    Block, BlockTarget, CheckpointCommand, CheckpointCommit, Command, ConfigCommand, Exit,
    GpuDescription, GpuHealth, HostCommand, HostHealth, HostRegistration, JobDefaults,
    LastMeasurements, MemoryUsage, Placement, Planned, ReplicaRecord, SignalSender, StopReason,
    TaskOutcome, TaskPlacement, TaskReport,
};
use muster_model::desired::{
    CheckpointDuties, CheckpointRef, DesiredState, GangHost, RankInfo, RestartReason,
    StopInstruction, TaskAssignment,
};
use muster_model::heartbeat::{
    CheckpointReport, DamageReport, Heartbeat, TaskStatus, WorkerStatus, WorkerTaskPhase,
};
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, RequestId, RequestKey,
    Revision, TaskIndex, TaskKey, UnitIndex,
};
use muster_model::lifecycle::TaskPhase;
use muster_model::spec::{
    Execution, JobSpec, Layout, Lifecycle, Resources, RetryPolicy, Scheduling, TaskGroup,
};
use muster_model::time::TimeMs;
use muster_model::topology::{NamedCell, ReportedGpu, ReportedTopology};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::{access, health};

const MODEL: &str = "H100";

pub(crate) fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

pub(crate) fn gpu() -> impl Strategy<Value = GpuUuid> {
    any::<u128>().prop_map(GpuUuid)
}

pub(crate) fn request() -> impl Strategy<Value = RequestKey> {
    any::<(u128, u64)>().prop_map(|(id, fingerprint)| RequestKey {
        id: RequestId(id),
        fingerprint,
    })
}

pub(crate) fn leader() -> impl Strategy<Value = LeadershipEpoch> {
    // Small ones match the leader of a story, so that some commands take effect.
    prop_oneof![
        Just(LeadershipEpoch(1)),
        any::<u64>().prop_map(LeadershipEpoch)
    ]
}

fn job() -> impl Strategy<Value = JobId> {
    prop_oneof![(1..20u64).prop_map(JobId), any::<u64>().prop_map(JobId)]
}

pub(crate) fn host() -> impl Strategy<Value = HostId> {
    (0..6u32).prop_map(HostId)
}

fn unit() -> impl Strategy<Value = UnitIndex> {
    (0..4u32).prop_map(UnitIndex)
}

fn epoch() -> impl Strategy<Value = AttemptEpoch> {
    any::<u64>().prop_map(AttemptEpoch)
}

fn task() -> impl Strategy<Value = TaskIndex> {
    any::<u32>().prop_map(TaskIndex)
}

fn resources() -> impl Strategy<Value = Resources> {
    (any::<u32>(), vec(text(), 0..3), any::<u32>(), any::<u64>()).prop_map(
        |(gpus, gpu_models, cpus_milli, memory_mib)| Resources {
            gpus,
            gpu_models,
            cpus_milli,
            memory_mib,
        },
    )
}

fn group() -> impl Strategy<Value = TaskGroup> {
    let shape = (text(), any::<u32>(), resources(), vec(text(), 0..4));
    let rest = (
        option::of(text()),
        option::of(any::<u32>()),
        layout(),
        execution(),
    );
    (shape, texts(), rest).prop_map(|((name, count, resources, command), environment, rest)| {
        TaskGroup {
            name,
            count,
            resources,
            command,
            environment,
            working_directory: rest.0,
            tasks_per_host_max: rest.1,
            layout: rest.2,
            execution: rest.3,
        }
    })
}

/// Any specification, most of them invalid.
pub(crate) fn spec() -> impl Strategy<Value = JobSpec> {
    let names = (text(), text(), text(), any::<i32>(), any::<bool>());
    let numbers = (any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>());
    let asked = (scheduling(), lifecycle());
    (names, vec(group(), 0..3), numbers, texts(), asked).prop_map(
        |((name, user, queue, priority, gang), groups, numbers, labels, asked)| JobSpec {
            name,
            user,
            queue,
            priority,
            gang,
            groups,
            retry: RetryPolicy {
                retries_max: numbers.0,
                backoff_ms: numbers.1,
            },
            partition_grace_ms: numbers.2,
            stop_grace_ms: numbers.3,
            labels,
            scheduling: asked.0,
            lifecycle: asked.1,
        },
    )
}

/// A valid submission that may fit on the hosts of [`join`].
pub(crate) fn small_job() -> impl Strategy<Value = Command> {
    (
        request(),
        any::<bool>(),
        1..6u32,
        0..3u32,
        0..2u32,
        -2..3i32,
    )
        .prop_map(|(request, gang, count, gpus, retries_max, priority)| {
            let group = TaskGroup {
                name: "main".to_owned(),
                count,
                resources: Resources {
                    gpus,
                    gpu_models: Vec::new(),
                    cpus_milli: 1_000,
                    memory_mib: 1_024,
                },
                command: vec!["true".to_owned()],
                environment: BTreeMap::new(),
                working_directory: None,
                tasks_per_host_max: None,
                layout: Layout::default(),
                execution: Execution::default(),
            };
            let spec = JobSpec {
                name: "small".to_owned(),
                user: "ada".to_owned(),
                queue: "default".to_owned(),
                priority,
                gang,
                groups: vec![group],
                retry: RetryPolicy {
                    retries_max,
                    backoff_ms: 1_000,
                },
                partition_grace_ms: 45_000,
                stop_grace_ms: 30_000,
                labels: BTreeMap::new(),
                scheduling: Scheduling::default(),
                lifecycle: Lifecycle::default(),
            };
            Command::SubmitJob {
                request,
                spec: Arc::new(spec),
            }
        })
}

/// A host with eight GPUs that joins.
pub(crate) fn join(leader: LeadershipEpoch, number: u32) -> Command {
    let gpus = (0..8).map(|index| GpuDescription {
        uuid: GpuUuid(u128::from(number * 8 + index)),
        index,
        model: MODEL.to_owned(),
        memory_mib: 81_559,
    });
    Command::Host(HostCommand::RegisterHost {
        leader,
        registration: Arc::new(HostRegistration {
            reported: ReportedTopology::default(),
            name: format!("node{number}"),
            address: format!("10.0.0.{number}"),
            worker_id: RequestId(u128::from(number)),
            incarnation: 1,
            boot_id: "boot".to_owned(),
            gpus: gpus.collect(),
            cpus_milli: 64_000,
            memory_mib: 1 << 20,
            labels: BTreeMap::new(),
        }),
    })
}

/// Any registration.
pub(crate) fn registration() -> impl Strategy<Value = HostRegistration> {
    let described =
        (gpu(), any::<u32>(), text(), any::<u64>()).prop_map(|(uuid, index, model, memory_mib)| {
            GpuDescription {
                uuid,
                index,
                model,
                memory_mib,
            }
        });
    let names = (
        text(),
        text(),
        any::<u128>().prop_map(RequestId),
        any::<u64>(),
        text(),
    );
    let numbers = (any::<u32>(), any::<u64>());
    (names, vec(described, 0..4), numbers, texts(), reported()).prop_map(
        |((name, address, worker_id, incarnation, boot_id), gpus, numbers, labels, reported)| {
            HostRegistration {
                name,
                address,
                worker_id,
                incarnation,
                boot_id,
                gpus,
                cpus_milli: numbers.0,
                memory_mib: numbers.1,
                labels,
                reported,
            }
        },
    )
}

/// Topology of a host as reported by any worker.
fn reported() -> impl Strategy<Value = ReportedTopology> {
    let cell = (text(), text()).prop_map(|(level, name)| NamedCell { level, name });
    let place =
        (gpu(), text(), vec(text(), 0..3)).prop_map(|(uuid, pci_address, cells)| ReportedGpu {
            uuid,
            pci_address,
            cells,
        });
    (vec(cell, 0..3), vec(text(), 0..3), vec(place, 0..3)).prop_map(|(above, inside, gpus)| {
        ReportedTopology {
            above,
            inside,
            gpus,
        }
    })
}

fn gpu_health() -> impl Strategy<Value = GpuHealth> {
    prop_oneof![
        Just(GpuHealth::Healthy),
        (text(), text()).prop_map(|(signal, detail)| GpuHealth::Faulted { signal, detail }),
    ]
}

fn exit() -> impl Strategy<Value = Exit> {
    let flags = (any::<bool>(), any::<bool>());
    (
        option::of(any::<i32>()),
        option::of(any::<i32>()),
        flags,
        option::of(text()),
        details(),
    )
        .prop_map(|(code, signal, flags, start_error, details)| Exit {
            code,
            signal,
            out_of_memory: flags.0,
            lease_expired: flags.1,
            start_error,
            ..details
        })
}

/// Details of ends since the fourth version.
fn details() -> impl Strategy<Value = Exit> {
    let memory = (any::<u64>(), any::<u64>()).prop_map(|(limit_bytes, peak_bytes)| MemoryUsage {
        limit_bytes,
        peak_bytes,
    });
    let sender = prop_oneof![
        Just(SignalSender::Supervisor),
        Just(SignalSender::Kernel),
        Just(SignalSender::Other),
    ];
    let read = (
        option::of(any::<u16>()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    );
    let seen = read.prop_map(|(busy_permille, held_before_mib, step)| LastMeasurements {
        busy_permille,
        leftover_mib: held_before_mib,
        step,
    });
    let parts = (
        option::of(memory),
        option::of(sender),
        text(),
        option::of(seen),
    );
    parts.prop_map(|(memory, sender, evidence, last_seen)| Exit {
        memory,
        sender,
        evidence,
        last_measurements: last_seen.map(Box::new),
        ..Exit::default()
    })
}

/// Any outcome of a task.
pub(crate) fn outcome() -> impl Strategy<Value = TaskOutcome> {
    prop_oneof![
        Just(TaskOutcome::Started),
        exit().prop_map(TaskOutcome::Exited),
        text().prop_map(|detail| TaskOutcome::Gone { detail }),
        Just(TaskOutcome::Fenced),
        option::of(any::<u16>()).prop_map(|master_port| TaskOutcome::Prepared { master_port }),
    ]
}

/// With defaults, the hosts that could not start a task are remembered.
pub(crate) fn defaults() -> impl Strategy<Value = JobDefaults> {
    (any::<u32>(), 1..9u32, any::<u64>()).prop_map(
        |(attempts_without_progress_max, bad_checkpoints_max, restore_window_ms)| JobDefaults {
            attempts_without_progress_max,
            bad_checkpoints_max,
            restore_window_ms,
        },
    )
}

fn stop_reason() -> impl Strategy<Value = StopReason> {
    prop_oneof![
        Just(StopReason::Cancelled),
        Just(StopReason::MemberFailed),
        Just(StopReason::MemberLost),
        gpu().prop_map(|gpu| StopReason::GpuFault { gpu }),
        host().prop_map(|host| StopReason::Drain { host }),
        Just(StopReason::Preempted),
        Just(StopReason::TimeLimit),
        Just(StopReason::AssemblyTimeout),
        Just(StopReason::Defragmented),
        Just(StopReason::Suspended),
        Just(StopReason::NotSwapped),
    ]
}

fn target() -> impl Strategy<Value = BlockTarget> {
    prop_oneof![
        (0..6u32).prop_map(|number| BlockTarget::Host(format!("node{number}"))),
        (0..40u128).prop_map(|number| BlockTarget::Gpu(GpuUuid(number))),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let time = || option::of((0..100_000u64).prop_map(TimeMs));
    let names = ("[a-z]{1,8}", "[a-z]{1,8}", text());
    let planned = option::of((0..100_000u64, 0..100_000u64)).prop_map(|planned| {
        planned.map(|(at, notice_ms)| Planned {
            at: TimeMs(at),
            notice_ms,
        })
    });
    (names, any::<u64>(), time(), time(), planned).prop_map(
        |((reason, author, evidence), since, expires_at, drain_deadline, planned)| Block {
            reason,
            author,
            evidence,
            since: TimeMs(since),
            expires_at,
            drain_deadline,
            planned,
        },
    )
}

/// Any command.
pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        user_command(),
        host_command(),
        attempt_command(),
        configuration::command(),
        claiming::command(),
        health::command().prop_map(Command::Health),
        access::command().prop_map(Command::Access),
        (leader(), vec(replica(), 0..4))
            .prop_map(|(leader, replicas)| Command::RecordReplicas { leader, replicas }),
        (any::<u64>(), leader(), 0..3u8).prop_map(|(replica, leader, kind)| match kind {
            0 => Command::LeadershipStarted {
                replica: ReplicaId(replica)
            },
            1 => Command::ExpireBlocks { leader },
            _ => Command::Prune { leader },
        }),
    ]
}

fn replica() -> impl Strategy<Value = ReplicaRecord> {
    (any::<u64>(), text(), any::<bool>()).prop_map(|(id, address, votes)| ReplicaRecord {
        id: ReplicaId(id),
        address,
        votes,
    })
}

fn user_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (request(), spec()).prop_map(|(request, spec)| Command::SubmitJob {
            request,
            spec: Arc::new(spec),
        }),
        (request(), lifecycle::pipeline()).prop_map(|(request, pipeline)| {
            Command::SubmitPipeline {
                request,
                pipeline: Arc::new(pipeline),
            }
        }),
        (request(), job(), text(), text()).prop_map(|(request, job, author, reason)| {
            Command::SuspendJob {
                request,
                job,
                author,
                reason,
            }
        }),
        (request(), job(), text(), text()).prop_map(|(request, job, author, reason)| {
            Command::ResumeJob {
                request,
                job,
                author,
                reason,
            }
        }),
        (request(), job(), text(), text()).prop_map(|(request, job, author, reason)| {
            Command::CancelJob {
                request,
                job,
                author,
                reason,
            }
        }),
        (request(), target(), block(), any::<bool>()).prop_map(
            |(request, target, block, spares_last)| Command::Block {
                request,
                target,
                block,
                spares_last,
            }
        ),
        (request(), target(), text(), any::<bool>()).prop_map(
            |(request, target, author, planned)| Command::Unblock {
                request,
                target,
                author,
                planned,
            }
        ),
        (request(), text(), any::<u64>()).prop_map(|(request, name, live_jobs_max)| {
            Command::Config(ConfigCommand::SetQueue {
                request,
                name,
                live_jobs_max,
            })
        }),
    ]
}

fn host_command() -> impl Strategy<Value = Command> {
    let health = prop_oneof![
        Just(HostHealth::Up),
        Just(HostHealth::Suspect),
        Just(HostHealth::Lost)
    ];
    prop_oneof![
        (leader(), registration()).prop_map(|(leader, registration)| Command::Host(
            HostCommand::RegisterHost {
                leader,
                registration: Arc::new(registration),
            }
        )),
        (leader(), host(), health, any::<bool>()).prop_map(|(leader, host, health, one_way)| {
            Command::Host(HostCommand::SetHostHealth {
                leader,
                host,
                health,
                one_way,
            })
        }),
        (leader(), host(), 0..40u128, gpu_health()).prop_map(|(leader, host, gpu, health)| {
            Command::Host(HostCommand::SetGpuHealth {
                leader,
                host,
                gpu: GpuUuid(gpu),
                health,
            })
        }),
    ]
}

pub(crate) fn placed_tasks() -> impl Strategy<Value = Vec<TaskPlacement>> {
    let placed = (task(), host(), vec(gpu(), 0..9)).prop_map(|(task, host, gpus)| TaskPlacement {
        task,
        host,
        gpus,
    });
    vec(placed, 0..4)
}

fn attempt_command() -> impl Strategy<Value = Command> {
    let saved = (any::<u64>(), text(), option::of(any::<u64>()));
    let commit = (epoch(), any::<u64>(), text(), saved).prop_map(
        |(epoch, step, path, (size_bytes, digest, save_ms))| CheckpointCommit {
            epoch,
            step,
            path,
            size_bytes,
            digest,
            save_ms,
        },
    );
    prop_oneof![
        (
            leader(),
            job(),
            unit(),
            placed_tasks(),
            allocation_basis(),
            any::<bool>()
        )
            .prop_map(|(leader, job, unit, tasks, allocation_basis, barrier)| {
                Command::Place(Placement {
                    leader,
                    job,
                    unit,
                    tasks: tasks.into(),
                    basis: allocation_basis,
                    barrier,
                })
            }),
        (leader(), job(), unit(), epoch(), task(), outcome()).prop_map(
            |(leader, job, unit, epoch, task, outcome)| Command::ReportTask(TaskReport {
                leader,
                job,
                unit,
                epoch,
                task,
                outcome,
            })
        ),
        (leader(), job(), unit(), epoch()).prop_map(|(leader, job, unit, epoch)| {
            Command::ReleaseGang {
                leader,
                job,
                unit,
                epoch,
            }
        }),
        (leader(), job(), unit(), epoch(), stop_reason()).prop_map(
            |(leader, job, unit, epoch, reason)| Command::StopAttempt {
                leader,
                job,
                unit,
                epoch,
                reason,
            }
        ),
        (
            leader(),
            job(),
            unit(),
            epoch(),
            epoch(),
            any::<u64>(),
            text()
        )
            .prop_map(|(leader, job, unit, reporter, epoch, step, reason)| {
                Command::Checkpoint(CheckpointCommand::MarkCheckpointDamaged {
                    leader,
                    job,
                    unit,
                    reporter,
                    epoch,
                    step,
                    reason,
                })
            }),
        (leader(), job(), unit(), commit).prop_map(|(leader, job, unit, checkpoint)| {
            Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader,
                job,
                unit,
                checkpoint,
            })
        }),
    ]
}

fn checkpoint_report() -> impl Strategy<Value = CheckpointReport> {
    let save_ms = option::of(any::<u64>());
    (any::<u64>(), text(), any::<u64>(), text(), save_ms).prop_map(
        |(step, path, size_bytes, digest, save_ms)| CheckpointReport {
            step,
            path,
            size_bytes,
            digest,
            save_ms,
        },
    )
}

fn task_status() -> impl Strategy<Value = TaskStatus> {
    let phase = prop_oneof![
        Just(WorkerTaskPhase::Starting),
        Just(WorkerTaskPhase::Running),
        Just(WorkerTaskPhase::Stopping),
        exit().prop_map(WorkerTaskPhase::Exited),
        text().prop_map(|detail| WorkerTaskPhase::Gone { detail }),
        option::of(any::<u16>()).prop_map(|master_port| WorkerTaskPhase::Prepared { master_port }),
    ];
    let checkpoints = vec(checkpoint_report(), 0..4);
    let damage = (any::<u64>(), text()).prop_map(|(step, reason)| DamageReport { step, reason });
    let reports = (checkpoints, option::of(any::<u64>()), vec(damage, 0..4));
    (job(), task(), unit(), epoch(), phase, reports).prop_map(
        |(job, task, unit, epoch, phase, reports)| TaskStatus {
            key: TaskKey { job, task },
            unit,
            epoch,
            phase,
            checkpoints: reports.0,
            progress_step: reports.1,
            damaged: reports.2,
        },
    )
}

/// Any heartbeat.
pub(crate) fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let status = (vec(task_status(), 0..4), vec((gpu(), gpu_health()), 0..4))
        .prop_map(|(tasks, gpus)| (tasks, gpus));
    let health = (vec(health::finding(), 0..3), vec(health::work_done(), 0..3));
    let status =
        (status, health).prop_map(|((tasks, gpus), (findings, health_work))| WorkerStatus {
            tasks,
            gpus,
            findings,
            health_work,
        });
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    (numbers, leader(), option::of(status)).prop_map(|(numbers, leader, status)| Heartbeat {
        sequence: numbers.0,
        acknowledged: numbers.1,
        leader,
        desired_revision: Revision(numbers.2),
        status,
    })
}

fn rank() -> impl Strategy<Value = RankInfo> {
    let master = (text(), any::<u16>(), any::<bool>());
    (any::<[u32; 5]>(), master).prop_map(|(numbers, (master_address, master_port, awaits_port))| {
        RankInfo {
            rank: numbers[0],
            world_size: numbers[1],
            local_rank: numbers[2],
            node_rank: numbers[3],
            nodes: numbers[4],
            master_address,
            master_port,
            awaits_port,
        }
    })
}

fn assignment() -> impl Strategy<Value = TaskAssignment> {
    let reason = prop_oneof![
        Just(RestartReason::First),
        Just(RestartReason::Preempt),
        Just(RestartReason::Infra),
        Just(RestartReason::User),
        Just(RestartReason::Admin),
    ];
    let phase = prop_oneof![
        Just(TaskPhase::Assigned),
        Just(TaskPhase::Prepared),
        Just(TaskPhase::Running),
        Just(TaskPhase::Exited),
        Just(TaskPhase::Gone),
        Just(TaskPhase::Fenced),
    ];
    let identity = (job(), task(), unit(), epoch(), any::<u32>(), reason, phase);
    let program = (
        vec(text(), 0..4),
        texts(),
        option::of(text()),
        vec(gpu(), 0..4),
        text(),
    );
    let checkpoint = (any::<u64>(), text()).prop_map(|(step, path)| CheckpointRef { step, path });
    let stop =
        (text(), any::<u64>()).prop_map(|(reason, grace_ms)| StopInstruction { reason, grace_ms });
    let numbers = (any::<u32>(), any::<[u64; 3]>());
    let gang = (
        any::<bool>(),
        any::<bool>(),
        vec(gang_host(), 0..3),
        any::<bool>(),
    );
    let warning = option::of(lifecycle::warning());
    let removal = (any::<u64>(), text()).prop_map(|(step, path)| CheckpointRef { step, path });
    let care = (
        vec(removal, 0..3),
        vec(text(), 0..3),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    )
        .prop_map(
            |(removals, kept, interval_ms, mean_time_ms)| CheckpointDuties {
                removals,
                kept,
                interval_ms,
                mean_time_ms,
            },
        );
    let rest = (
        rank(),
        option::of(checkpoint),
        option::of(stop),
        numbers,
        gang,
        execution(),
        warning,
        care,
    );
    (identity, program, rest).prop_map(|(identity, program, rest)| TaskAssignment {
        key: TaskKey {
            job: identity.0,
            task: identity.1,
        },
        unit: identity.2,
        epoch: identity.3,
        attempt: identity.4,
        restart_reason: identity.5,
        acknowledged: identity.6,
        command: program.0,
        environment: program.1,
        working_directory: program.2,
        gpus: program.3,
        rank: rest.0,
        checkpoint: rest.1,
        stop: rest.2,
        cpus_milli: rest.3.0,
        memory_mib: rest.3.1[0],
        stop_grace_ms: rest.3.1[1],
        partition_grace_ms: rest.3.1[2],
        barrier: rest.4.0,
        released: rest.4.1,
        suspended: rest.4.3,
        gang_hosts: rest.4.2,
        execution: rest.5,
        warning: rest.6,
        checkpoint_duties: rest.7,
        user: program.4,
    })
}

fn gang_host() -> impl Strategy<Value = GangHost> {
    (text(), any::<u32>()).prop_map(|(address, slots)| GangHost { address, slots })
}

/// Any desired state.
pub(crate) fn desired() -> impl Strategy<Value = DesiredState> {
    let tasks = vec(assignment(), 0..4);
    (leader(), any::<u64>(), host(), tasks, health::duties()).prop_map(
        |(leader, revision, host, tasks, health)| DesiredState {
            health,
            leader,
            revision: Revision(revision),
            host,
            tasks,
        },
    )
}
