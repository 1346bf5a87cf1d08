//! Why a job waits and what would change that: the planner's own answer, asked for one job.
//!
//! Nothing here guesses. The blocker is the one that a planning round meets, and a remedy is tried out: on
//! a fork of the state, with the same `apply` and the same round.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::apply::apply;
use crate::command::{BlockTarget, Command, HostHealth};
use crate::ids::{JobId, RequestId, TaskIndex};
use crate::plan::potential::describe;
use crate::plan::round::Round;
use crate::plan::{Blocker, Budget, LimitReached, at};
use crate::spec::TaskGroup;
use crate::state::{Host, HostClass, Job, Line, Shape, State};
use crate::time::TimeMs;

/// Blocks that are tried out as the reason, one by one and then together.
const BLOCKS_TRIED_MAX: usize = 16;

/// Why a job waits, and what would let it run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Why its next waiting unit is not placed; none if nothing of it waits, or if it is about to be placed.
    pub blocker: Option<Blocker>,
    /// Units that wait.
    pub waiting_units: u64,
    /// Jobs before it in its queue that compete for the same hosts.
    pub ahead: u64,
    /// The cluster as far as the job may use it, by GPU model; under an empty name hosts without GPUs.
    pub classes: Vec<ClassCount>,
    /// The smallest change known to help.
    pub remedy: Option<Remedy>,
}

/// Hosts of one class and what became of their GPUs: each is counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    /// GPU model; empty for hosts without GPUs.
    pub model: String,
    /// Hosts.
    pub hosts: u64,
    /// Hosts that accept work.
    pub hosts_accepting: u64,
    /// GPUs in all.
    pub gpus: u64,
    /// GPUs that can be given out now.
    pub gpus_free: u64,
    /// GPUs that tasks hold.
    pub gpus_held: u64,
    /// GPUs that are unfit.
    pub gpus_faulted: u64,
    /// Fit GPUs that are blocked, or whose host is.
    pub gpus_blocked: u64,
    /// Fit GPUs of hosts that are silent.
    pub gpus_silent: u64,
}

/// A change that would let a job run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// Nothing but time: its back-off ends then.
    Wait {
        /// When.
        until: TimeMs,
    },
    /// The job ahead has to be placed, changed or cancelled.
    PlaceAhead {
        /// Which one.
        ahead: JobId,
    },
    /// The limit has to be raised to what there would be, or others in the queue have to end.
    RaiseLimit {
        /// Which one.
        limit: Box<LimitReached>,
    },
    /// Letting these back in is enough, tried out.
    Unblock {
        /// Hosts and GPUs.
        targets: Vec<BlockTarget>,
    },
    /// So many more free GPUs on this host are enough.
    FreeGpus {
        /// How many.
        gpus: u32,
        /// The host that lacks the fewest.
        host: String,
    },
    /// Room for so many more tasks is missing.
    FreeRoom {
        /// How many tasks.
        tasks: u64,
        /// What each of them needs.
        each: String,
    },
    /// The cluster has to grow, or the job to ask for less.
    Grow {
        /// What is missing.
        need: String,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait { until } => write!(formatter, "wait until {until}"),
            Self::PlaceAhead { ahead } => {
                write!(formatter, "job {ahead} is ahead and must go first")
            }
            Self::RaiseLimit { limit } => {
                let LimitReached {
                    queue,
                    resource,
                    would_be,
                    ..
                } = limit.as_ref();
                write!(
                    formatter,
                    "let queue {queue} have {would_be} {resource}, or wait for others there to end"
                )
            }
            Self::Unblock { targets } => {
                formatter.write_str("unblock ")?;
                for (position, target) in targets.iter().enumerate() {
                    let comma = if position > 0 { ", " } else { "" };
                    match target {
                        BlockTarget::Host(name) => write!(formatter, "{comma}host {name}")?,
                        BlockTarget::Gpu(gpu) => write!(formatter, "{comma}{gpu}")?,
                    }
                }
                Ok(())
            }
            Self::FreeGpus { gpus, host } => {
                write!(
                    formatter,
                    "{gpus} more free GPUs on one host ({host} is nearest)"
                )
            }
            Self::FreeRoom { tasks, each } => {
                write!(formatter, "room for {tasks} more tasks, each with {each}")
            }
            Self::Grow { need } => write!(formatter, "add {need}, or ask for less"),
        }
    }
}

/// Explains a job; none if there is no such job.
#[must_use]
pub fn explain(state: &State, job: JobId, now: TimeMs) -> Option<Explanation> {
    let job = state.job(job)?;
    let (blocker, placed) = turn_of(state, job, now);
    let remedy = blocker
        .as_ref()
        .and_then(|blocker| remedy((state, now), job, blocker, placed));
    Some(Explanation {
        blocker,
        waiting_units: job.counts.waiting,
        ahead: jobs_ahead(state, job),
        classes: class_counts(state, job),
        remedy,
    })
}

/// What a planning round does in the job's turn: the blocker of its next unit (none if nothing of it is
/// left waiting), and the units that it places before.
fn turn_of(state: &State, job: &Job, now: TimeMs) -> (Option<Blocker>, usize) {
    if job.counts.waiting == 0 {
        return (None, 0);
    }
    let budget = Budget {
        steps_max: usize::MAX,
        examined_max: usize::MAX,
    };
    let (line, _) = Line::of(&state.queues, job);
    let state = &at(state, now);
    let mut round = Round::new(state, now, budget).explaining();
    round.place_claimed();
    let Some(line) = round.order().position(&line) else {
        return (None, 0);
    };
    if round.is_done_early(line, job.id) {
        return (None, 1);
    }
    let mut placed = 0;
    while let Some(turn) = round.step() {
        let plan = round.plan();
        if turn.job == job.id {
            let met = plan
                .blocked
                .last()
                .filter(|(blocked, _)| *blocked == job.id);
            match met {
                Some((_, blocker)) => return (Some(blocker.clone()), placed),
                None => placed += 1,
            }
            if !round.order().is_head(turn) {
                return (None, placed);
            }
        } else if let Some(blocker) = round.closed(line) {
            return (Some(blocker.clone()), placed);
        }
    }
    (None, placed)
}

/// Jobs of the same queue that come first and compete for the same hosts.
fn jobs_ahead(state: &State, job: &Job) -> u64 {
    let (line, own) = Line::of(&state.queues, job);
    let lines = state.index.waiting.iter();
    lines
        .filter(|(other, _)| other.queue == line.queue && line.shape.meets(&other.shape))
        .map(|(_, jobs)| jobs.range(..own).count() as u64)
        .sum()
}

/// Counts the hosts and GPUs that the job may use.
fn class_counts(state: &State, job: &Job) -> Vec<ClassCount> {
    let needs_gpus = Shape::of(job).needs_gpus();
    let acceptable = |model: &str| {
        let mut groups = job.spec.groups.iter();
        groups.any(|group| group.resources.gpus > 0 && group.resources.accepts_model(model))
    };
    let mut counts: BTreeMap<HostClass, ClassCount> = BTreeMap::new();
    for host in state.hosts.values() {
        if host.gpus.is_empty() && !needs_gpus {
            count_host(counts.entry(HostClass::from("")).or_default(), host);
        }
        let mut models: Vec<&HostClass> = host.gpus.iter().map(|gpu| &gpu.model).collect();
        models.sort();
        models.dedup();
        for model in models {
            if !needs_gpus || acceptable(model) {
                let count = counts.entry(HostClass::clone(model)).or_default();
                count_host(count, host);
                count_gpus(count, host, model);
            }
        }
    }
    counts
        .into_iter()
        .map(|(model, count)| ClassCount {
            model: model.as_ref().to_owned(),
            ..count
        })
        .collect()
}

fn count_host(count: &mut ClassCount, host: &Host) {
    count.hosts += 1;
    count.hosts_accepting += u64::from(host.accepts_work());
}

fn count_gpus(count: &mut ClassCount, host: &Host, model: &HostClass) {
    for gpu in host.gpus.iter().filter(|gpu| gpu.model == *model) {
        count.gpus += 1;
        let counter = if gpu.holder.is_some() {
            &mut count.gpus_held
        } else if gpu.health != crate::command::GpuHealth::Healthy {
            &mut count.gpus_faulted
        } else if gpu.block.is_some() || host.block.is_some() {
            &mut count.gpus_blocked
        } else if host.health != HostHealth::Up {
            &mut count.gpus_silent
        } else {
            &mut count.gpus_free
        };
        *counter += 1;
    }
}

fn remedy(
    (state, now): (&State, TimeMs),
    job: &Job,
    blocker: &Blocker,
    placed: usize,
) -> Option<Remedy> {
    match blocker {
        Blocker::BackOff { until } => Some(Remedy::Wait { until: *until }),
        Blocker::Cancelling => None,
        Blocker::Limit(limit) => Some(Remedy::RaiseLimit {
            limit: limit.clone(),
        }),
        Blocker::Reserved { expected_at, .. } | Blocker::Moving { expected_at, .. } => {
            expected_at.map(|until| Remedy::Wait { until })
        }
        Blocker::NoSuchHost { need } => Some(Remedy::Grow { need: need.clone() }),
        Blocker::ExceedsCluster {
            need_gpus,
            have_gpus,
        } => Some(Remedy::Grow {
            need: format!("{} GPUs", need_gpus.saturating_sub(*have_gpus).max(1)),
        }),
        Blocker::Behind { ahead } => Some(Remedy::PlaceAhead { ahead: *ahead }),
        Blocker::Resources {
            fits_tasks,
            need_tasks,
            ..
        } => unblock((state, now), job, placed)
            .map(|targets| Remedy::Unblock { targets })
            .or_else(|| free(state, job, need_tasks - fits_tasks)),
    }
}

/// The blocks whose end would let the job's next unit be placed: one alone if one does, else the first
/// few together.
fn unblock((state, now): (&State, TimeMs), job: &Job, placed: usize) -> Option<Vec<BlockTarget>> {
    let blocks: Vec<BlockTarget> = state
        .hosts
        .values()
        .flat_map(|host| blocks_of(host))
        .take(BLOCKS_TRIED_MAX)
        .collect();
    let helps = |targets: &[BlockTarget]| {
        let mut fork = state.clone();
        for (target, number) in targets.iter().zip(0u128..) {
            let unblock = Command::Unblock {
                request: RequestId(u128::MAX - number),
                target: target.clone(),
                author: "explain".to_owned(),
            };
            apply(&mut fork, now, &unblock);
        }
        let (blocker, now_placed) = turn_of(&fork, job, now);
        blocker.is_none() || now_placed > placed
    };
    let singly = blocks.iter().map(std::slice::from_ref);
    let together = (2..=blocks.len()).map(|count| &blocks[..count]);
    singly
        .chain(together)
        .find(|targets| helps(targets))
        .map(<[BlockTarget]>::to_vec)
}

fn blocks_of(host: &Host) -> impl Iterator<Item = BlockTarget> {
    let of_host = host
        .block
        .iter()
        .map(|_| BlockTarget::Host(host.name.as_ref().to_owned()));
    let gpus = host.gpus.iter().filter(|gpu| gpu.block.is_some());
    of_host.chain(gpus.map(|gpu| BlockTarget::Gpu(gpu.uuid)))
}

/// What would have to become free for the job's next unit.
fn free(state: &State, job: &Job, tasks: u64) -> Option<Remedy> {
    let unit = job.waiting_units().next()?;
    let (group, _) = job.spec.group_of(TaskIndex(job.tasks_of(unit).start))?;
    if tasks == 1
        && let Some((host, gpus)) = nearest_host(state, group)
    {
        return Some(Remedy::FreeGpus {
            gpus,
            host: host.name.as_ref().to_owned(),
        });
    }
    Some(Remedy::FreeRoom {
        tasks,
        each: describe(&group.resources),
    })
}

/// The host that lacks the fewest GPUs for a task and accepts work, and how many; none if CPUs or memory
/// are what is missing.
fn nearest_host<'a>(state: &'a State, group: &TaskGroup) -> Option<(&'a Host, u32)> {
    let classes = state.index.free.iter();
    let fullest = classes
        .filter(|(model, _)| !model.is_empty() && group.resources.accepts_model(model))
        .filter_map(|(model, hosts)| hosts.get_max().map(|(free, host)| (*free, *host, model)))
        .max()?;
    let (free, host, _) = fullest;
    let missing = group.resources.gpus.checked_sub(free)?;
    (missing > 0)
        .then(|| state.host(host).map(|host| (host, missing)))
        .flatten()
}
