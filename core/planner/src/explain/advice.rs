//! Search for remedies: the smallest change with which a waiting job could start.
//!
//! Changes that leave the job as it is come first (time, removed blocks, a raised limit), then changes to
//! its request, each kind starting from the smallest change. The last resort is named without a trial and
//! says so.

use std::collections::BTreeSet;

use muster_engine::apply::apply;
use muster_engine::state::{BlockChange, Job, State};
use muster_model::command::{BlockTarget, Command};
use muster_model::host::Host;
use muster_model::ids::{RequestId, RequestKey, UnitIndex};
use muster_model::quota::QueueConfig;
use muster_model::spec::TaskGroup;
use muster_model::time::TimeMs;

use crate::blocker::{RoomShortage, TopologyShortage};
use crate::diagnose::first_group;
use crate::explain::remedy::Remedy;
use crate::explain::search_budget::SearchBudget;
use crate::explain::turn::TurnOutcome;
use crate::explain::{helps, queues};
use crate::feasibility::describe;
use crate::{Blocker, Change, LimitKind, LimitReached};

/// Blocks tried as the reason, first one by one, then together.
const BLOCKS_TRIED_MAX: usize = 16;

/// Hosts whose exclusion is tried as the reason, first one by one, then all together.
const EXCLUDED_TRIED_MAX: usize = 16;

/// Planned host blocks tried as an earlier end for the job.
const PLANS_TRIED_MAX: usize = 16;

/// Shortest time limit that a job is advised to take, in milliseconds.
const RUN_TIME_MS_MIN: u64 = 60_000;

/// Shortest span before a planned block that is reported, in milliseconds: shorter ones would be shown as
/// zero.
const SPAN_MS_MIN: u64 = 1_000;

/// A remedy, and whether it suffices.
pub(super) struct Advice {
    pub(super) remedy: Remedy,
    pub(super) is_enough: bool,
}

impl Advice {
    const fn enough(remedy: Remedy) -> Self {
        Self {
            remedy,
            is_enough: true,
        }
    }

    const fn needed(remedy: Remedy) -> Self {
        Self {
            remedy,
            is_enough: false,
        }
    }
}

/// A search for a remedy.
#[derive(Clone, Copy)]
struct Search<'s, 'a> {
    state: &'s State,
    job: &'s Job,
    outcome: &'s TurnOutcome<'a>,
    budget: &'s SearchBudget<'s>,
}

pub(super) fn find(
    state: &State,
    job: &Job,
    outcome: &TurnOutcome<'_>,
    budget: &SearchBudget<'_>,
) -> Option<Advice> {
    let search = Search {
        state,
        job,
        outcome,
        budget,
    };
    let wait = |until: TimeMs| Remedy::Wait { until };
    match outcome.blocker.as_ref()? {
        // Only the end of other attempts helps, which cannot be forced.
        Blocker::Cancelling
        | Blocker::Suspended { .. }
        | Blocker::Dependencies { .. }
        | Blocker::Vacancy { .. }
        | Blocker::TasksAtOnce { .. } => None,
        Blocker::BackOff { until } => Some(Advice {
            remedy: wait(*until),
            is_enough: search.fits(job),
        }),
        Blocker::Reserved { expected_at, .. } | Blocker::Moving { expected_at, .. } => {
            expected_at.map(|at| Advice::enough(wait(at)))
        }
        Blocker::ReservedByOthers { until, .. } => search.ends_before(*until).or_else(|| {
            let until = (*until)?;
            Some(Advice::needed(wait(until)))
        }),
        Blocker::BehindHead { ahead } => Some(Advice::needed(Remedy::PlaceAhead { ahead: *ahead })),
        Blocker::NoSuchHost { need } => Some(Advice::needed(Remedy::Grow { need: need.clone() })),
        Blocker::ExceedsCluster {
            need_gpus,
            have_gpus,
        } => Some(Advice::needed(Remedy::Grow {
            need: format!("{} GPUs", need_gpus.saturating_sub(*have_gpus).max(1)),
        })),
        Blocker::Limit(limit) => Some(search.past_limit(limit)),
        blocker => search
            .unblock()
            .or_else(|| search.changed_request(blocker))
            .or_else(|| search.fewer_tasks())
            .or_else(|| search.outside_cells(blocker))
            .or_else(|| search.resources_to_free(blocker)),
    }
}

impl Search<'_, '_> {
    fn unit(self) -> Option<UnitIndex> {
        self.outcome.round.as_ref().map(|(_, _, unit)| *unit)
    }

    /// Whether the job's unit would be placed in its turn with this version of the job. A trial that
    /// exceeds the search budget counts as no help.
    fn fits(self, job: &Job) -> bool {
        let round = self.outcome.round.as_ref();
        round.is_some_and(|(round, turn, unit)| {
            self.budget.try_spend() && round.finds_room(*turn, job, *unit)
        })
    }

    /// Whether the job could proceed in another state.
    fn is_helped(self, fork: &State) -> bool {
        self.budget.try_spend() && helps(fork, self.job, self.outcome)
    }

    fn change(self, change: Change) -> Option<Advice> {
        self.fits(&change.of(self.job)).then(|| {
            let change = Box::new(change);
            Advice::enough(Remedy::Change { change })
        })
    }

    fn first_that_fits(self, changes: impl IntoIterator<Item = Change>) -> Option<Advice> {
        changes.into_iter().find_map(|change| self.change(change))
    }

    /// Room reserved for a later time suffices for work that has ended by then.
    fn ends_before(self, until: Option<TimeMs>) -> Option<Advice> {
        let run_time_ms_max = until?.since(self.outcome.now);
        let asked = self.job.spec.scheduling.run_time_ms_max;
        let shorter = asked.is_none_or(|asked| asked > run_time_ms_max);
        if run_time_ms_max < RUN_TIME_MS_MIN || !shorter {
            return None;
        }
        self.change(Change::RunTime { run_time_ms_max })
    }

    fn past_limit(self, reached: &LimitReached) -> Advice {
        let raise = Remedy::RaiseLimit {
            limit: Box::new(reached.clone()),
        };
        let change = |config: &mut QueueConfig| queues::raise(config, reached);
        let raised = queues::with_queue(self.state, self.outcome.now, &reached.queue, change);
        if raised.is_some_and(|fork| self.is_helped(&fork)) {
            return Advice::enough(raise);
        }
        let of_guarantee = (reached.kind == LimitKind::Guarantee).then_some(Change::Opportunistic);
        self.first_that_fits(of_guarantee)
            .or_else(|| self.fewer_tasks())
            .unwrap_or(Advice::needed(raise))
    }

    /// The blocks whose removal would let the job's next unit be placed: a single one if that suffices,
    /// else the smallest prefix of the list.
    fn unblock(self) -> Option<Advice> {
        let hosts = self.state.hosts.values();
        let blocks: Vec<BlockTarget> = hosts
            .flat_map(|host| blocks_of(host))
            .take(BLOCKS_TRIED_MAX)
            .collect();
        let found = |targets: &[BlockTarget]| {
            let targets = targets.to_vec();
            Advice::enough(Remedy::Unblock { targets })
        };
        if !self.helps_to_unblock(&blocks) {
            return None;
        }
        let mut singly = blocks.iter().map(std::slice::from_ref);
        if let Some(one) = singly.find(|targets| self.helps_to_unblock(targets)) {
            return Some(found(one));
        }
        let (mut too_few, mut enough) = (1, blocks.len());
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            match self.helps_to_unblock(&blocks[..middle]) {
                true => enough = middle,
                false => too_few = middle,
            }
        }
        Some(found(&blocks[..enough]))
    }

    fn helps_to_unblock(self, blocks: &[BlockTarget]) -> bool {
        let mut fork = self.state.clone();
        for (target, number) in blocks.iter().zip(0u128..) {
            let unblock = Command::Unblock {
                request: RequestKey::of(RequestId(u128::MAX - number)),
                target: target.clone(),
                author: "explain".to_owned(),
                planned: false,
            };
            apply(&mut fork, self.outcome.now, &unblock);
        }
        !blocks.is_empty() && self.is_helped(&fork)
    }

    /// A changed request without the constraint that blocks the job.
    fn changed_request(self, blocker: &Blocker) -> Option<Advice> {
        match blocker {
            Blocker::Topology(short) => self.first_that_fits(self.larger_levels(short)),
            Blocker::TasksPerHost { group, limit, .. } => {
                let doubling = std::iter::successors(Some(limit + 1), |tasks| tasks.checked_mul(2));
                let most = self.job.spec.tasks();
                let limits = doubling
                    .take_while(|tasks| u64::from(*tasks) < most)
                    .map(Some)
                    .chain([None]);
                self.first_that_fits(limits.map(|tasks| Change::TasksPerHost {
                    group: group.clone(),
                    tasks,
                }))
            }
            Blocker::ExclusiveHosts { .. } => self.change(Change::ShareHosts),
            Blocker::Named { .. } => self
                .change(Change::AnyPlace)
                .or_else(|| self.first_that_fits(self.shorter_run_times())),
            Blocker::Excluded { hosts } => {
                let singly = hosts
                    .iter()
                    .take(EXCLUDED_TRIED_MAX)
                    .map(|host| vec![host.clone()]);
                let all = self.job.spec.scheduling.hosts_excluded.clone();
                let sets = singly.chain([hosts.clone(), all]);
                self.first_that_fits(sets.map(|hosts| Change::Include { hosts }))
            }
            Blocker::Model { others, .. } => {
                let singly = others.iter().map(|model| vec![model.clone()]);
                let sets = singly.chain([others.clone()]);
                self.first_that_fits(sets.map(|models| Change::AcceptModels { models }))
            }
            Blocker::Room(short) => self.first_that_fits(smaller_requests(short)),
            _ => None,
        }
    }

    /// Run times with which the job would end before planned host blocks, longest first.
    fn shorter_run_times(self) -> Vec<Change> {
        let changes = self.state.index.block_changes.iter();
        let begins = changes.filter(|(_, _, change)| *change == BlockChange::Begins);
        let asked = self.job.spec.scheduling.run_time_ms_max;
        let spans: BTreeSet<u64> = begins
            .take(PLANS_TRIED_MAX)
            .map(|(at, ..)| at.since(self.outcome.now))
            .filter(|span| *span >= SPAN_MS_MIN && asked.is_none_or(|asked| asked > *span))
            .collect();
        let longest_first = spans.into_iter().rev();
        longest_first
            .map(|run_time_ms_max| Change::RunTime { run_time_ms_max })
            .collect()
    }

    /// Larger cells than the required one, smallest first, then the same level as a preference.
    fn larger_levels(self, short: &TopologyShortage) -> Vec<Change> {
        let topology = &self.state.topology;
        let within = |level: &str, required| Change::Within {
            group: short.group.clone(),
            level: level.to_owned(),
            required,
        };
        let mut larger: Vec<Change> = topology
            .levels()
            .take_while(|level| *level != short.level)
            .map(|level| within(level, true))
            .collect();
        larger.reverse();
        larger.push(within(&short.level, false));
        larger
    }

    /// The most tasks of a gang's largest group that would fit now.
    fn fewer_tasks(self) -> Option<Advice> {
        let groups = self.job.spec.groups.iter().filter(|_| self.job.spec.gang);
        let group = groups.max_by_key(|group| group.count)?;
        let change = |tasks| Change::FewerTasks {
            group: group.name.clone(),
            tasks,
        };
        let (mut fits, mut fits_not) = (0, group.count);
        while fits_not - fits > 1 {
            let middle = fits + (fits_not - fits) / 2;
            match self.fits(&change(middle).of(self.job)) {
                true => fits = middle,
                false => fits_not = middle,
            }
        }
        (fits > 0).then(|| {
            let change = Box::new(change(fits));
            Advice::enough(Remedy::Change { change })
        })
    }

    /// Remedies for a job of a virtual cluster that has no cells for it.
    fn outside_cells(self, blocker: &Blocker) -> Option<Advice> {
        let Blocker::Cells(short) = blocker else {
            return None;
        };
        let opportunistic = self.change(Change::Opportunistic);
        opportunistic.or_else(|| {
            let borrow = |config: &mut QueueConfig| config.borrow = true;
            let fork = queues::with_queue(self.state, self.outcome.now, &short.queue, borrow)?;
            let queue = short.queue.clone();
            self.is_helped(&fork)
                .then(|| Advice::enough(Remedy::Borrow { queue }))
        })
    }

    /// Resources that would have to become free for the job's next unit.
    fn resources_to_free(self, blocker: &Blocker) -> Option<Advice> {
        let (fits_tasks, need_tasks) = match blocker {
            Blocker::Resources {
                fits_tasks,
                need_tasks,
                ..
            }
            | Blocker::ExclusiveHosts {
                fits_tasks,
                need_tasks,
                ..
            }
            | Blocker::TasksPerHost {
                fits_tasks,
                need_tasks,
                ..
            } => (*fits_tasks, *need_tasks),
            Blocker::Room(short) => (short.fits_tasks, short.need_tasks),
            Blocker::Topology(short) => (short.fits_tasks, short.need_tasks),
            _ => return None,
        };
        let tasks = need_tasks.saturating_sub(fits_tasks);
        let group = first_group(self.job, self.unit()?)?;
        if tasks == 1
            && matches!(blocker, Blocker::Resources { .. })
            && let Some((host, gpus)) = nearest_host(self.state, group)
        {
            return Some(Advice::needed(Remedy::FreeGpus {
                gpus,
                host: host.name.as_ref().to_owned(),
            }));
        }
        Some(Advice::needed(Remedy::FreeRoom {
            tasks,
            each: describe(&group.resources),
        }))
    }
}

/// CPUs and memory that are free on hosts with free GPUs, for one task and then for several on a host.
fn smaller_requests(short: &RoomShortage) -> Vec<Change> {
    let halves = std::iter::successors(Some(1), |tasks: &u32| tasks.checked_mul(2)).take(7);
    halves
        .map(|tasks| Change::Less {
            cpus_milli: if short.need_cpus_milli > short.free_cpus_milli_max / tasks {
                short.free_cpus_milli_max / tasks
            } else {
                u32::MAX
            },
            memory_mib: if short.need_memory_mib > short.free_memory_mib_max / u64::from(tasks) {
                short.free_memory_mib_max / u64::from(tasks)
            } else {
                u64::MAX
            },
        })
        .collect()
}

fn blocks_of(host: &Host) -> impl Iterator<Item = BlockTarget> {
    let of_host = host
        .block
        .iter()
        .map(|_| BlockTarget::Host(host.name.as_ref().to_owned()));
    let gpus = host.gpus.iter().filter(|gpu| gpu.block.is_some());
    of_host.chain(gpus.map(|gpu| BlockTarget::Gpu(gpu.uuid)))
}

/// The host that accepts work and lacks the fewest GPUs for a task, with that number; `None` if CPUs or
/// memory are short.
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
