//! Moves in small random clusters, against brute force: after the proposed moves every unit has a place, they
//! are completed under any leader, and if one move is enough, something is proposed.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_harness::{Cluster, gang, gpu_uuid, single};
use muster_model::command::{
    AllocationBasis, CheckpointCommand, CheckpointCommit, ClaimSpec, Command, GpuHealth, Placement,
    StopReason, TaskPlacement,
};
use muster_model::ids::{GpuUuid, HostId, JobId, ReplicaId, TaskIndex, UnitIndex};
use muster_model::quota::{Defragment, QueueConfig, QueueTree};
use muster_planner::{Budget, plan, plan_in_place};
use proptest::prelude::*;

/// GPUs of every host.
const GPUS: u32 = 4;
const FIRST: UnitIndex = UnitIndex(0);

/// A running unit: its GPUs, and whether it is bound to its host.
type Small = (u32, bool);

/// The units running on each host, and the request of one job.
#[derive(Clone, Debug)]
struct Case {
    hosts: Vec<Vec<Small>>,
    tasks: u32,
    gpus: u32,
    moves_max: u32,
}

impl Case {
    fn free(&self, host: usize) -> u32 {
        let held: u32 = self.hosts[host].iter().map(|(gpus, _)| gpus).sum();
        GPUS - held
    }

    fn free_in_all(&self) -> u32 {
        (0..self.hosts.len()).map(|host| self.free(host)).sum()
    }

    /// Tasks of the waiting job that fit into these free GPUs.
    fn tasks_fitting(&self, free: &[u32]) -> u32 {
        free.iter().map(|free| free / self.gpus).sum()
    }

    /// Whether the job fits without moves.
    fn fits(&self) -> bool {
        let free: Vec<u32> = (0..self.hosts.len()).map(|host| self.free(host)).collect();
        self.tasks_fitting(&free) >= self.tasks
    }

    /// Whether moving some unit to another host makes the job fit.
    fn one_move_is_enough(&self) -> bool {
        let free: Vec<u32> = (0..self.hosts.len()).map(|host| self.free(host)).collect();
        (0..self.hosts.len()).any(|from| {
            let movable = self.hosts[from].iter().filter(|(_, bound)| !bound);
            movable.into_iter().any(|(gpus, _)| {
                (0..self.hosts.len()).any(|to| {
                    let mut free = free.clone();
                    free[from] += gpus;
                    let room = to != from && free[to] >= *gpus;
                    if room {
                        free[to] -= gpus;
                    }
                    room && self.tasks_fitting(&free) >= self.tasks
                })
            })
        })
    }
}

fn case() -> impl Strategy<Value = Case> {
    let small = (1..=3u32, prop::bool::weighted(0.2));
    let host = prop::collection::vec(small, 0..=3).prop_map(|sizes| {
        let mut left = GPUS;
        let mut fitting = Vec::new();
        for (gpus, bound) in sizes {
            if gpus <= left {
                left -= gpus;
                fitting.push((gpus, bound));
            }
        }
        fitting
    });
    let hosts = prop::collection::vec(host, 2..=4);
    (hosts, 1..=2u32, 2..=4u32, 1..=3u32).prop_map(|(hosts, tasks, gpus, moves_max)| Case {
        hosts,
        tasks,
        gpus,
        moves_max,
    })
}

/// A cluster in which moves are almost free, and units run as the case says.
fn cluster(case: &Case) -> Cluster {
    let hosts = u32::try_from(case.hosts.len()).unwrap_or(u32::MAX);
    let mut cluster = Cluster::with_hosts(hosts, GPUS);
    let movable = QueueConfig {
        movable: true,
        reserve_after_ms: 86_400_000,
        ..QueueConfig::default()
    };
    cluster.configure(QueueTree {
        queues: [("default".to_owned(), movable)].into(),
        defragment: Some(Defragment {
            moves_max: case.moves_max,
            restart_ms: 0,
            cost_percent_max: 100,
            ..Defragment::default()
        }),
        ..QueueTree::default()
    });
    for (host, units) in (1u32..).zip(&case.hosts) {
        let mut index = 0;
        for (gpus, bound) in units {
            run_on(&mut cluster, host, index, *gpus, *bound);
            index += gpus;
        }
    }
    cluster.wait(600_000);
    save_all(&mut cluster, 1);
    cluster
}

/// Runs a unit on consecutive GPUs of a host from an index on; a bound one names its host.
fn run_on(cluster: &mut Cluster, host: u32, index: u32, gpus: u32, bound: bool) {
    let mut spec = single("small", 1, gpus);
    spec.stop_grace_ms = 1_000;
    if bound {
        spec.scheduling.hosts = vec![format!("node-{host:04}")];
    }
    let job = cluster.submit(spec);
    let task = TaskPlacement {
        task: TaskIndex(0),
        host: HostId(host),
        gpus: (index..index + gpus)
            .map(|index| gpu_uuid(host, index))
            .collect(),
    };
    must(
        cluster,
        &Command::Place(Placement {
            leader: cluster.leader(),
            job,
            unit: FIRST,
            tasks: Arc::from([task]),
            basis: AllocationBasis::Share,
            barrier: false,
        }),
    );
    cluster.start_all(job);
}

/// Every running unit commits a checkpoint.
fn save_all(cluster: &mut Cluster, step: u64) {
    let jobs: Vec<JobId> = cluster.state.jobs.keys().copied().collect();
    for job in jobs {
        let Some(attempt) = cluster.attempt(job, FIRST) else {
            continue;
        };
        let checkpoint = CheckpointCommit {
            epoch: attempt.epoch,
            step,
            path: format!("/checkpoints/{step}"),
            size_bytes: 0,
            digest: String::new(),
            save_ms: None,
        };
        must(
            cluster,
            &Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader: cluster.leader(),
                job,
                unit: FIRST,
                checkpoint,
            }),
        );
    }
}

fn must(cluster: &mut Cluster, command: &Command) {
    let applied = cluster.apply(command);
    assert!(applied.result.is_ok(), "{command:?}: {:?}", applied.result);
}

/// Plans until no step is left; returns the steps.
fn settle(cluster: &mut Cluster) -> Vec<Command> {
    let mut all = Vec::new();
    loop {
        let planned = plan(&cluster.state, cluster.now, Budget::default());
        for step in &planned.steps {
            must(cluster, step);
        }
        if planned.steps.is_empty() {
            return all;
        }
        all.extend(planned.steps);
    }
}

/// Checks that the places of a claim with moves are disjoint and free by then.
fn check_places(cluster: &Cluster, claiming: &ClaimSpec) {
    let moves = claiming
        .moving
        .as_ref()
        .map_or(&[][..], |moving| &moving.moves);
    let leaving: BTreeSet<JobId> = moves.iter().map(|one| one.attempt.job).collect();
    let mut given: BTreeSet<GpuUuid> = BTreeSet::new();
    let places = moves.iter().flat_map(|one| one.tasks.iter());
    for task in places.chain(claiming.tasks.iter()) {
        for gpu in &task.gpus {
            assert!(given.insert(*gpu), "{gpu} is given twice by {claiming:?}");
            let (host, known) = cluster.state.gpu(*gpu).expect("the GPU exists");
            assert_eq!(host.id, task.host);
            let stays = known.holder.filter(|holder| !leaving.contains(&holder.job));
            assert_eq!(stays, None, "an attempt stays on {gpu}");
        }
    }
    for one in moves {
        let job = cluster.state.job(one.attempt.job).expect("the job exists");
        let gpus: usize = one.tasks.iter().map(|task| task.gpus.len()).sum();
        assert_eq!(gpus, job.spec.groups[0].resources.gpus as usize);
        let named = &job.spec.scheduling.hosts;
        let host = cluster
            .state
            .host(one.tasks[0].host)
            .expect("the host exists");
        assert!(named.is_empty() || named.iter().any(|name| **name == *host.name));
    }
}

/// Whether a unit makes room for a larger one beside a GPU that an earlier task of it left unfit for
/// `signal`.
fn is_moved_beside(signal: &str) -> bool {
    let case = Case {
        hosts: vec![vec![(1, false)], vec![(2, true)]],
        tasks: 1,
        gpus: 3,
        moves_max: 1,
    };
    let mut cluster = cluster(&case);
    let old = *cluster.state.jobs.keys().next().expect("a job runs");
    cluster.leave_unfit(old, signal);
    save_all(&mut cluster, 2);
    cluster.submit(gang("large", case.tasks, case.gpus));
    cluster.wait(61_000);
    let steps = settle(&mut cluster);
    let moves = steps.iter().filter_map(|step| match step {
        Command::Claim(claiming) => claiming.moving.as_ref(),
        _ => None,
    });
    moves
        .flat_map(|moving| moving.moves.iter())
        .any(|one| one.attempt.job == old)
}

#[test]
fn an_attempt_with_an_unkillable_task_is_not_moved() {
    assert!(is_moved_beside("xid-48"));
    assert!(!is_moved_beside(GpuHealth::TASK_STUCK));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn moved_attempts_and_the_waiting_unit_all_have_a_place(case in case()) {
        let mut cluster = cluster(&case);
        let running: Vec<JobId> = cluster.state.jobs.keys().copied().collect();
        let waiting = cluster.submit(gang("large", case.tasks, case.gpus));
        cluster.wait(61_000);
        save_all(&mut cluster, 2);
        let before = cluster.clone();
        let planned = plan(&before.state, before.now, Budget::default());
        let in_place = plan_in_place(&before.state, before.now, Budget::default());
        prop_assert!(!in_place.moves_not_worthwhile);
        prop_assert!(in_place.claims().all(|claiming| claiming.moving.is_none()));
        if planned.moves_not_worthwhile {
            prop_assert_eq!(&planned.steps, &in_place.steps, "skipping the search changes nothing");
            prop_assert_eq!(&planned.blocked, &in_place.blocked);
        }
        let steps = settle(&mut cluster);
        let claims = steps.iter().filter_map(|step| match step {
            Command::Claim(claiming) if claiming.moving.is_some() => Some(claiming),
            _ => None,
        });
        let claims: Vec<&ClaimSpec> = claims.collect();
        prop_assert!(claims.len() <= 1);
        let Some(claiming) = claims.first() else {
            let enough = case.free_in_all() >= case.tasks * case.gpus;
            prop_assert!(case.fits() || !enough || !case.one_move_is_enough(), "one move is enough");
            return Ok(());
        };
        prop_assert!(!case.fits(), "it fits without moves");
        let moves = claiming.moving.as_ref().map_or(0, |moving| moving.moves.len());
        prop_assert!((1..=case.moves_max as usize).contains(&moves));
        check_places(&before, claiming);

        // Another leader continues: they stop, and every unit runs.
        must(&mut cluster, &Command::LeadershipStarted { replica: ReplicaId(2) });
        for job in &running {
            let stop = cluster.attempt(*job, FIRST).and_then(|attempt| attempt.stop.clone());
            if let Some(stop) = stop {
                prop_assert_eq!(stop.reason, StopReason::Defragmented);
                cluster.stop_all(*job);
                settle(&mut cluster);
            }
        }
        for job in running.iter().chain([&waiting]) {
            prop_assert!(cluster.attempt(*job, FIRST).is_some(), "job {job} has no place");
        }
        prop_assert!(cluster.state.index.claims.is_empty());
    }
}
