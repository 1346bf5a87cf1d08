//! What queues and their users may still have, as one planning round sees it.

use crate::command::Standing;
use crate::ids::{TaskIndex, UnitIndex};
use crate::plan::blocker::{LimitKind, LimitReached};
use crate::quota::{Amounts, Guarantee, Limits, QueueConfig, within};
use crate::spec::{JobSpec, TaskGroup};
use crate::state::{Job, Part, State, Usage, UsageByQueue, add_usage};

/// Usage against limits: that of the state, and what the round gave out in queues with limits.
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
                    let limits = own_guarantee(config, queue.retired, standing)?;
                    over(LimitKind::Guarantee, firm_of(total), &limits)
                })
        })
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

/// The guarantee of a queue that does not borrow, as a limit of what it holds by its share.
fn own_guarantee(config: &QueueConfig, retired: bool, standing: &Standing) -> Option<Limits> {
    if config.borrow || *standing != Standing::Share {
        return None;
    }
    match &config.guarantee {
        Guarantee::Cells(_) => None,
        Guarantee::Amounts(_) if retired => Some(as_limits(&Amounts::default())),
        Guarantee::Amounts(amounts) => Some(as_limits(amounts)),
    }
}

/// GPUs count always, CPUs and memory where the guarantee names them.
fn as_limits(amounts: &Amounts) -> Limits {
    let named = |amount: u64| (amount > 0).then_some(amount);
    Limits {
        gpus: Some(amounts.gpus),
        gpus_by_model: amounts.gpus_by_model.clone(),
        cpus_milli: named(amounts.cpus_milli),
        memory_mib: named(amounts.memory_mib),
    }
}

fn all_of(usage: Option<&Usage>) -> Amounts {
    usage.map_or_else(Amounts::default, |usage| {
        let mut all = usage.held.clone();
        all.add(&usage.claimed);
        all
    })
}

fn firm_of(usage: Option<&Usage>) -> Amounts {
    let mut firm = all_of(usage);
    if let Some(usage) = usage {
        firm.subtract(&usage.opportunistic);
        firm.subtract(&usage.stopping);
    }
    firm
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
