//! Preemption: which attempts to stop so that a unit fits that has a right to their resources.
//!
//! Candidates are freed in an order until the unit fits; then every victim that is not needed is given back, the
//! dearest first. That is done for two orders (the least lost work first, and host by host, the cheapest host first),
//! and the cheaper outcome counts: a
//! heuristic, because the cheapest set is a knapsack.
//!
//! It is a proposal without side effects. Nobody is named if the unit would not fit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Standing, TaskPlacement, Victim};
use crate::ids::{GpuUuid, HostId, UnitIndex};
use crate::limits;
use crate::plan::allowance::Allowance;
use crate::plan::capacity::Capacity;
use crate::plan::prefix;
use crate::plan::running::Running;
use crate::quota::Amounts;
use crate::rights::{Preemptor, Right, Rights, Subject, lost_work_ms};
use crate::spec::TaskGroup;
use crate::state::{Job, Part, State, amounts_held, amounts_of};
use crate::time::TimeMs;

/// Victims that the last pass tries to give back one by one; beyond, all that are in the way stay victims.
const REPRIEVES_MAX: usize = 256;

/// A unit that wants room and does not find it.
#[derive(Clone, Copy)]
pub(super) struct Wanting<'a> {
    pub(super) job: &'a Job,
    pub(super) unit: UnitIndex,
    pub(super) standing: &'a Standing,
    pub(super) now: TimeMs,
}

/// Whom to stop, and where the unit goes then.
#[derive(Clone, Debug)]
pub(super) struct Preemption {
    pub(super) tasks: Vec<TaskPlacement>,
    /// Ascending.
    pub(super) victims: Vec<Victim>,
    /// When all of them have had their grace.
    pub(super) expected_at: TimeMs,
    cost: Cost,
}

/// Opportunistic work is lost first: only between sets that lose as much of the rest does it count.
type Cost = (u64, u64);

/// An attempt that may be stopped, and what that loses.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    running: Running<'a>,
    cost: Cost,
}

/// Whether anybody could be preempted for a unit at all, by a look at its queues.
pub(super) fn may_preempt(state: &State, wanting: Wanting<'_>) -> bool {
    if *wanting.standing == Standing::Opportunistic {
        return false;
    }
    let mut queues = crate::quota::within(&wanting.job.spec.queue);
    let own = state.queues.get(wanting.job.spec.queue.as_str());
    let by_priority = own.is_some_and(|queue| queue.config.preempt_by_priority);
    by_priority
        || queues.any(|name| {
            let queue = state.queues.get(name).filter(|queue| !queue.retired);
            queue.is_some_and(|queue| {
                let guarantee = crate::plan::share::guaranteed(&queue.config.guarantee);
                !guarantee.is_zero()
            })
        })
        || state.index.usage.iter().any(|(name, usage)| {
            crate::quota::parent_of(name).is_none() && !usage.total.opportunistic.is_zero()
        })
}

/// When the first attempt ceases to be protected that is protected now.
pub(super) fn protection_ends(
    state: &State,
    now: TimeMs,
    running: &[Running<'_>],
) -> Option<TimeMs> {
    let ends = running.iter().filter_map(|running| {
        let queue = state.queues.get(running.job.spec.queue.as_str())?;
        let attempt = running.attempt;
        let since = attempt.running_at.unwrap_or(attempt.placed_at);
        Some(since.after(queue.config.protected_ms))
    });
    ends.filter(|end| *end > now).min()
}

/// The cheapest set of victims found; none if the unit has no right to enough.
pub(super) fn propose(
    capacity: &Capacity<'_>,
    allowance: &Allowance<'_>,
    (wanting, running): (Wanting<'_>, &[Running<'_>]),
) -> Option<Preemption> {
    let state = capacity.state();
    let stopping: Vec<Victim> = running
        .iter()
        .filter(|running| running.is_stopping())
        .map(Running::named)
        .collect();
    let coming = capacity.free_attempts(&stopping);
    // What comes free anyway is enough: nobody else has to go.
    if prefix::try_without(&coming, &[], (wanting.job, wanting.unit)).is_some() {
        return None;
    }
    let mut best: Option<Preemption> = None;
    for amounts in asked_by_model(capacity, wanting.job, wanting.unit) {
        let candidates = candidates(state, wanting, &amounts, running);
        for order in [by_cost(candidates.clone()), by_host(candidates)] {
            let search = Search {
                capacity: &coming,
                allowance,
                wanting,
                order: takeable(state, wanting, &amounts, order),
            };
            let found = search.run();
            let cheaper =
                |found: &Preemption| best.as_ref().is_none_or(|best| found.cost < best.cost);
            if let Some(found) = found.filter(cheaper) {
                best = Some(found);
            }
        }
    }
    best
}

/// What the unit would hold, by the model that its GPUs would be of.
fn asked_by_model(capacity: &Capacity<'_>, job: &Job, unit: UnitIndex) -> Vec<Amounts> {
    let groups: Vec<(&TaskGroup, u64)> = if job.spec.gang {
        let groups = job.spec.groups.iter();
        groups
            .map(|group| (group, u64::from(group.count)))
            .collect()
    } else {
        let group = job.spec.group_of(crate::ids::TaskIndex(unit.get()));
        group.map(|(group, _)| (group, 1)).into_iter().collect()
    };
    let of_model = |model: &str| {
        let mut amounts = Amounts::default();
        for (group, tasks) in &groups {
            let accepted = &group.resources.gpu_models;
            let model = match accepted.first() {
                Some(first) if !group.resources.accepts_model(model) => first,
                _ => model,
            };
            amounts.add_tasks(&group.resources, model, *tasks);
        }
        amounts
    };
    let mut asking = groups.iter().filter(|(group, _)| group.resources.gpus > 0);
    if asking.clone().next().is_none() {
        return vec![of_model("")];
    }
    let models = capacity.models();
    models
        .filter(|model| asking.any(|(group, _)| group.resources.accepts_model(model)))
        .map(|model| of_model(model))
        .collect()
}

fn candidates<'a>(
    state: &State,
    wanting: Wanting<'_>,
    amounts: &Amounts,
    running: &[Running<'a>],
) -> Vec<Candidate<'a>> {
    let preemptor = Preemptor {
        job: wanting.job,
        unit: wanting.unit,
        standing: wanting.standing,
        amounts,
    };
    let rights = Rights::of(state, preemptor);
    let mut candidates = Vec::new();
    for running in running {
        if !running.serves(state, wanting.job) {
            continue;
        }
        let subject = Subject::attempt(running.job, running.attempt);
        if let Ok(right) = rights.over(&subject) {
            let lost = lost_work_ms(running.unit, running.attempt, wanting.now);
            candidates.push(Candidate {
                running: *running,
                cost: match right {
                    Right::Opportunistic => (0, lost),
                    Right::Priority | Right::Reclaim | Right::Cells => (lost, 0),
                },
            });
        }
    }
    candidates
}

/// Those that may be taken one after the other in this order: every one of another queue brings that queue nearer to
/// its guarantee.
fn takeable<'a>(
    state: &'a State,
    wanting: Wanting<'a>,
    amounts: &'a Amounts,
    order: Vec<Candidate<'a>>,
) -> Vec<Candidate<'a>> {
    let preemptor = Preemptor {
        job: wanting.job,
        unit: wanting.unit,
        standing: wanting.standing,
        amounts,
    };
    let mut rights = Rights::of(state, preemptor);
    let taken = order.into_iter().filter(|candidate| {
        let running = candidate.running;
        let subject = Subject::attempt(running.job, running.attempt);
        let allowed = rights.over(&subject).is_ok();
        if allowed {
            rights.take(&subject);
        }
        allowed
    });
    taken.take(limits::VICTIMS_PER_CLAIM_MAX).collect()
}

/// The least lost work first; of equals the lower priority, then the youngest.
fn by_cost(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    candidates.sort_by_key(|candidate| {
        let job = candidate.running.job;
        (candidate.cost, job.spec.priority, Reverse(job.id))
    });
    candidates
}

/// Host by host, the one that loses least first; an attempt over several hosts comes with its first.
fn by_host(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let mut cost_of: BTreeMap<HostId, Cost> = BTreeMap::new();
    for candidate in &candidates {
        for host in candidate.running.attempt.hosts() {
            let (firm, loose) = cost_of.entry(host).or_default();
            *firm = firm.saturating_add(candidate.cost.0);
            *loose = loose.saturating_add(candidate.cost.1);
        }
    }
    let mut candidates = candidates;
    candidates.sort_by_cached_key(|candidate| {
        let hosts = candidate.running.attempt.hosts();
        let costs = hosts.into_iter().filter_map(|host| {
            let cost = cost_of.get(&host)?;
            Some((*cost, host))
        });
        (
            costs.min(),
            candidate.cost,
            Reverse(candidate.running.job.id),
        )
    });
    candidates
}

/// One search along an order.
struct Search<'s, 'a> {
    capacity: &'s Capacity<'a>,
    allowance: &'s Allowance<'a>,
    wanting: Wanting<'s>,
    order: Vec<Candidate<'s>>,
}

impl Search<'_, '_> {
    fn run(&self) -> Option<Preemption> {
        let named: Vec<Victim> = self.order.iter().map(|one| one.running.named()).collect();
        let unit = (self.wanting.job, self.wanting.unit);
        let (count, tasks) = prefix::smallest(self.capacity, &named, unit)?;
        let mut victims: Vec<usize> = (0..count).collect();
        self.keep_in_the_way(&mut victims, &tasks);
        let mut tasks = tasks;
        self.reprieve(&mut victims, &mut tasks);
        self.finish(&victims, tasks)
    }

    fn names(&self, victims: &[usize]) -> Vec<Victim> {
        let named = victims
            .iter()
            .map(|victim| self.order[*victim].running.named());
        named.collect()
    }

    /// Gives those back that hold nothing where the unit goes.
    fn keep_in_the_way(&self, victims: &mut Vec<usize>, tasks: &[TaskPlacement]) {
        let in_the_way = InTheWay::of(tasks);
        victims.retain(|victim| in_the_way.holds(&self.order[*victim].running));
    }

    /// Gives back whoever is not needed, the dearest first.
    fn reprieve(&self, victims: &mut Vec<usize>, tasks: &mut Vec<TaskPlacement>) {
        let mut dearest_first = victims.clone();
        dearest_first.sort_by_key(|victim| Reverse(self.order[*victim].cost));
        for spared in dearest_first.into_iter().take(REPRIEVES_MAX) {
            if !victims.contains(&spared) {
                continue;
            }
            let rest: Vec<usize> = victims
                .iter()
                .copied()
                .filter(|one| *one != spared)
                .collect();
            let unit = (self.wanting.job, self.wanting.unit);
            if let Some(found) = prefix::try_without(self.capacity, &self.names(&rest), unit) {
                *victims = rest;
                self.keep_in_the_way(victims, &found);
                *tasks = found;
            }
        }
    }

    /// The proposal, if the unit has a right to all of them and to so much.
    fn finish(&self, victims: &[usize], tasks: Vec<TaskPlacement>) -> Option<Preemption> {
        let state = self.capacity.state();
        let Wanting {
            job,
            unit,
            standing,
            now,
        } = self.wanting;
        let amounts = amounts_of(&state.hosts, &job.spec, &tasks);
        let preemptor = Preemptor {
            job,
            unit,
            standing,
            amounts: &amounts,
        };
        let victims: Vec<&Candidate<'_>> = victims.iter().map(|one| &self.order[*one]).collect();
        let subjects = victims
            .iter()
            .map(|one| Subject::attempt(one.running.job, one.running.attempt));
        Rights::of(state, preemptor)
            .take_all(subjects.collect())
            .ok()?;
        let mut allowance = self.allowance.clone();
        for Candidate { running, .. } in &victims {
            let held = amounts_held(&state.hosts, &running.job.spec, running.attempt);
            allowance.take_back(&running.job.spec, Part::held_by(running.attempt), &held);
        }
        if victims.is_empty() || allowance.reached(&job.spec, standing, &amounts).is_some() {
            return None;
        }
        let grace_ms = victims.iter().map(|one| one.running.job.spec.stop_grace_ms);
        let mut named: Vec<Victim> = victims.iter().map(|one| one.running.named()).collect();
        named.sort_unstable();
        Some(Preemption {
            tasks,
            victims: named,
            expected_at: now.after(grace_ms.max().unwrap_or(0)),
            cost: victims.iter().fold((0, 0), |(firm, loose), one| {
                let (more_firm, more_loose) = one.cost;
                (
                    u64::saturating_add(firm, more_firm),
                    u64::saturating_add(loose, more_loose),
                )
            }),
        })
    }
}

/// What a unit takes at its place.
struct InTheWay {
    gpus: BTreeSet<GpuUuid>,
    hosts: BTreeSet<HostId>,
}

impl InTheWay {
    fn of(tasks: &[TaskPlacement]) -> Self {
        Self {
            gpus: tasks.iter().flat_map(|task| &task.gpus).copied().collect(),
            hosts: tasks.iter().map(|task| task.host).collect(),
        }
    }

    /// Whether an attempt holds a GPU of it, or is without GPUs on one of its hosts.
    fn holds(&self, running: &Running<'_>) -> bool {
        running.attempt.tasks.iter().any(|run| {
            run.gpus.iter().any(|gpu| self.gpus.contains(gpu))
                || (self.gpus.is_empty() || run.gpus.is_empty()) && self.hosts.contains(&run.host)
        })
    }
}
