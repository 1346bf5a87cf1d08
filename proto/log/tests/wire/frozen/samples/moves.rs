//! Moves that defragment: the claim that orders them, their configuration, and a moving unit.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{Claim, EventGaps, EventLog, Purpose, Queue, State, Unit};
use muster_model::command::{
    AllocationBasis, ClaimSpec, Command, ConfigCommand, Move, Moving, TaskPlacement, Victim,
};
use muster_model::event::{Event, EventKind};
use muster_model::host::HostClaim;
use muster_model::ids::{AttemptEpoch, HostId, JobId, Revision, TaskIndex, UnitId, UnitIndex};
use muster_model::quota::{Defragment, QueueConfig, QueueTree};
use muster_model::time::TimeMs;

use crate::frozen::samples::{JOB, LEADER, REQUEST, gpu};

/// The first version's waiting job; it is the one that moves.
const MOVED: JobId = JobId(30);

fn defragment() -> Defragment {
    Defragment {
        moves_max: 3,
        moves_in_flight_max: 17,
        interval_ms: 7_200_000,
        after_ms: 90_000,
        cost_percent_max: 25,
        restart_ms: 45_000,
        young_ms: 300_000,
    }
}

fn movable() -> QueueConfig {
    QueueConfig {
        movable: true,
        ..QueueConfig::default()
    }
}

fn attempt() -> Victim {
    Victim {
        job: MOVED,
        unit: UnitIndex(0),
        epoch: AttemptEpoch(25),
    }
}

fn place(host: u32, number: u128) -> Arc<[TaskPlacement]> {
    [TaskPlacement {
        task: TaskIndex(0),
        host: HostId(host),
        gpus: vec![gpu(number)],
    }]
    .into()
}

/// Under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let claiming = ClaimSpec {
        leader: LEADER,
        job: JOB,
        unit: UnitIndex(0),
        tasks: place(1, 0),
        basis: AllocationBasis::Share,
        victims: Vec::new(),
        supersedes: Vec::new(),
        expected_at: Some(TimeMs(9_000)),
        moving: Some(Moving {
            moves: vec![Move {
                attempt: attempt(),
                tasks: place(2, 3),
            }],
            gain_gpu_ms: 86_400_000,
        }),
    };
    let tree = QueueTree {
        queues: BTreeMap::from([("production".to_owned(), movable())]),
        history_half_life_ms: None,
        defragment: Some(defragment()),
    };
    let configure = Command::Config(ConfigCommand::ConfigureQueues {
        request: REQUEST,
        author: "grace".to_owned(),
        tree: Arc::new(tree),
    });
    vec![
        ("claim_by_moves", Command::Claim(claiming)),
        ("configure_queues_with_moves", configure),
    ]
}

/// One event of every kind introduced with moves.
pub(crate) fn kinds() -> Vec<EventKind> {
    vec![EventKind::UnitsMoved {
        job: JOB,
        unit: UnitIndex(0),
        moved: vec![attempt()],
        cost_gpu_ms: 165_000,
        gain_gpu_ms: 86_400_000,
    }]
}

fn claim(tasks: Arc<[TaskPlacement]>, purpose: Purpose) -> Arc<Claim> {
    Arc::new(Claim {
        revision: Revision(38),
        since: TimeMs(4_800),
        tasks,
        allocation_basis: AllocationBasis::Share,
        victims: Vec::new(),
        expected_at: Some(TimeMs(9_000)),
        purpose,
    })
}

/// The first version's state with a unit moving to a claimed destination, and another waiting for the freed
/// resources.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.defragment = Some(defragment());
    parts.queues.retain(|queue| &*queue.name != "production");
    parts
        .queues
        .push(Queue::configured("production", Arc::new(movable())));
    let destination = Purpose::Destination {
        job: MOVED,
        unit: UnitIndex(1),
    };
    let gathered = Purpose::Gathered {
        moved: vec![attempt()],
        cost_gpu_ms: 165_000,
        gain_gpu_ms: 86_400_000,
    };
    let waiting = parts.jobs.last_mut().expect("the first state has two jobs");
    let unit = waiting.units.get_mut(&UnitIndex(0));
    let unit: &mut Unit = Arc::make_mut(unit.expect("the array's first task has a history"));
    let mut gatherer = unit.clone();
    unit.claim = Some(claim(place(1, 0), destination));
    unit.moved_at = Some(TimeMs(4_800));
    gatherer.claim = Some(claim(place(1, 1), gathered));
    waiting.units.insert(UnitIndex(1), Arc::new(gatherer));
    let host = &mut parts.hosts[0];
    host.gpus[0].claim = Some(UnitId::new(MOVED, UnitIndex(0)));
    host.gpus[1].claim = Some(UnitId::new(MOVED, UnitIndex(1)));
    let host_claims = [0, 1].map(|unit| HostClaim {
        job: MOVED,
        unit: UnitIndex(unit),
        cpus_milli: 8_000,
        memory_mib: 65_536,
    });
    host.claims = host_claims.into();
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
