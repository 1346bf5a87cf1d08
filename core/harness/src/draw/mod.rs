//! Commands drawn from the state: mostly plausible ones, occasionally stale or invalid ones.
//!
//! A draw depends only on the state and one number, so a shrunk sequence of numbers is again a plausible
//! sequence of commands.

mod access;
mod blocks;
mod container;
mod health;
mod lifecycle;
mod locations;
mod members;
mod reports;
mod scheduling;

use std::sync::Arc;

use muster_engine::feasibility::{Freed, HostTrial, Requester};
use muster_engine::state::{Attempt, State};
use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, ConfigCommand, GpuHealth, HostCommand,
    HostHealth, Placement, StopReason, TaskPlacement,
};
use muster_model::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use muster_model::limits;
use muster_model::spec::{Condition, JobSpec, Pipeline, PipelineDependency, PipelineJob};
use muster_model::testing::{gang, gpu_uuid, host_of_model, request_id, request_key, single};
use muster_model::time::TimeMs;

use crate::fingerprint::fingerprinted;

/// Maximum number of hosts.
const HOSTS: u64 = 4;
/// Number of request ids: few, so that some are repeated.
const REQUESTS: u64 = 64;

/// Draws a command that fits the state, and its time stamp.
#[must_use]
pub fn draw_command(state: &State, entropy: u64) -> (TimeMs, Command) {
    let mut draw = Draw { state, entropy };
    let time = draw.time();
    let command = match draw.below(100) {
        0..2 => Command::LeadershipStarted {
            replica: ReplicaId(1 + draw.below(3)),
        },
        2..12 => draw.registration(),
        12..25 => draw.submission(),
        25..26 => draw.pipeline(),
        26..28 => draw.cancellation(),
        28 if draw.once_in(2) => draw.health(),
        28 => draw.suspension(),
        29..44 => draw.placement(),
        44..48 => draw.claim(),
        48..76 => draw.report(),
        76 => draw.topology(),
        77..79 => draw.configuration(),
        79..80 => draw.claim_dropped(),
        80..82 => draw.stop(),
        82..84 => draw.release(),
        84..86 => draw.host_health(),
        86..88 => draw.gpu_health(),
        88 => draw.health(),
        89..92 if draw.once_in(8) => draw.planned_block(),
        89..92 => draw.block(),
        92..94 => draw.unblock(),
        94..95 => Command::ExpireBlocks {
            leader: draw.leader(),
        },
        95..96 => draw.checkpoint(),
        96..97 => draw.allocation_basis(),
        97 if draw.once_in(4) => draw.access(),
        97 if draw.once_in(3) => draw.job_defaults(),
        97 if draw.once_in(3) => draw.replicas(),
        97..98 => draw.queue(),
        98..99 => draw.racks_and_sockets(),
        _ => Command::Prune {
            leader: draw.leader(),
        },
    };
    (time, fingerprinted(command))
}

struct Draw<'a> {
    state: &'a State,
    entropy: u64,
}

impl<'a> Draw<'a> {
    /// A number below `bound` (SplitMix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.entropy = self.entropy.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.entropy;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap_or(0)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<T>(&mut self, things: Vec<T>) -> Option<T> {
        let count = u64::try_from(things.len())
            .ok()
            .filter(|count| *count > 0)?;
        let position = usize::try_from(self.below(count)).ok()?;
        things.into_iter().nth(position)
    }

    /// Mostly a little later, sometimes much later, sometimes before the previous one.
    fn time(&mut self) -> TimeMs {
        let now = self.state.time;
        match self.below(20) {
            0 => TimeMs(now.0.saturating_sub(5_000)),
            1 => now.after(limits::REQUEST_KEPT_MS),
            2 => now.after(limits::FINISHED_JOB_KEPT_MS),
            3..8 => now.after(self.below(60_000)),
            _ => now.after(self.below(500)),
        }
    }

    fn leader(&mut self) -> LeadershipEpoch {
        let current = self.state.leadership.epoch;
        if self.once_in(40) {
            LeadershipEpoch(current.get().saturating_sub(1))
        } else {
            current
        }
    }

    fn job(&mut self) -> JobId {
        let jobs = self.state.jobs.keys().copied().collect();
        self.pick(jobs).unwrap_or(JobId(1))
    }

    fn host(&mut self) -> HostId {
        let hosts = self.state.hosts.keys().copied().collect();
        self.pick(hosts).unwrap_or(HostId(1))
    }

    fn gpu(&mut self) -> GpuUuid {
        let gpus = self.state.gpu_hosts.keys().copied().collect();
        self.pick(gpus).unwrap_or(gpu_uuid(1, 0))
    }

    /// A unit that holds resources, with its attempt.
    fn active(&mut self) -> Option<(JobId, UnitIndex, &'a Attempt)> {
        let state = self.state;
        let units = state
            .index
            .units_on_host
            .keys()
            .filter_map(|(_, id)| Some((id.job, id.unit, state.attempt(*id)?)))
            .collect();
        self.pick(units)
    }

    fn registration(&mut self) -> Command {
        let number = self.small(u32::try_from(HOSTS).unwrap_or(1)) + 1;
        let model = if number.is_multiple_of(2) {
            "A100"
        } else {
            "H100"
        };
        let mut registration = host_of_model(number, 4, model);
        registration.incarnation = 1 + self.below(3);
        self.learn_place(&mut registration);
        match self.below(12) {
            0 => {
                registration.gpus.pop();
            }
            1 => registration.boot_id = format!("boot-{}", self.below(3)),
            2 => registration.worker_id = request_id(1_000 + self.below(2)),
            3 => registration.gpus[0].uuid = self.gpu(),
            4 => registration.cpus_milli = 2_000,
            5 => registration.gpus[1].model = "L40S".to_owned(),
            6 => registration.gpus.reverse(),
            7 => self.equip(&mut registration),
            _ => {}
        }
        Command::Host(HostCommand::RegisterHost {
            leader: self.leader(),
            registration: Arc::new(registration),
        })
    }

    fn submission(&mut self) -> Command {
        let spec = Arc::new(self.spec());
        Command::SubmitJob {
            request: request_key(self.below(REQUESTS)),
            spec,
        }
    }

    /// Mostly valid jobs; occasionally one depends on itself.
    fn pipeline(&mut self) -> Command {
        let mut jobs = Vec::new();
        for own in 0..1 + self.small(4) {
            let mut spec = self.spec();
            spec.name = format!("job-{own}");
            let position = self.small(own.max(1));
            let when = [Condition::Succeeded, Condition::Ended, Condition::Failed];
            let when = when[usize::try_from(self.below(3)).unwrap_or(0)];
            let waits = own > 0 && !self.once_in(3) || self.once_in(40);
            let after = waits.then_some(PipelineDependency { position, when });
            jobs.push(PipelineJob {
                spec: Arc::new(spec),
                after: after.into_iter().collect(),
            });
        }
        let name = "nightly".to_owned();
        Command::SubmitPipeline {
            request: request_key(self.below(REQUESTS)),
            pipeline: Arc::new(Pipeline { name, jobs }),
        }
    }

    fn spec(&mut self) -> JobSpec {
        let name = ["train", "evaluate", "sweep"][usize::try_from(self.below(3)).unwrap_or(0)];
        let (tasks, gpus) = (1 + self.small(5), self.small(4));
        let mut spec: JobSpec = if self.once_in(2) {
            gang(name, tasks, gpus)
        } else {
            single(name, tasks, gpus)
        };
        spec.priority = i32::try_from(self.below(3)).unwrap_or(0);
        spec.retry.retries_max = self.small(3);
        let queue = self.below(10);
        if queue < 4 {
            spec.queue =
                ["research", "vc", "a/b", "a/c"][usize::try_from(queue).unwrap_or(0)].to_owned();
        }
        self.scheduling_settings(&mut spec);
        if self.once_in(5) {
            spec.groups[0].resources.gpu_models = vec!["A100".to_owned()];
        }
        if self.once_in(5) {
            spec.groups[0].tasks_per_host_max = Some(1);
        }
        spec.lifecycle = self.lifecycle(spec.gang);
        // Derived without a draw, so that all other draws stay unchanged.
        spec.groups[0].execution.pids_max = (tasks == 5).then_some(64);
        if tasks == 3 {
            spec.groups[0].execution.container = Some(self.container());
        }
        if self.once_in(20) {
            spec.groups[0].count = 0;
        }
        spec
    }

    fn cancellation(&mut self) -> Command {
        Command::CancelJob {
            request: request_key(self.below(REQUESTS)),
            job: self.job(),
            author: "ada".to_owned(),
            reason: String::new(),
        }
    }

    /// A job with waiting units, if there is one.
    fn waiting_job(&mut self) -> JobId {
        let waiting: Vec<JobId> = self
            .state
            .jobs
            .values()
            .filter(|job| job.counts.waiting > 0)
            .map(|job| job.id)
            .collect();
        self.pick(waiting).unwrap_or_else(|| self.job())
    }

    fn waiting_unit(&mut self, job: JobId) -> UnitIndex {
        let units = self
            .state
            .job(job)
            .map_or_else(Vec::new, |job| job.waiting_units().collect());
        self.pick(units).unwrap_or(UnitIndex(0))
    }

    fn placement(&mut self) -> Command {
        if let Some(swap) = self.swap() {
            return swap;
        }
        let job = self.waiting_job();
        let unit = self.waiting_unit(job);
        let mut tasks = self.tasks_of(job, unit);
        match self.below(20) {
            0 => {
                tasks.pop();
            }
            1 => tasks.iter_mut().for_each(|task| task.gpus.reverse()),
            2 => {
                let gpu = self.gpu();
                for task in tasks.iter_mut().filter(|task| !task.gpus.is_empty()) {
                    task.gpus[0] = gpu;
                }
            }
            _ => {}
        }
        Command::Place(Placement {
            leader: self.leader(),
            job,
            unit,
            basis: self.allocation_basis_of(job, &tasks),
            tasks: Arc::from(tasks),
            barrier: self.once_in(3),
        })
    }

    /// Each task on a random host, with GPUs that fit if there are any.
    pub(super) fn tasks_of(&mut self, id: JobId, unit: UnitIndex) -> Vec<TaskPlacement> {
        let state = self.state;
        let Some(job) = state.job(id) else {
            return Vec::new();
        };
        let requester = Requester::at(job, unit, state.time);
        let freed = Freed::default();
        let mut ledgers = std::collections::BTreeMap::new();
        let mut tasks = Vec::new();
        for task in job.tasks_of(unit).map(TaskIndex) {
            let Some((group, _)) = job.spec.group_of(task) else {
                break;
            };
            let (mut host, mut gpus) = (self.host(), Vec::new());
            for _ in 0..HOSTS {
                if let Some(record) = state.host(host) {
                    let ledger = ledgers
                        .entry(host)
                        .or_insert_with(|| HostTrial::open(state, record, requester, &freed));
                    if let Ok(chosen) = ledger.choose(group) {
                        gpus = chosen;
                        break;
                    }
                }
                host = self.host();
            }
            tasks.push(TaskPlacement { task, host, gpus });
        }
        tasks
    }

    fn stop(&mut self) -> Command {
        let (job, unit, epoch) = self.active().map_or_else(
            || (JobId(1), UnitIndex(0), AttemptEpoch(1)),
            |(job, unit, attempt)| (job, unit, attempt.epoch),
        );
        let reason = match self.below(5) {
            0 => StopReason::MemberLost,
            1 => StopReason::MemberFailed,
            2 => StopReason::Drain { host: self.host() },
            3 => StopReason::NotSwapped,
            _ => StopReason::Preempted,
        };
        Command::StopAttempt {
            leader: self.leader(),
            job,
            unit,
            epoch,
            reason,
        }
    }

    fn host_health(&mut self) -> Command {
        let health = match self.below(3) {
            0 => HostHealth::Up,
            1 => HostHealth::Suspect,
            _ => HostHealth::Lost,
        };
        Command::Host(HostCommand::SetHostHealth {
            leader: self.leader(),
            host: self.host(),
            health,
            one_way: self.once_in(4),
        })
    }

    fn gpu_health(&mut self) -> Command {
        let gpu = self.gpu();
        let owner = self.state.gpu_hosts.get(&gpu).copied();
        let health = if self.once_in(2) {
            GpuHealth::Healthy
        } else {
            GpuHealth::Faulted {
                signal: "xid-79".to_owned(),
                detail: "fell off the bus".to_owned(),
            }
        };
        Command::Host(HostCommand::SetGpuHealth {
            leader: self.leader(),
            host: owner.unwrap_or(HostId(1)),
            gpu,
            health,
        })
    }

    /// An existing checkpoint, reported as damaged by the attempt that should have resumed from it.
    fn spoiling(&mut self) -> Option<Command> {
        let (job, unit, attempt) = self.active()?;
        let known = self.state.job(job)?.unit(unit)?;
        let newest = known.checkpoints.last()?;
        let missing = u64::from(self.once_in(10));
        Some(Command::Checkpoint(
            CheckpointCommand::MarkCheckpointDamaged {
                leader: self.leader(),
                job,
                unit,
                reporter: attempt.epoch,
                epoch: newest.epoch,
                step: newest.step + missing,
                reason: "its digest differs".to_owned(),
            },
        ))
    }

    fn checkpoint(&mut self) -> Command {
        if self.once_in(3)
            && let Some(spoiling) = self.spoiling()
        {
            return spoiling;
        }
        let (job, unit, epoch) = self.active().map_or_else(
            || (JobId(1), UnitIndex(0), AttemptEpoch(1)),
            |(job, unit, attempt)| (job, unit, attempt.epoch),
        );
        let step = self.below(50);
        Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader: self.leader(),
            job,
            unit,
            checkpoint: CheckpointCommit {
                epoch,
                step,
                path: format!("/checkpoints/{job}/step_{step}"),
                size_bytes: 1 << 20,
                digest: String::new(),
                save_ms: None,
            },
        })
    }

    fn queue(&mut self) -> Command {
        let names = ["research", "a", "a/b", "none/x"];
        Command::Config(ConfigCommand::SetQueue {
            request: request_key(self.below(REQUESTS)),
            name: names[usize::try_from(self.below(4)).unwrap_or(0)].to_owned(),
            live_jobs_max: self.below(20),
        })
    }
}
