//! Draws of scheduler commands: queues, claims, allocation bases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::moves::may_move;
use muster_engine::rights::{Preemptor, Rights, Subject};
use muster_engine::state::{Attempt, Job, Running, amounts_of};
use muster_model::command::{
    AllocationBasis, ClaimSpec, Command, ConfigCommand, Move, Moving, TaskPlacement, Victim,
};
use muster_model::ids::{AttemptEpoch, JobId, UnitId, UnitIndex};
use muster_model::quota::{
    Amounts, CellQuota, Defragment, Guarantee, Limits, QueueConfig, QueueTree,
};
use muster_model::spec::{DEFAULT_QUEUE, JobSpec, Within};
use muster_model::testing::request_key;
use muster_model::topology::{CellGroup, CellId, CellPlace, HostShape, Topology};
use muster_planner::positions;

use crate::draw::{Draw, REQUESTS};

impl Draw<'_> {
    pub(super) fn scheduling_settings(&mut self, spec: &mut JobSpec) {
        spec.scheduling.opportunistic = self.once_in(6);
        spec.scheduling.lazy_preemption = !spec.scheduling.opportunistic && self.once_in(2);
        spec.scheduling.run_time_ms_max = self.once_in(6).then(|| 1 + self.below(60_000));
        if spec.gang && self.once_in(4) {
            spec.scheduling.assembly_ms_max = Some(1 + self.below(60_000));
        }
        if spec.gang && self.once_in(3) {
            spec.groups[0].layout.count_min = Some(1 + self.small(spec.groups[0].count));
        }
        if self.once_in(3) {
            spec.user = "grace".to_owned();
        }
        if self.once_in(6) {
            spec.scheduling.within = self.within();
        }
        if self.once_in(6) {
            let layout = &mut spec.groups[0].layout;
            layout.within = self.within();
            layout.within_tasks = (spec.gang && self.once_in(2)).then_some(2);
        }
    }

    /// Mostly an existing level: configured, or reported by workers.
    fn within(&mut self) -> Option<Within> {
        let mut levels: Vec<String> = self.state.topology.levels().map(str::to_owned).collect();
        levels.extend(["rack", "socket", "switch"].map(str::to_owned));
        let level = self.pick(levels)?;
        let required = !self.once_in(4);
        Some(Within { level, required })
    }

    /// Racks of one model each, sockets of two GPUs; each is present in some draws only.
    pub(super) fn racks_and_sockets(&mut self) -> Command {
        let (racks, sockets) = (!self.once_in(3), !self.once_in(3));
        let rack = |rack: u32| CellPlace {
            cell: vec![format!("rack-{rack}")],
            hosts: (0..2)
                .map(|row| format!("node-{:04}", 2 * row + rack))
                .collect(),
        };
        let socket = |gpus: std::ops::Range<u32>| CellGroup {
            level: "socket".to_owned(),
            gpus: gpus.collect(),
        };
        let shape = HostShape {
            gpus: 4,
            groups: vec![socket(0..2), socket(2..4)],
            ..HostShape::default()
        };
        let named = |is_there: bool, name: &str| match is_there {
            true => vec![name.to_owned()],
            false => Vec::new(),
        };
        Command::Config(ConfigCommand::SetTopology {
            request: request_key(self.below(REQUESTS)),
            author: "grace".to_owned(),
            topology: Arc::new(Topology {
                above: named(racks, "rack"),
                inside: named(sockets, "socket"),
                places: if racks {
                    vec![rack(1), rack(2)]
                } else {
                    Vec::new()
                },
                shapes: if sockets { vec![shape] } else { Vec::new() },
            }),
        })
    }

    /// Mostly the allocation basis that follows from the job's specification.
    pub(super) fn allocation_basis_of(
        &mut self,
        job: JobId,
        tasks: &[TaskPlacement],
    ) -> AllocationBasis {
        let spec = self.state.job(job).map(|job| &job.spec);
        let opportunistic = spec.is_some_and(|spec| spec.scheduling.opportunistic);
        let queue = spec.and_then(|spec| self.state.queues.get(spec.queue.as_str()));
        let in_cells = queue.is_some_and(|queue| queue.config.is_virtual_cluster());
        let with_gpus = tasks.iter().filter(|task| !task.gpus.is_empty());
        let sockets = self.once_in(2);
        let cells = with_gpus.flat_map(|task| self.cells_of(task, sockets));
        let cells: BTreeSet<CellId> = cells.collect();
        if opportunistic ^ self.once_in(20) {
            AllocationBasis::Opportunistic
        } else if in_cells && !cells.is_empty() {
            AllocationBasis::Cells(cells.into_iter().collect())
        } else {
            AllocationBasis::Share
        }
    }

    /// The host of a task as a cell, or its sockets that contain GPUs of the task.
    fn cells_of(&self, task: &TaskPlacement, sockets: bool) -> Vec<CellId> {
        let level = self.state.topology.level("socket").filter(|_| sockets);
        let known = level.zip(self.state.host(task.host));
        let cells = self.state.index.host_cells.get(&task.host);
        let (Some((level, host)), Some(cells)) = (known, cells) else {
            return vec![CellId::Host(task.host)];
        };
        let gpus = positions(host, &task.gpus);
        let used = cells
            .on_level(level)
            .filter(|cell| !cell.gpus.and(gpus).is_empty());
        used.map(|cell| CellId::Inside(host.id, level, cell.gpus))
            .collect()
    }

    /// A tree over few names, with guarantees and limits that vary.
    pub(super) fn configuration(&mut self) -> Command {
        let mut queues = BTreeMap::new();
        for name in ["research", "a", "a/b", "a/c"] {
            if name.contains('/') && !queues.contains_key("a") || self.once_in(3) {
                continue;
            }
            queues.insert(name.to_owned(), self.queue_config());
        }
        if self.once_in(2) {
            let movable = QueueConfig {
                movable: true,
                ..QueueConfig::default()
            };
            queues.insert(DEFAULT_QUEUE.to_owned(), movable);
        }
        if !self.once_in(3) {
            queues.insert("vc".to_owned(), self.virtual_cluster());
        }
        Command::Config(ConfigCommand::ConfigureQueues {
            request: request_key(self.below(REQUESTS)),
            author: "grace".to_owned(),
            tree: Arc::new(QueueTree {
                queues,
                history_half_life_ms: self.once_in(2).then_some(3_600_000),
                defragment: self.once_in(2).then(|| self.defragment()),
            }),
        })
    }

    fn defragment(&mut self) -> Defragment {
        Defragment {
            moves_max: 1 + self.small(3),
            moves_in_flight_max: 1 + self.small(4),
            interval_ms: self.below(2) * 60_000,
            after_ms: self.below(2) * 5_000,
            cost_percent_max: 50 + self.small(50),
            restart_ms: self.below(2) * 1_000,
            young_ms: self.below(2) * 3_600_000,
        }
    }

    /// One or two whole hosts, or cells reported by workers.
    fn virtual_cluster(&mut self) -> QueueConfig {
        let (level, gpus) = match self.below(10) {
            0 => ("socket", 2),
            1 => ("switch", 2),
            2 => ("rack", 8),
            _ => ("host", 4),
        };
        let quota = CellQuota {
            level: level.to_owned(),
            gpu_model: "H100".to_owned(),
            gpus,
            count: 1 + self.small(2),
            pinned: Vec::new(),
        };
        QueueConfig {
            guarantee: Guarantee::Cells(vec![quota]),
            borrow: !self.once_in(4),
            preempt_by_priority: self.once_in(2),
            ..QueueConfig::default()
        }
    }

    fn queue_config(&mut self) -> QueueConfig {
        let some_gpus = |draw: &mut Self| draw.once_in(4).then(|| draw.below(12));
        let limits = |gpus: Option<u64>| Limits {
            gpus,
            ..Limits::default()
        };
        let guarantee = Amounts {
            gpus: self.below(5),
            ..Amounts::default()
        };
        QueueConfig {
            guarantee: Guarantee::Amounts(guarantee),
            limit: limits(some_gpus(self)),
            user_limit: limits(some_gpus(self)),
            borrow: !self.once_in(8),
            preempt_by_priority: self.once_in(2),
            protected_ms: self.below(2) * 10_000,
            movable: !self.once_in(3),
            live_jobs_max: 1 + self.below(30),
            ..QueueConfig::default()
        }
    }

    /// A claim of a waiting unit on a victim's resources, or on arbitrary ones.
    pub(super) fn claim(&mut self) -> Command {
        if self.once_in(2)
            && let Some(claiming) = self.gathered()
        {
            return Command::Claim(claiming);
        }
        let job = self.waiting_job();
        let unit = self.waiting_unit(job);
        let mut tasks = self.tasks_of(job, unit);
        let mut allocation_basis = self.allocation_basis_of(job, &tasks);
        let mut victims = Vec::new();
        if let Some(record) = self.state.job(job)
            && let Some((victim, taken)) = self.victim(record, unit, &allocation_basis)
            && !self.once_in(4)
        {
            tasks = onto(record, unit, &taken).unwrap_or(tasks);
            allocation_basis = self.allocation_basis_of(job, &tasks);
            victims.push(victim);
        }
        let moving = self.once_in(2).then(|| self.moving(&victims));
        let moving = moving.filter(|moving| !moving.moves.is_empty() || self.once_in(4));
        if moving.is_some() {
            victims.clear();
        }
        let now = self.state.time;
        Command::Claim(ClaimSpec {
            leader: self.leader(),
            job,
            unit,
            supersedes: match moving.is_some() && !self.once_in(8) {
                true => Vec::new(),
                false => self.superseded(&tasks),
            },
            tasks: Arc::from(tasks),
            basis: allocation_basis,
            victims,
            expected_at: self.once_in(2).then(|| now.after(self.below(120_000))),
            moving,
        })
    }

    /// A claim on the resources of a movable unit, which moves to a free place.
    fn gathered(&mut self) -> Option<ClaimSpec> {
        let config = self.state.defragment?;
        let job = self.waiting_job();
        let unit = self.waiting_unit(job);
        let record = self.state.job(job)?;
        let running = self.state.index.units_on_host.keys();
        let movers = running.filter_map(|(_, id)| {
            let mover = Running::of(self.state, *id)?;
            may_move(self.state, &config, mover).ok()?;
            let tasks = onto(record, unit, &places(mover.attempt))?;
            Some((mover.as_victim(), tasks))
        });
        let movers: Vec<_> = movers.collect();
        let (victim, tasks) = self.pick(movers)?;
        Some(ClaimSpec {
            leader: self.leader(),
            job,
            unit,
            basis: self.allocation_basis_of(job, &tasks),
            tasks: Arc::from(tasks),
            victims: Vec::new(),
            supersedes: Vec::new(),
            expected_at: None,
            moving: Some(self.moving(&[victim])),
        })
    }

    /// The victims with free places as destinations, mostly at an acceptable cost.
    fn moving(&mut self, victims: &[Victim]) -> Moving {
        let moves = victims.iter().map(|victim| Move {
            attempt: *victim,
            tasks: Arc::from(self.tasks_of(victim.job, victim.unit)),
        });
        Moving {
            moves: moves.collect(),
            gain_gpu_ms: match self.once_in(4) {
                true => self.below(1_000_000),
                false => u64::MAX,
            },
        }
    }

    /// An attempt, mostly one that the unit may preempt, with its placement.
    fn victim(
        &mut self,
        job: &Job,
        unit: UnitIndex,
        allocation_basis: &AllocationBasis,
    ) -> Option<(Victim, Vec<TaskPlacement>)> {
        let state = self.state;
        for _ in 0..4 {
            let (of, victim_unit, attempt) = self.active()?;
            let taken = places(attempt);
            let amounts = amounts_of(&state.hosts, &job.spec, &taken);
            let preemptor = Preemptor {
                job,
                unit,
                allocation_basis,
                amounts: &amounts,
            };
            let rights = Rights::of(state, preemptor);
            let record = state.job(of)?;
            let allowed = rights.over(&Subject::attempt(record, attempt)).is_ok();
            if allowed || self.once_in(10) {
                let victim = Victim {
                    job: of,
                    unit: victim_unit,
                    epoch: attempt.epoch,
                };
                return Some((victim, taken));
            }
        }
        None
    }

    /// The claims on the GPUs of these tasks.
    fn superseded(&mut self, tasks: &[TaskPlacement]) -> Vec<UnitId> {
        if self.once_in(3) {
            return Vec::new();
        }
        let gpus = tasks.iter().flat_map(|task| &task.gpus);
        let claims = gpus.filter_map(|uuid| self.state.gpu(*uuid)?.1.claim);
        claims.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn claim_dropped(&mut self) -> Command {
        let claims = self.state.index.claims.keys().copied().collect();
        let drawn = self.pick(claims);
        let UnitId { job, unit } = drawn.unwrap_or(UnitId::new(JobId(1), UnitIndex(0)));
        Command::DropClaim {
            leader: self.leader(),
            job,
            unit,
            reason: "it fits elsewhere".to_owned(),
        }
    }

    pub(super) fn allocation_basis(&mut self) -> Command {
        let (job, unit, epoch, tasks) = self.active().map_or_else(
            || (JobId(1), UnitIndex(0), AttemptEpoch(1), Vec::new()),
            |(job, unit, attempt)| (job, unit, attempt.epoch, places(attempt)),
        );
        let allocation_basis = if self.once_in(2) {
            AllocationBasis::Opportunistic
        } else {
            self.allocation_basis_of(job, &tasks)
        };
        Command::SetAllocationBasis {
            leader: self.leader(),
            job,
            unit,
            epoch,
            allocation_basis,
        }
    }
}

/// The placement of an attempt's tasks.
fn places(attempt: &Attempt) -> Vec<TaskPlacement> {
    let runs = attempt.tasks.iter();
    runs.map(|run| TaskPlacement {
        task: run.task,
        host: run.host,
        gpus: run.gpus.clone(),
    })
    .collect()
}

/// The unit's tasks on the GPUs of another unit's, if they match.
fn onto(job: &Job, unit: UnitIndex, taken: &[TaskPlacement]) -> Option<Vec<TaskPlacement>> {
    let tasks: Vec<u32> = job.tasks_of(unit).collect();
    if tasks.len() != taken.len() {
        return None;
    }
    let moved = tasks.iter().zip(taken).map(|(task, place)| {
        let (group, _) = job.spec.group_of(muster_model::ids::TaskIndex(*task))?;
        let gpus = group.resources.gpus as usize;
        (gpus <= place.gpus.len()).then(|| TaskPlacement {
            task: muster_model::ids::TaskIndex(*task),
            host: place.host,
            gpus: place.gpus[..gpus].to_vec(),
        })
    });
    moved.collect()
}
