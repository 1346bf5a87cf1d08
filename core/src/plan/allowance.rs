//! What queues and their users may still have, as one planning round sees it.

use crate::command::Standing;
use crate::ids::{TaskIndex, UnitIndex};
use crate::plan::blocker::{LimitKind, LimitReached};
use crate::plan::running::{Running, stopping};
use crate::quota::{Amounts, Guarantee, Limits, within};
use crate::rights::uncovered;
use crate::spec::{JobSpec, TaskGroup};
use crate::state::{
    Job, Part, Queue, State, Usage, UsageByQueue, add_usage, amounts_held, amounts_of, remove_usage,
};

/// Usage against limits: that of the state, and what the round gave out in queues with limits.
#[derive(Clone)]
pub(super) struct Allowance<'a> {
    state: &'a State,
    usage: UsageByQueue,
}

impl<'a> Allowance<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            usage: state.index.usage.clone(),
        }
    }

    /// The first limit that a job would pass with so much more.
    pub(super) fn reached(
        &self,
        spec: &JobSpec,
        standing: &Standing,
        more: &Amounts,
    ) -> Option<LimitReached> {
        within(&spec.queue).find_map(|name| {
            let queue = self.state.queues.get(name)?;
            let used = self.usage.get(name);
            let of_user = used.and_then(|used| used.users.get(spec.user.as_str()));
            let over = |kind, used: Amounts, limits: &Limits| {
                let (resource, would_be, limit) = used.over(more, limits)?;
                Some(LimitReached {
                    queue: name.to_owned(),
                    user: (kind == LimitKind::User).then(|| spec.user.clone()),
                    kind,
                    asked: more.of(&resource),
                    used: would_be.saturating_sub(more.of(&resource)),
                    resource,
                    would_be,
                    limit,
                })
            };
            let total = used.map(|used| &used.total);
            let config = &queue.config;
            over(LimitKind::Queue, all_of(total), &config.limit)
                .or_else(|| over(LimitKind::User, all_of(of_user), &config.user_limit))
                .or_else(|| {
                    let (resource, would_be, limit) =
                        beyond_guarantee(queue, total, (standing, more))?;
                    Some(LimitReached {
                        queue: name.to_owned(),
                        user: None,
                        kind: LimitKind::Guarantee,
                        asked: more.of(&resource),
                        used: would_be.saturating_sub(more.of(&resource)),
                        resource,
                        would_be,
                        limit,
                    })
                })
        })
    }

    /// The same without what a unit claims itself.
    pub(super) fn for_unit(&self, job: &Job, unit: UnitIndex) -> Self {
        let mut own = self.clone();
        if let Some(claim) = job.unit(unit).and_then(|known| known.claim.as_deref()) {
            let claimed = amounts_of(&self.state.hosts, &job.spec, &claim.tasks);
            own.take_back(&job.spec, Part::Claimed, &claimed);
        }
        own
    }

    /// The same once all that is being stopped has ended.
    pub(super) fn without_stopping(&self) -> Self {
        let mut later = self.clone();
        for Running { job, attempt, .. } in stopping(self.state) {
            let held = amounts_held(&self.state.hosts, &job.spec, attempt);
            later.take_back(&job.spec, Part::held_by(attempt), &held);
        }
        later
    }

    /// A job has so much less.
    pub(super) fn take_back(&mut self, spec: &JobSpec, part: Part, less: &Amounts) {
        remove_usage(&mut self.usage, spec, part, less);
    }

    /// A job has so much more.
    pub(super) fn give(&mut self, spec: &JobSpec, standing: &Standing, more: &Amounts) {
        let part = match standing {
            Standing::Opportunistic => Part::Opportunistic,
            Standing::Share | Standing::Cells(_) => Part::Firm,
        };
        add_usage(&mut self.usage, spec, part, more);
    }
}

/// Whether anything limits what a queue may have.
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

/// What a queue that does not borrow would hold by its share beyond its guarantee: the resource, how much of it there
/// would be, and what is guaranteed.
fn beyond_guarantee(
    queue: &Queue,
    usage: Option<&Usage>,
    (standing, more): (&Standing, &Amounts),
) -> Option<(String, u64, u64)> {
    if queue.config.borrow || *standing != Standing::Share {
        return None;
    }
    let guarantee = match &queue.config.guarantee {
        Guarantee::Amounts(amounts) if !queue.retired => amounts.clone(),
        Guarantee::Amounts(_) | Guarantee::Cells(_) => Amounts::default(),
    };
    let mut after = all_of(usage);
    if let Some(usage) = usage {
        after = after.without(&usage.opportunistic);
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

/// What a unit asks for; GPUs count under a model where only one is acceptable.
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
