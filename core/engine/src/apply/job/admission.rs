//! Admission of a unit by its queue: limits, borrowing and allocation basis.

use muster_model::command::{Standing, TaskPlacement};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::quota::{Amounts, Guarantee, QueueConfig, parent_of, within};
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;

use crate::feasibility::Freed;
use crate::rights::uncovered;
use crate::state::{
    Gone, Job, Queue, State, Usage, Whose, amounts_held, amounts_of, counted_twice, taken_over,
};

/// A unit to be placed, or to claim.
#[derive(Clone, Copy)]
pub(in crate::apply) struct Asking<'a> {
    pub(in crate::apply) job: &'a Job,
    pub(in crate::apply) unit: UnitIndex,
    pub(in crate::apply) standing: &'a Standing,
    pub(in crate::apply) tasks: &'a [TaskPlacement],
    /// Resources that are being released for it.
    pub(in crate::apply) freed: &'a Freed,
}

/// Checks that its queue permits the unit's allocation basis and that no queue or user exceeds a limit.
pub(in crate::apply) fn check(state: &State, asking: Asking<'_>) -> Result<(), Rejection> {
    let queue = state.queues.get(asking.job.spec.queue.as_str());
    let queue = queue.expect("jobs are in queues that exist");
    check_standing(queue, asking)?;
    let is_free = |queue: &str| {
        let known = state.queues.get(queue);
        known.is_none_or(|queue| is_unlimited(&queue.config, asking.standing))
    };
    if within(&asking.job.spec.queue).all(is_free) {
        return Ok(());
    }
    let added = amounts_of(&state.hosts, &asking.job.spec, asking.tasks);
    for name in within(&asking.job.spec.queue) {
        if let Some(queue) = state.queues.get(name) {
            check_queue(state, queue, asking, &added)?;
        }
    }
    Ok(())
}

/// Whether no usage has to be summed up for the queue.
fn is_unlimited(config: &QueueConfig, standing: &Standing) -> bool {
    let no_limits = muster_model::quota::Limits::default();
    let borrows = config.borrow || *standing != Standing::Share;
    config.limit == no_limits && config.user_limit == no_limits && borrows
}

fn check_standing(queue: &Queue, asking: Asking<'_>) -> Result<(), Rejection> {
    let ground = (asking.standing, asking.tasks);
    groundless(queue, &asking.job.spec, ground).map_or(Ok(()), |detail| {
        Err(Rejection::CellsUnsafe {
            queue: queue.name.to_string(),
            detail: detail.to_owned(),
        })
    })
}

/// Returns why a job cannot hold resources on this basis, if so: opportunistic jobs hold them
/// opportunistically, virtual clusters hold GPUs by cells or opportunistically, other queues by shares.
pub fn groundless(
    queue: &Queue,
    spec: &JobSpec,
    (standing, tasks): (&Standing, &[TaskPlacement]),
) -> Option<&'static str> {
    let is_virtual_cluster = queue.config.is_virtual_cluster() && !queue.retired;
    let asks_gpus = tasks.iter().any(|task| !task.gpus.is_empty());
    match standing {
        Standing::Opportunistic if spec.scheduling.opportunistic => None,
        _ if spec.scheduling.opportunistic => Some("the job is opportunistic"),
        Standing::Opportunistic if !is_virtual_cluster => Some("the job is not opportunistic"),
        Standing::Opportunistic if !queue.config.borrow => {
            Some("it may not borrow, so its work stays in its cells")
        }
        Standing::Share if is_virtual_cluster && asks_gpus => {
            Some("it is a virtual cluster: its GPUs are held by cells")
        }
        Standing::Cells(_) if !is_virtual_cluster => Some("it is not a virtual cluster"),
        Standing::Share | Standing::Cells(_) | Standing::Opportunistic => None,
    }
}

fn check_queue(
    state: &State,
    queue: &Queue,
    asking: Asking<'_>,
    added: &Amounts,
) -> Result<(), Rejection> {
    let none = Usage::default();
    let usage = state.index.usage.get(&queue.name);
    let user = asking.job.spec.user.as_str();
    let sums = [
        (
            usage.map_or(&none, |usage| &usage.total),
            &queue.config.limit,
            None,
        ),
        (
            usage
                .and_then(|usage| usage.users.get(user))
                .unwrap_or(&none),
            &queue.config.user_limit,
            Some(user),
        ),
    ];
    for (usage, limits, user) in sums {
        let kept = kept(state, (&queue.name, user), asking, usage);
        // Fast path: almost always no limit is near.
        if kept.over(added, limits).is_none() {
            continue;
        }
        let twice = twice(state, asking, (&queue.name, user, true));
        if let Some(over) = kept.without(&twice).over(added, limits) {
            return Err(over_limit(&queue.name, user, over));
        }
    }
    if !queue.config.borrow && *asking.standing == Standing::Share {
        let usage = usage.map_or(&none, |usage| &usage.total);
        let kept = kept(state, (&queue.name, None), asking, usage).without(&usage.opportunistic);
        let guarantee = guaranteed(queue);
        let beyond = |kept: &Amounts| {
            let mut after = kept.clone();
            after.add(added);
            uncovered(&after, &guarantee, added)
        };
        if beyond(&kept).is_none() {
            return Ok(());
        }
        let twice = twice(state, asking, (&queue.name, None, false));
        if let Some(over) = beyond(&kept.without(&twice)) {
            let who = format!("{} (borrow: false)", queue.name);
            return Err(over_limit(&who, None, over));
        }
    }
    Ok(())
}

fn guaranteed(queue: &Queue) -> Amounts {
    match &queue.config.guarantee {
        Guarantee::Amounts(amounts) if !queue.retired => amounts.clone(),
        Guarantee::Amounts(_) | Guarantee::Cells(_) => Amounts::default(),
    }
}

fn over_limit(
    queue: &str,
    user: Option<&str>,
    (resource, would_have, limit): (String, u64, u64),
) -> Rejection {
    Rejection::OverLimit {
        who: match user {
            Some(user) => format!("user {user} in queue {queue}"),
            None => format!("queue {queue}"),
        },
        resource,
        would_have,
        limit,
    }
}

/// Returns what a queue (or a user in it) has apart from the unit: everything held and claimed, without the
/// unit's own claim and the resources being released for it.
fn kept(
    state: &State,
    (queue, user): (&str, Option<&str>),
    asking: Asking<'_>,
    usage: &Usage,
) -> Amounts {
    let mut kept = usage.held.clone();
    kept.add(&usage.claimed);
    let concerns = |job: &Job| {
        within(&job.spec.queue).any(|around| around == queue)
            && user.is_none_or(|user| job.spec.user == user)
    };
    let claim_of = |job: JobId, unit: UnitIndex| {
        let job = state.job(job).filter(|job| concerns(job))?;
        let claim = job.unit(unit)?.claim.as_deref()?;
        Some(amounts_of(&state.hosts, &job.spec, &claim.tasks))
    };
    let attempt_of = |job: JobId, unit: UnitIndex| {
        let job = state.job(job).filter(|job| concerns(job))?;
        let attempt = job.unit(unit)?.attempt.as_deref()?;
        Some(amounts_held(&state.hosts, &job.spec, attempt))
    };
    let own = claim_of(asking.job.id, asking.unit);
    let attempts = asking.freed.attempts.iter();
    let attempts = attempts.filter_map(|(job, unit)| attempt_of(*job, *unit));
    let claims = asking.freed.claims.iter();
    let claims = claims.filter_map(|(job, unit)| claim_of(*job, *unit));
    for part in own.into_iter().chain(attempts).chain(claims) {
        kept = kept.without(&part);
    }
    kept
}

/// Returns what a queue (or a user in it) both holds and claims, including the unit's request: it counts
/// once.
fn twice(
    state: &State,
    asking: Asking<'_>,
    (queue, user, opportunistic): (&str, Option<&str>, bool),
) -> Amounts {
    let Asking {
        job,
        unit,
        tasks,
        freed,
        ..
    } = asking;
    let whose = Whose {
        queue,
        user,
        opportunistic,
    };
    let gone = Gone {
        attempts: &|job, unit| freed.attempts.contains(&(job, unit)),
        claims: &|other, claiming| {
            (other, claiming) == (job.id, unit) || freed.claims.contains(&(other, claiming))
        },
    };
    let mut twice = counted_twice(state, whose, gone);
    twice.add(&taken_over(state, (&job.spec, tasks), whose, gone));
    twice
}

/// Returns a configured child of a queue, if any: a queue with children accepts no jobs.
pub(in crate::apply) fn child_of<'a>(state: &'a State, queue: &str) -> Option<&'a str> {
    let first: std::sync::Arc<str> = format!("{queue}/").into();
    let after = state.queues.range(first..);
    after
        .map(|(name, known)| (name.as_ref(), known))
        .take_while(|(name, _)| {
            name.strip_prefix(queue)
                .is_some_and(|rest| rest.starts_with('/'))
        })
        .find(|(name, known)| !known.retired && parent_of(name) == Some(queue))
        .map(|(name, _)| name)
}
