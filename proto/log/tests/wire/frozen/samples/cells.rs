//! Samples of the second version: queues with guarantees, cells, claims, allocation bases.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{
    Claim, EventGaps, EventLog, History, Purpose, Queue, State, StateParts, Unit,
};
use muster_model::command::{
    AllocationBasis, ClaimSpec, Command, ConfigCommand, Placement, StopReason, TaskPlacement,
    Victim,
};
use muster_model::event::{Event, EventKind};
use muster_model::host::HostClaim;
use muster_model::ids::{AttemptEpoch, HostId, JobId, Revision, TaskIndex, UnitId, UnitIndex};
use muster_model::quota::{
    Amounts, CellQuota, Guarantee, Limits, PinnedCell, QueueConfig, QueueOrder, QueueTree,
};
use muster_model::spec::{JobSpec, Layout, Packing, Scheduling, Within};
use muster_model::time::TimeMs;
use muster_model::topology::{CellGroup, CellId, CellPlace, GpuMask, HostShape, Level, Topology};

use crate::frozen::samples::{JOB, LEADER, REQUEST, gpu, placement, spec, stop};

const MODEL: &str = "NVIDIA H100 80GB HBM3";
const WAITING: JobId = JobId(30);

/// A specification in which nothing of the second version has its default.
fn spec_with_layout() -> JobSpec {
    let mut spec = spec();
    spec.groups[0].layout = Layout {
        count_min: Some(2),
        within: Some(Within {
            level: "socket".to_owned(),
            required: false,
        }),
        within_tasks: Some(2),
        gpus: vec![gpu(1), gpu(2)],
    };
    spec.scheduling = Scheduling {
        opportunistic: true,
        lazy_preemption: true,
        run_time_ms_max: Some(3_600_000),
        assembly_ms_max: Some(600_000),
        within: Some(Within {
            level: "rack".to_owned(),
            required: true,
        }),
        packing: Packing::Exclusive,
        hosts: vec!["node01".to_owned()],
        hosts_excluded: vec!["node02".to_owned()],
        pinned_cell: Some("vision-rack".to_owned()),
    };
    spec
}

fn tree() -> QueueTree {
    let vision = QueueConfig {
        weight: 3,
        order: QueueOrder::Fair,
        guarantee: Guarantee::Cells(vec![CellQuota {
            level: "rack".to_owned(),
            gpu_model: MODEL.to_owned(),
            gpus: 64,
            count: 2,
            pinned: vec![PinnedCell {
                name: "vision-rack".to_owned(),
                cell: "pod-1/rack-07".to_owned(),
            }],
        }]),
        limit: limits(),
        user_limit: limits(),
        borrow: false,
        preempt_by_priority: true,
        backfill: false,
        reserve_after_ms: 60_000,
        protected_ms: 300_000,
        movable: false,
        live_jobs_max: 500,
    };
    let production = QueueConfig {
        order: QueueOrder::Fifo,
        guarantee: Guarantee::Amounts(Amounts {
            gpus: 16,
            gpus_by_model: BTreeMap::from([(MODEL.to_owned(), 8)]),
            cpus_milli: 64_000,
            memory_mib: 65_536,
        }),
        ..QueueConfig::default()
    };
    QueueTree {
        queues: BTreeMap::from([
            ("production".to_owned(), production),
            ("research".to_owned(), QueueConfig::default()),
            ("research/vision".to_owned(), vision),
        ]),
        history_half_life_ms: Some(86_400_000),
        defragment: None,
    }
}

fn limits() -> Limits {
    Limits {
        gpus: Some(128),
        gpus_by_model: BTreeMap::from([(MODEL.to_owned(), 64)]),
        cpus_milli: Some(256_000),
        memory_mib: Some(1_048_576),
    }
}

fn topology() -> Topology {
    Topology {
        above: vec!["pod".to_owned(), "rack".to_owned()],
        inside: vec!["socket".to_owned()],
        places: vec![CellPlace {
            cell: vec!["pod-1".to_owned(), "rack-07".to_owned()],
            hosts: vec!["node1".to_owned()],
        }],
        shapes: vec![HostShape {
            gpu_model: MODEL.to_owned(),
            gpus: 2,
            hosts: vec!["node1".to_owned()],
            groups: vec![CellGroup {
                level: "socket".to_owned(),
                gpus: vec![0, 1],
            }],
        }],
    }
}

/// Every kind of cell.
fn on_cells() -> AllocationBasis {
    AllocationBasis::Cells(vec![
        CellId::Above("pod-1/rack-07".into()),
        CellId::Host(HostId(2)),
        CellId::Inside(HostId(1), Level(3), GpuMask(0b11 | 1 << 127)),
    ])
}

fn victim() -> Victim {
    Victim {
        job: JobId(20),
        unit: UnitIndex(0),
        epoch: AttemptEpoch(25),
    }
}

fn claimed_tasks() -> Arc<[TaskPlacement]> {
    [TaskPlacement {
        task: TaskIndex(0),
        host: HostId(1),
        gpus: vec![gpu(0)],
    }]
    .into()
}

fn claiming() -> ClaimSpec {
    ClaimSpec {
        leader: LEADER,
        job: JOB,
        unit: UnitIndex(0),
        tasks: claimed_tasks(),
        basis: AllocationBasis::Opportunistic,
        victims: vec![victim()],
        supersedes: vec![UnitId::new(JobId(40), UnitIndex(3))],
        expected_at: Some(TimeMs(9_000)),
        moving: None,
    }
}

fn placement_on_cells() -> Command {
    Command::Place(Placement {
        basis: on_cells(),
        ..placement()
    })
}

/// Commands of the second version, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let author = "grace".to_owned();
    vec![
        (
            "submit_job_with_layout",
            Command::SubmitJob {
                request: REQUEST,
                spec: Arc::new(spec_with_layout()),
            },
        ),
        ("place_on_cells", placement_on_cells()),
        ("stop_attempt_run_time", stop(StopReason::TimeLimit)),
        ("stop_attempt_assembly", stop(StopReason::AssemblyTimeout)),
        ("stop_attempt_moved", stop(StopReason::Defragmented)),
        (
            "configure_queues",
            Command::Config(ConfigCommand::ConfigureQueues {
                request: REQUEST,
                author: author.clone(),
                tree: Arc::new(tree()),
            }),
        ),
        (
            "set_topology",
            Command::Config(ConfigCommand::SetTopology {
                request: REQUEST,
                author,
                topology: Arc::new(topology()),
            }),
        ),
        ("claim", Command::Claim(claiming())),
        (
            "drop_claim",
            Command::DropClaim {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                reason: "it fits elsewhere".to_owned(),
            },
        ),
        (
            "set_standing",
            Command::SetAllocationBasis {
                leader: LEADER,
                job: JOB,
                unit: UnitIndex(0),
                epoch: AttemptEpoch(1_000_001),
                allocation_basis: on_cells(),
            },
        ),
    ]
}

/// One event of every kind of the second version.
pub(crate) fn kinds() -> Vec<EventKind> {
    let (job, unit, epoch) = (WAITING, UnitIndex(0), AttemptEpoch(25));
    vec![
        EventKind::QueuesConfigured {
            author: "grace".to_owned(),
            queues: vec!["production".to_owned(), "research/vision".to_owned()],
        },
        EventKind::TopologySet {
            author: "grace".to_owned(),
        },
        EventKind::UnitClaimed {
            job,
            unit,
            gpus: 1,
            victims: vec![victim()],
            expected_at: Some(TimeMs(9_000)),
        },
        EventKind::ClaimDropped {
            job,
            unit,
            reason: "host node1 is lost".to_owned(),
        },
        EventKind::AllocationBasisChanged {
            job,
            unit,
            epoch,
            allocation_basis: on_cells(),
        },
    ]
}

/// The first version's state with everything of the second.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.history_half_life_ms = Some(86_400_000);
    parts.configured_topology = Arc::new(topology());
    configure(&mut parts);
    claim(&mut parts);
    let events = kinds().into_iter().map(|kind| Event {
        revision: Revision(39),
        time: TimeMs(4_900),
        kind,
    });
    parts.events = EventLog::restore(
        Revision(38),
        EventGaps::default(),
        vec![(Revision(39), events.collect())],
    );
    State::restore(parts)
}

fn configure(parts: &mut StateParts) {
    for (name, config) in tree().queues {
        parts.queues.retain(|queue| *queue.name != *name);
        // A virtual cluster that is being removed: the cells still referenced by its work are bound to no
        // one.
        let retired = config.is_virtual_cluster();
        parts.queues.push(Queue {
            retired,
            ..Queue::configured(&name, Arc::new(config))
        });
    }
    let retired = Queue {
        retired: true,
        live_jobs: 2,
        history: History {
            gpu_ms: 123_456_789,
            as_of: TimeMs(4_000),
        },
        ..Queue::new("research/old")
    };
    parts.queues.push(retired);
}

/// The array's waiting task has a claim on the GPU of the gang's first task, which is allocated on cells.
fn claim(parts: &mut StateParts) {
    let claim = Claim {
        revision: Revision(38),
        since: TimeMs(4_800),
        tasks: claimed_tasks(),
        allocation_basis: on_cells(),
        victims: vec![victim()],
        expected_at: Some(TimeMs(9_000)),
        purpose: Purpose::Ordinary,
    };
    // The first state's jobs are the running gang and the waiting array.
    let unit = parts.jobs[1].units.get_mut(&UnitIndex(0));
    let unit: &mut Unit = Arc::make_mut(unit.expect("the array's first task has a history"));
    unit.claim = Some(Arc::new(claim));
    let unit = parts.jobs[0].units.get_mut(&UnitIndex(0));
    let attempt = Arc::make_mut(unit.expect("the gang has one unit"))
        .attempt
        .as_mut();
    Arc::make_mut(attempt.expect("the gang is running")).allocation_basis = on_cells();
    let host = &mut parts.hosts[0];
    host.gpus[0].claim = Some(UnitId::new(WAITING, UnitIndex(0)));
    host.claims = vec![HostClaim {
        job: WAITING,
        unit: UnitIndex(0),
        cpus_milli: 8_000,
        memory_mib: 65_536,
    }];
}
