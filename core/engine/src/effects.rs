//! Effects of a queue configuration change on existing jobs: a pure function of the state before and after
//! it.
//!
//! A change stops no work. It can let a queue hold more than its limit (nothing new starts there until it is
//! below again), shrink a guarantee (others may reclaim the excess), take cells from a virtual cluster (work
//! in them continues as opportunistic), and set limits below the request of a waiting job (which can then
//! never start).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_model::command::AllocationBasis;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, JobId};
use muster_model::quota::{Amounts, Guarantee, Limits, QueueConfig, within};
use muster_model::spec::{JobSpec, Resources};
use serde::{Deserialize, Serialize};

use crate::state::{Queue, State, amounts_held};

/// Maximum number of jobs named per kind of effect.
const JOBS_NAMED_MAX: usize = 100;

/// Kind of change of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueEffectKind {
    /// New queue.
    Added,
    /// Its configuration changes.
    Changed,
    /// It accepts no new jobs, has no guarantee, and is removed with its last job.
    Retired,
}

/// A number of jobs, with the first of them by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedJobs {
    /// Their number.
    pub total: u64,
    /// The first of them.
    pub first: Vec<JobId>,
}

impl NamedJobs {
    fn add(&mut self, job: JobId) {
        self.total += 1;
        if self.first.len() < JOBS_NAMED_MAX {
            self.first.push(job);
        }
    }
}

/// Excess of a user over its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserOverLimit {
    /// Name of the user.
    pub user: String,
    /// Amounts over the limit.
    pub over: Amounts,
}

/// Effects of a change on one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEffect {
    /// Its full name.
    pub name: String,
    /// Kind of change.
    pub change: QueueEffectKind,
    /// Its unfinished jobs.
    pub live_jobs: u64,
    /// What it and its children hold now.
    pub held: Amounts,
    /// Its former guarantee; `None` if it is new.
    pub guarantee_before: Option<Guarantee>,
    /// Its new guarantee; `None` if it is retired.
    pub guarantee: Option<Guarantee>,
    /// Reduction of its guarantee; zero if either is given in cells.
    pub guarantee_lost: Amounts,
    /// Reduction of its guarantee in cells, over all kinds.
    pub cells_lost: u64,
    /// Amount held over its new guarantee, which others may reclaim; `None` for virtual clusters.
    pub reclaimable: Option<Amounts>,
    /// Amount held over its new limit: nothing new starts there until it is below.
    pub over_limit: Amounts,
    /// Users over their new limit.
    pub users_over_limit: Vec<UserOverLimit>,
    /// The newest running jobs that account for the excess over a limit of it or its users. They continue.
    pub jobs_over_limit: NamedJobs,
    /// Waiting jobs that ask for more than a new limit allows in total.
    pub jobs_too_large: NamedJobs,
    /// Jobs with attempts that lose their cells and continue as opportunistic work.
    pub downgraded: NamedJobs,
}

/// Returns the queues that differ between two states, by name; the second state follows from the first by one
/// change.
#[must_use]
pub fn queue_effects(before: &State, after: &State) -> Vec<QueueEffect> {
    let names: BTreeSet<_> = before.queues.keys().chain(after.queues.keys()).collect();
    let mut effects: BTreeMap<String, QueueEffect> = names
        .into_iter()
        .filter_map(|name| Some((name.to_string(), effect(before, after, name)?)))
        .collect();
    name_jobs_over_limit(after, &mut effects);
    name_jobs_too_large(after, &mut effects);
    name_downgraded(before, after, &mut effects);
    effects.into_values().collect()
}

fn effect(before: &State, after: &State, name: &Arc<str>) -> Option<QueueEffect> {
    let (old, new) = (before.queues.get(name), after.queues.get(name));
    let change = change_of(old.map(AsRef::as_ref), new.map(AsRef::as_ref))?;
    let usage = after.index.usage.get(name);
    let total = usage.map(|usage| &usage.total);
    let held = total.map(|total| total.held.clone()).unwrap_or_default();
    let firm = total.map(|total| total.held.without(&total.opportunistic));
    let config = |queue: Option<&Arc<Queue>>| {
        let live = queue.filter(|queue| !queue.retired);
        live.map(|queue| Arc::clone(&queue.config))
    };
    let (was, is) = (config(old), config(new));
    let guarantee =
        |config: &Option<Arc<QueueConfig>>| config.as_ref().map(|config| config.guarantee.clone());
    let reclaimable = match is.as_ref().map(|config| &config.guarantee) {
        Some(Guarantee::Amounts(amounts)) => firm.map(|firm| firm.without(amounts)),
        Some(Guarantee::Cells(_)) => None,
        None => firm,
    };
    let users = usage.map(|usage| usage.users.iter()).into_iter().flatten();
    let limits = is
        .as_deref()
        .map(|config| (&config.limit, &config.user_limit));
    let users_over = limits.map(|(_, limit)| {
        let over = users.filter_map(|(user, usage)| {
            let over = excess(&usage.held, limit);
            let user = user.to_string();
            (!over.is_zero()).then_some(UserOverLimit { user, over })
        });
        over.collect()
    });
    Some(QueueEffect {
        name: name.to_string(),
        change,
        live_jobs: new.or(old).map_or(0, |queue| queue.live_jobs),
        over_limit: limits
            .map(|(limit, _)| excess(&held, limit))
            .unwrap_or_default(),
        users_over_limit: users_over.unwrap_or_default(),
        held,
        guarantee_lost: guarantee_lost(was.as_deref(), is.as_deref()),
        cells_lost: cells(was.as_deref()).saturating_sub(cells(is.as_deref())),
        guarantee_before: guarantee(&was),
        guarantee: guarantee(&is),
        reclaimable: reclaimable.filter(|amounts| !amounts.is_zero()),
        jobs_over_limit: NamedJobs::default(),
        jobs_too_large: NamedJobs::default(),
        downgraded: NamedJobs::default(),
    })
}

fn change_of(old: Option<&Queue>, new: Option<&Queue>) -> Option<QueueEffectKind> {
    let is_there = |queue: Option<&Queue>| queue.is_some_and(|queue| !queue.retired);
    match (is_there(old), is_there(new)) {
        (false, true) => Some(QueueEffectKind::Added),
        (true, false) => Some(QueueEffectKind::Retired),
        (true, true) if old.map(|queue| &queue.config) != new.map(|queue| &queue.config) => {
            Some(QueueEffectKind::Changed)
        }
        _ => None,
    }
}

fn guarantee_lost(was: Option<&QueueConfig>, is: Option<&QueueConfig>) -> Amounts {
    let amounts = |config: Option<&QueueConfig>| match config.map(|config| &config.guarantee) {
        Some(Guarantee::Amounts(amounts)) => amounts.clone(),
        Some(Guarantee::Cells(_)) | None => Amounts::default(),
    };
    amounts(was).without(&amounts(is))
}

fn cells(config: Option<&QueueConfig>) -> u64 {
    match config.map(|config| &config.guarantee) {
        Some(Guarantee::Cells(quotas)) => {
            let counts = quotas
                .iter()
                .map(|quota| u64::from(quota.count) + quota.pinned.len() as u64);
            counts.sum()
        }
        _ => 0,
    }
}

/// Returns the excess of amounts over limits.
fn excess(held: &Amounts, limit: &Limits) -> Amounts {
    let over = |held: u64, limit: Option<u64>| limit.map_or(0, |limit| held.saturating_sub(limit));
    let by_model = held.gpus_by_model.iter().map(|(model, held)| {
        let limit = limit.gpus_by_model.get(model).copied();
        (model.clone(), over(*held, limit))
    });
    Amounts {
        gpus: over(held.gpus, limit.gpus),
        gpus_by_model: by_model.filter(|(_, over)| *over > 0).collect(),
        cpus_milli: over(held.cpus_milli, limit.cpus_milli),
        memory_mib: over(held.memory_mib, limit.memory_mib),
    }
}

/// A running attempt of a queue over its limit.
struct Holding<'a> {
    epoch: AttemptEpoch,
    job: JobId,
    user: &'a str,
    held: Amounts,
}

/// Names the newest running jobs of queues and users over a limit, until the rest is within it.
fn name_jobs_over_limit(after: &State, effects: &mut BTreeMap<String, QueueEffect>) {
    let over = effects.values_mut();
    let over: Vec<&mut QueueEffect> = over
        .filter(|effect| !effect.over_limit.is_zero() || !effect.users_over_limit.is_empty())
        .collect();
    for effect in over {
        let mut holdings = holdings(after, &effect.name);
        holdings.sort_by_key(|holding| std::cmp::Reverse(holding.epoch));
        let mut left = effect.over_limit.clone();
        let users = effect.users_over_limit.iter();
        let mut users: BTreeMap<String, Amounts> = users
            .map(|user| (user.user.clone(), user.over.clone()))
            .collect();
        let mut named = BTreeSet::new();
        for holding in holdings {
            let of_user = users.get_mut(holding.user);
            let lefts = [Some(&mut left), of_user];
            let mut is_meant = false;
            for left in lefts.into_iter().flatten() {
                let less = left.without(&holding.held);
                is_meant |= less != *left;
                *left = less;
            }
            if is_meant && named.insert(holding.job) {
                effect.jobs_over_limit.add(holding.job);
            }
        }
    }
}

/// Returns the running attempts of a queue and its children.
fn holdings<'a>(state: &'a State, queue: &str) -> Vec<Holding<'a>> {
    let jobs = state.jobs.values().filter(|job| {
        let is_within = within(&job.spec.queue).any(|name| name == queue);
        job.finished_at.is_none() && is_within
    });
    let holdings = jobs.flat_map(|job| {
        job.units.values().filter_map(|unit| {
            let attempt = unit.attempt.as_deref()?;
            Some(Holding {
                epoch: attempt.epoch,
                job: job.id,
                user: &job.spec.user,
                held: amounts_held(&state.hosts, &job.spec, attempt),
            })
        })
    });
    holdings.collect()
}

/// Names waiting jobs whose next unit alone exceeds a changed limit.
fn name_jobs_too_large(after: &State, effects: &mut BTreeMap<String, QueueEffect>) {
    let waiting = after.index.waiting.values();
    let waiting: BTreeSet<JobId> = waiting
        .flat_map(|jobs| jobs.iter().map(|(_, job)| *job))
        .collect();
    for job in waiting.into_iter().filter_map(|id| after.job(id)) {
        let least = least_of(&job.spec);
        for name in within(&job.spec.queue) {
            let Some(effect) = effects.get_mut(name) else {
                continue;
            };
            let queue = after.queues.get(name).filter(|queue| !queue.retired);
            let exceeds = queue.is_some_and(|queue| {
                let limits = [&queue.config.limit, &queue.config.user_limit];
                limits.iter().any(|limit| !excess(&least, limit).is_zero())
            });
            if exceeds {
                effect.jobs_too_large.add(job.id);
            }
        }
    }
}

/// Returns the minimum amounts of a unit of a job; GPUs count for a model only if the job accepts a single
/// one.
fn least_of(spec: &JobSpec) -> Amounts {
    let mut least = Amounts::default();
    let groups = spec.groups.iter();
    if spec.gang {
        for group in groups {
            let tasks = group.layout.count_min.unwrap_or(group.count);
            least.add(&task_of(&group.resources, u64::from(tasks)));
        }
        return least;
    }
    let tasks = groups.map(|group| task_of(&group.resources, 1));
    tasks.min_by_key(|amounts| amounts.gpus).unwrap_or_default()
}

fn task_of(resources: &Resources, tasks: u64) -> Amounts {
    let mut amounts = Amounts::default();
    match resources.gpu_models.as_slice() {
        [model] => amounts.add_tasks(resources, model, tasks),
        _ => {
            amounts.gpus = u64::from(resources.gpus) * tasks;
            amounts.cpus_milli = u64::from(resources.cpus_milli) * tasks;
            amounts.memory_mib = resources.memory_mib.saturating_mul(tasks);
        }
    }
    amounts
}

/// Names jobs whose attempts continue as opportunistic work, from the events of the change.
fn name_downgraded(before: &State, after: &State, effects: &mut BTreeMap<String, QueueEffect>) {
    let Ok(new_events) = after.events.after(before.revision) else {
        return;
    };
    for event in new_events.flat_map(|(_, events)| events.iter()) {
        if let EventKind::AllocationBasisChanged {
            job,
            allocation_basis: AllocationBasis::Opportunistic,
            ..
        } = &event.kind
            && let Some(record) = after.job(*job)
            && let Some(effect) = effects.get_mut(&record.spec.queue)
            && !effect.downgraded.first.contains(job)
        {
            effect.downgraded.add(*job);
        }
    }
}
