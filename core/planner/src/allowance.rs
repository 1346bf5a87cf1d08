//! Limit checks of one round: what queues and users may still use under their limits.

use imbl::OrdSet;
use muster_engine::rights::uncovered;
use muster_engine::state::{
    ExcludedUsage, Job, Queue, Running, State, Usage, UsageByQueue, UsageKind, UsageScope,
    add_usage, amounts_held, amounts_of, counted_twice, remove_usage, taken_over,
};
use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::ids::{TaskIndex, UnitId, UnitIndex};
use muster_model::quota::{Amounts, Guarantee, Limits, within};
use muster_model::spec::{JobSpec, TaskGroup};

use crate::blocker::{LimitKind, LimitReached};
use crate::running::stopping;

/// Usage checked against limits: the state's usage plus what the round has given out in queues with limits.
#[derive(Clone)]
pub(super) struct Allowance<'a> {
    state: &'a State,
    usage: UsageByQueue,
    /// Units whose attempts no longer count.
    ended: OrdSet<UnitId>,
    /// Units whose claims no longer count.
    used_up: OrdSet<UnitId>,
}

/// Tasks that a unit is about to claim: what it takes over from its own queue is not counted twice.
pub(super) type Claimed<'c> = Option<&'c [TaskPlacement]>;

impl<'a> Allowance<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            usage: state.index.usage.clone(),
            ended: OrdSet::new(),
            used_up: OrdSet::new(),
        }
    }

    /// The first limit that a job would exceed with the given additional amounts.
    pub(super) fn reached(
        &self,
        spec: &JobSpec,
        allocation_basis: &AllocationBasis,
        more: &Amounts,
    ) -> Option<LimitReached> {
        self.reached_by_claim(spec, allocation_basis, more, None)
    }

    /// Like `reached`, for a job that is about to claim the amounts.
    pub(super) fn reached_by_claim(
        &self,
        spec: &JobSpec,
        allocation_basis: &AllocationBasis,
        more: &Amounts,
        claimed: Claimed<'_>,
    ) -> Option<LimitReached> {
        within(&spec.queue).find_map(|name| {
            let queue = self.state.queues.get(name)?;
            let used = self.usage.get(name);
            let of_user = used.and_then(|used| used.users.get(spec.user.as_str()));
            let twice = |kind| {
                let whose = UsageScope {
                    queue: name,
                    user: (kind == LimitKind::User).then_some(spec.user.as_str()),
                    opportunistic: kind != LimitKind::Guarantee,
                };
                self.twice(whose, spec, claimed)
            };
            let limit_reached =
                |kind, (resource, would_be, limit): (String, u64, u64)| LimitReached {
                    queue: name.to_owned(),
                    user: (kind == LimitKind::User).then(|| spec.user.clone()),
                    kind,
                    asked: more.of(&resource),
                    used: would_be.saturating_sub(more.of(&resource)),
                    resource,
                    would_be,
                    limit,
                };
            let over = |kind, used: Amounts, limits: &Limits| {
                // Fast path: usage is nearly always below the limits.
                used.over(more, limits)?;
                let counted_once = used.without(&twice(kind));
                Some(limit_reached(kind, counted_once.over(more, limits)?))
            };
            let total = used.map(|used| &used.total);
            let config = &queue.config;
            over(LimitKind::Queue, all_of(total), &config.limit)
                .or_else(|| over(LimitKind::User, all_of(of_user), &config.user_limit))
                .or_else(|| {
                    let beyond = |twice: &Amounts| {
                        beyond_guarantee(queue, allocation_basis, total, twice, more)
                    };
                    beyond(&Amounts::default())?;
                    let over = beyond(&twice(LimitKind::Guarantee))?;
                    Some(limit_reached(LimitKind::Guarantee, over))
                })
        })
    }

    /// The part of a unit's claim that a queue or user both holds and claims.
    fn twice(&self, whose: UsageScope<'_>, spec: &JobSpec, claimed: Claimed<'_>) -> Amounts {
        let gone = ExcludedUsage {
            attempts: &|id| self.ended.contains(&id),
            claims: &|id| self.used_up.contains(&id),
        };
        let mut twice = counted_twice(self.state, whose, gone);
        if let Some(tasks) = claimed {
            twice.add(&taken_over(self.state, spec, tasks, whose, gone));
        }
        twice
    }

    /// The allowance without what the unit itself claims.
    pub(super) fn for_unit(&self, job: &Job, unit: UnitIndex) -> Self {
        let mut own = self.clone();
        if let Some(claim) = job.unit(unit).and_then(|known| known.claim.as_deref()) {
            let claimed = amounts_of(&self.state.hosts, &job.spec, &claim.tasks);
            remove_usage(&mut own.usage, &job.spec, UsageKind::Claimed, &claimed);
            own.used_up.insert(UnitId::new(job.id, unit));
        }
        own
    }

    /// The allowance after all attempts that are being stopped have ended.
    pub(super) fn without_stopping(&self) -> Self {
        let mut later = self.clone();
        for running in stopping(self.state) {
            later.take_back(&running);
        }
        later
    }

    /// Stops counting an attempt.
    pub(super) fn take_back(&mut self, running: &Running<'_>) {
        let Running { job, attempt, .. } = *running;
        let held = amounts_held(&self.state.hosts, &job.spec, attempt);
        remove_usage(
            &mut self.usage,
            &job.spec,
            UsageKind::held_by(attempt),
            &held,
        );
        self.ended.insert(running.unit_id());
    }

    /// Adds amounts given to a job.
    pub(super) fn charge(
        &mut self,
        spec: &JobSpec,
        allocation_basis: &AllocationBasis,
        more: &Amounts,
    ) {
        let part = match allocation_basis {
            AllocationBasis::Opportunistic => UsageKind::Opportunistic,
            AllocationBasis::Share | AllocationBasis::Cells(_) => UsageKind::Firm,
        };
        add_usage(&mut self.usage, spec, part, more);
    }
}

/// Whether the queue or one of its ancestors has a limit.
pub(super) fn is_limited(state: &State, queue: &str) -> bool {
    within(queue)
        .filter_map(|name| state.queues.get(name))
        .any(|queue| {
            let config = &queue.config;
            !config.borrow
                || config.limit != Limits::default()
                || config.user_limit != Limits::default()
        })
}

/// Amount by which a queue that does not borrow would exceed its guarantee with its share: the resource,
/// the resulting amount and the guaranteed amount. `twice` is the part of `usage` that is counted twice.
fn beyond_guarantee(
    queue: &Queue,
    allocation_basis: &AllocationBasis,
    usage: Option<&Usage>,
    twice: &Amounts,
    more: &Amounts,
) -> Option<(String, u64, u64)> {
    if queue.may_borrow() || *allocation_basis != AllocationBasis::Share {
        return None;
    }
    let guarantee = match &queue.config.guarantee {
        Guarantee::Amounts(amounts) => amounts.clone(),
        Guarantee::Cells(_) => Amounts::default(),
    };
    let mut after = all_of(usage);
    if let Some(usage) = usage {
        after = after.without(&usage.opportunistic).without(twice);
    }
    after.add(more);
    uncovered(&after, &guarantee, more)
}

fn all_of(usage: Option<&Usage>) -> Amounts {
    usage.map_or_else(Amounts::default, |usage| {
        let mut all = usage.held.clone();
        all.add(&usage.claimed);
        all
    })
}

/// Amounts that a unit requests; GPUs count under a model only if exactly one model is acceptable.
pub(super) fn amounts_asked(job: &Job, unit: UnitIndex) -> Amounts {
    let mut amounts = Amounts::default();
    let mut add = |group: &TaskGroup, tasks: u32| {
        let asked = &group.resources;
        match asked.gpu_models.as_slice() {
            [model] => amounts.add_tasks(asked, model, u64::from(tasks)),
            _ => amounts.add_tasks(asked, "", u64::from(tasks)),
        }
    };
    if job.spec.gang {
        for group in &job.spec.groups {
            add(group, group.count);
        }
    } else if let Some((group, _)) = job.spec.group_of(TaskIndex(unit.get())) {
        add(group, 1);
    }
    amounts
}

#[cfg(test)]
mod tests {
    use muster_harness::{Cluster, gang, single};
    use muster_model::limits::LIVE_JOBS_PER_QUEUE_MAX;
    use muster_model::quota::{Limits, QueueConfig, QueueTree};
    use muster_model::spec::DEFAULT_QUEUE;

    use crate::{Budget, plan};

    /// `validate` does not bound memory, so a log may hold such jobs.
    #[test]
    fn a_gang_whose_total_memory_overflows_is_planned_for() {
        let mut cluster = Cluster::with_hosts(2, 8);
        let limit = Limits {
            memory_mib: Some(u64::MAX - 1),
            ..Limits::default()
        };
        let config = QueueConfig {
            live_jobs_max: LIVE_JOBS_PER_QUEUE_MAX,
            limit,
            ..QueueConfig::default()
        };
        let queues = [(DEFAULT_QUEUE.to_owned(), config)].into();
        cluster.configure(QueueTree {
            queues,
            ..QueueTree::default()
        });
        cluster.submit(single("small", 1, 1));
        let small = plan(&cluster.state, cluster.now, Budget::default());
        for step in &small.steps {
            cluster.apply(step);
        }
        let mut spec = gang("endless", 3, 1);
        spec.groups[0].resources.memory_mib = u64::MAX;
        let endless = cluster.submit(spec);
        let plan = plan(&cluster.state, cluster.now, Budget::default());
        assert_eq!(small.placements().count(), 1);
        assert_eq!(plan.placements().count(), 0);
        let blocked: Vec<_> = plan.blocked.iter().map(|(job, _)| *job).collect();
        assert_eq!(blocked, [endless]);
    }
}
