//! Admission of a unit by its queue: limits, borrowing and allocation basis.

use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::ids::{UnitId, UnitIndex};
use muster_model::quota::{Amounts, Guarantee, QueueConfig, parent_of, within};
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;

use crate::feasibility::Freed;
use crate::rights::uncovered;
use crate::state::{
    ExcludedUsage, Job, Queue, State, Usage, UsageScope, amounts_held, amounts_of, counted_twice,
    taken_over,
};

/// A unit to be placed, or to claim.
#[derive(Clone, Copy)]
pub(in crate::apply) struct AdmissionRequest<'a> {
    pub(in crate::apply) job: &'a Job,
    pub(in crate::apply) unit: UnitIndex,
    pub(in crate::apply) allocation_basis: &'a AllocationBasis,
    pub(in crate::apply) tasks: &'a [TaskPlacement],
    /// Resources that are being released for it.
    pub(in crate::apply) freed: &'a Freed,
}

impl AdmissionRequest<'_> {
    /// Returns the id of the unit.
    pub(in crate::apply) const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job.id, self.unit)
    }
}

/// Checks that its queue permits the unit's allocation basis and that no queue or user exceeds a limit.
pub(in crate::apply) fn check(
    state: &State,
    request: AdmissionRequest<'_>,
) -> Result<(), Rejection> {
    let queue = state.queues.get(request.job.spec.queue.as_str());
    let queue = queue.expect("jobs are in queues that exist");
    check_basis(queue, request)?;
    let is_free = |queue: &str| {
        let known = state.queues.get(queue);
        known.is_none_or(|queue| is_unlimited(&queue.config, request.allocation_basis))
    };
    if within(&request.job.spec.queue).all(is_free) {
        return Ok(());
    }
    let added = amounts_of(&state.hosts, &request.job.spec, request.tasks);
    for name in within(&request.job.spec.queue) {
        if let Some(queue) = state.queues.get(name) {
            check_queue(state, queue, request, &added)?;
        }
    }
    Ok(())
}

/// Whether no usage has to be summed up for the queue.
fn is_unlimited(config: &QueueConfig, allocation_basis: &AllocationBasis) -> bool {
    let no_limits = muster_model::quota::Limits::default();
    let borrows = config.borrow || *allocation_basis != AllocationBasis::Share;
    config.limit == no_limits && config.user_limit == no_limits && borrows
}

fn check_basis(queue: &Queue, request: AdmissionRequest<'_>) -> Result<(), Rejection> {
    let detail = basis_mismatch(
        queue,
        &request.job.spec,
        request.allocation_basis,
        request.tasks,
    );
    detail.map_or(Ok(()), |detail| {
        Err(Rejection::CellsUnsafe {
            queue: queue.name.to_string(),
            detail: detail.to_owned(),
        })
    })
}

/// Returns why a job cannot hold resources on this basis, if so: opportunistic jobs hold them
/// opportunistically, virtual clusters hold GPUs by cells or opportunistically, other queues by shares.
pub fn basis_mismatch(
    queue: &Queue,
    spec: &JobSpec,
    allocation_basis: &AllocationBasis,
    tasks: &[TaskPlacement],
) -> Option<&'static str> {
    let is_virtual_cluster = queue.config.is_virtual_cluster() && !queue.retired;
    let asks_gpus = tasks.iter().any(|task| !task.gpus.is_empty());
    match allocation_basis {
        AllocationBasis::Opportunistic if spec.scheduling.opportunistic => None,
        _ if spec.scheduling.opportunistic => Some("the job is opportunistic"),
        AllocationBasis::Opportunistic if !is_virtual_cluster => {
            Some("the job is not opportunistic")
        }
        AllocationBasis::Opportunistic if !queue.config.borrow => {
            Some("it may not borrow, so its work stays in its cells")
        }
        AllocationBasis::Share if is_virtual_cluster && asks_gpus => {
            Some("it is a virtual cluster: its GPUs are held by cells")
        }
        AllocationBasis::Cells(_) if !is_virtual_cluster => Some("it is not a virtual cluster"),
        AllocationBasis::Share | AllocationBasis::Cells(_) | AllocationBasis::Opportunistic => None,
    }
}

fn check_queue(
    state: &State,
    queue: &Queue,
    request: AdmissionRequest<'_>,
    added: &Amounts,
) -> Result<(), Rejection> {
    let none = Usage::default();
    let usage = state.index.usage.get(&queue.name);
    let user = request.job.spec.user.as_str();
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
        let whose = UsageScope {
            queue: &queue.name,
            user,
            opportunistic: true,
        };
        let kept = kept(state, request, whose, usage);
        // Fast path: almost always no limit is near.
        if kept.over(added, limits).is_none() {
            continue;
        }
        let once = kept.without(&twice(state, request, whose));
        if let Some((resource, would_have, limit)) = once.over(added, limits) {
            let who = match user {
                Some(user) => format!("user {user} in queue {}", queue.name),
                None => format!("queue {}", queue.name),
            };
            return Err(Rejection::OverLimit {
                who,
                resource,
                would_have,
                limit,
            });
        }
    }
    if !queue.may_borrow() && *request.allocation_basis == AllocationBasis::Share {
        let usage = usage.map_or(&none, |usage| &usage.total);
        let whose = UsageScope {
            queue: &queue.name,
            user: None,
            opportunistic: false,
        };
        let kept = kept(state, request, whose, usage).without(&usage.opportunistic);
        let guarantee = guaranteed(queue);
        let beyond = |kept: &Amounts| {
            let mut after = kept.clone();
            after.add(added);
            uncovered(&after, &guarantee, added)
        };
        if beyond(&kept).is_none() {
            return Ok(());
        }
        let once = kept.without(&twice(state, request, whose));
        if let Some((resource, would_have, limit)) = beyond(&once) {
            return Err(Rejection::OverLimit {
                who: format!("queue {} (borrow: false)", queue.name),
                resource,
                would_have,
                limit,
            });
        }
    }
    Ok(())
}

fn guaranteed(queue: &Queue) -> Amounts {
    match &queue.config.guarantee {
        Guarantee::Amounts(amounts) => amounts.clone(),
        Guarantee::Cells(_) => Amounts::default(),
    }
}

/// Returns what a queue (or a user in it) has apart from the unit: everything held and claimed, without the
/// unit's own claim and the resources being released for it.
fn kept(
    state: &State,
    request: AdmissionRequest<'_>,
    whose: UsageScope<'_>,
    usage: &Usage,
) -> Amounts {
    let mut kept = usage.held.clone();
    kept.add(&usage.claimed);
    let concerned = |id: &UnitId| state.job(id.job).filter(|job| whose.has(&job.spec));
    let claim_of = |id: &UnitId| {
        let job = concerned(id)?;
        let claim = job.unit(id.unit)?.claim.as_deref()?;
        Some(amounts_of(&state.hosts, &job.spec, &claim.tasks))
    };
    let attempt_of = |id: &UnitId| {
        let job = concerned(id)?;
        let attempt = job.unit(id.unit)?.attempt.as_deref()?;
        Some(amounts_held(&state.hosts, &job.spec, attempt))
    };
    let own = claim_of(&request.unit_id());
    let attempts = request.freed.attempts.iter().filter_map(attempt_of);
    let claims = request.freed.claims.iter().filter_map(claim_of);
    for part in own.into_iter().chain(attempts).chain(claims) {
        kept = kept.without(&part);
    }
    kept
}

/// Returns what a queue (or a user in it) both holds and claims, including the unit's request: it counts
/// once.
fn twice(state: &State, request: AdmissionRequest<'_>, whose: UsageScope<'_>) -> Amounts {
    let (own, freed) = (request.unit_id(), request.freed);
    let gone = ExcludedUsage {
        attempts: &|id| freed.attempts.contains(&id),
        claims: &|id| id == own || freed.claims.contains(&id),
    };
    let mut twice = counted_twice(state, whose, gone);
    let spec = &request.job.spec;
    twice.add(&taken_over(state, spec, request.tasks, whose, gone));
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
