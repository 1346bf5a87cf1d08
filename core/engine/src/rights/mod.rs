//! Preemption rights and costs: used by the planner to find victims, and by `apply` to check claims. Also the
//! permission to enter a running task: [`may_enter`].
//!
//! A preemptor has a right over an attempt (or over the claim of another unit) if one of these holds, checked
//! in this order:
//!
//! 1. [`Right::Opportunistic`]: the victim is opportunistic and the preemptor is not.
//! 2. [`Right::Priority`]: both are of one queue, the victim's priority is lower, and the queue has
//!    `preempt_by_priority`. Both have the same allocation basis: shares or cells.
//! 3. [`Right::Reclaim`]: both hold by shares and are of different queues. At the innermost common ancestor,
//!    the preemptor's side of the tree stays within its guarantee with the unit, and the victim's side is over
//!    its own without the victims taken so far. So the last victim may take it below its guarantee, and no
//!    further one can be taken then.
//! 4. [`Right::Cells`]: the preemptor binds a cell of its virtual cluster, and the victim holds a GPU of that
//!    cell by a share only, or has a task without GPUs on a host of that cell.
//!
//! Attempts that are being stopped already (their resources are released anyway) and those that ran for less
//! than their queue's `protected_ms` are never preempted.
//!
//! A guarantee in amounts covers GPUs as requested: those of a model that it names up to that number, all
//! others up to the rest of `gpus`. CPUs and memory count only between units without GPUs. Resources held or
//! claimed by shares and cells count against a guarantee; those of opportunistic and stopping attempts do
//! not.

mod entry;
mod protection;

use std::borrow::Cow;
use std::collections::BTreeMap;

use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::host::Host;
use muster_model::ids::{GpuUuid, HostId, JobId, UnitIndex};
use muster_model::limits;
use muster_model::quota::{Amounts, Guarantee, within};
use muster_model::time::TimeMs;
use muster_model::topology::CellId;

use crate::state::{
    Attempt, AttemptClass, BasisKind, Job, State, Unit, Usage, amounts_held, amounts_of,
};
pub use entry::may_enter;
pub use protection::Protection;

/// Right by which a preemptor may take a victim's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// The victim has no guarantee.
    Opportunistic,
    /// The victim is of the same queue and of lower priority.
    Priority,
    /// The victim's side of the tree is over its guarantee, the preemptor's side is not.
    Reclaim,
    /// The victim is in a cell that the preemptor's virtual cluster is guaranteed.
    Cells,
}

/// A unit that needs resources.
#[derive(Clone, Copy, Debug)]
pub struct Preemptor<'a> {
    /// The owning job.
    pub job: &'a Job,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Allocation basis of the requested resources.
    pub allocation_basis: &'a AllocationBasis,
    /// Requested amounts ([`crate::state::amounts_of`]).
    pub amounts: &'a Amounts,
}

/// A holder of resources: an attempt, or a unit's claim.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    job: &'a Job,
    allocation_basis: &'a AllocationBasis,
    tasks: Tasks<'a>,
    is_stopping: bool,
    /// Start of its protection; `None` for claims.
    protected_since: Option<TimeMs>,
}

#[derive(Clone, Copy, Debug)]
enum Tasks<'a> {
    Held(&'a Attempt),
    Claimed(&'a [TaskPlacement]),
}

impl<'a> Subject<'a> {
    /// Creates the subject of an attempt.
    #[must_use]
    pub fn attempt(job: &'a Job, attempt: &'a Attempt) -> Self {
        Self {
            job,
            allocation_basis: &attempt.allocation_basis,
            tasks: Tasks::Held(attempt),
            is_stopping: attempt.stop.is_some(),
            protected_since: Some(attempt.protected_since()),
        }
    }

    /// Creates the subject of a unit's claim; `None` if it has none.
    #[must_use]
    pub fn claim(job: &'a Job, unit: UnitIndex) -> Option<Self> {
        let claim = job.unit(unit)?.claim.as_deref()?;
        Some(Self {
            job,
            allocation_basis: &claim.allocation_basis,
            tasks: Tasks::Claimed(&claim.tasks),
            is_stopping: false,
            protected_since: None,
        })
    }

    fn gpus(&self) -> Vec<(HostId, GpuUuid)> {
        match self.tasks {
            Tasks::Held(attempt) => {
                let runs = attempt.tasks.iter();
                runs.flat_map(|run| run.gpus.iter().map(|gpu| (run.host, *gpu)))
                    .collect()
            }
            Tasks::Claimed(tasks) => tasks
                .iter()
                .flat_map(|task| task.gpus.iter().map(|gpu| (task.host, *gpu)))
                .collect(),
        }
    }

    /// Hosts of its tasks without GPUs.
    fn hosts_without_gpus(&self) -> Vec<HostId> {
        match self.tasks {
            Tasks::Held(attempt) => {
                let runs = attempt.tasks.iter().filter(|run| run.gpus.is_empty());
                runs.map(|run| run.host).collect()
            }
            Tasks::Claimed(tasks) => {
                let tasks = tasks.iter().filter(|task| task.gpus.is_empty());
                tasks.map(|task| task.host).collect()
            }
        }
    }

    fn amounts(&self, state: &State) -> Amounts {
        match self.tasks {
            Tasks::Held(attempt) => amounts_held(&state.hosts, &self.job.spec, attempt),
            Tasks::Claimed(tasks) => amounts_of(&state.hosts, &self.job.spec, tasks),
        }
    }
}

/// Checks whether an attempt may be preempted as the only victim.
///
/// # Errors
/// Its protection.
pub fn may_preempt(
    state: &State,
    preemptor: Preemptor<'_>,
    job: &Job,
    attempt: &Attempt,
) -> Result<Right, Protection> {
    Rights::of(state, preemptor).over(&Subject::attempt(job, attempt))
}

/// The rights of a preemptor, given the victims taken so far.
#[derive(Clone, Debug)]
pub struct Rights<'a> {
    state: &'a State,
    preemptor: Preemptor<'a>,
    /// Amounts held that count against the guarantees of the victims' queues and their ancestors, without
    /// these victims.
    left: BTreeMap<&'a str, Amounts>,
    /// Whether the guarantees on the preemptor's side cover it, by queue.
    covered: BTreeMap<&'a str, bool>,
}

impl<'a> Rights<'a> {
    /// Creates the rights of a preemptor without victims.
    #[must_use]
    pub fn of(state: &'a State, preemptor: Preemptor<'a>) -> Self {
        let mut rights = Self {
            state,
            preemptor,
            left: BTreeMap::new(),
            covered: BTreeMap::new(),
        };
        for queue in within(&preemptor.job.spec.queue) {
            let covers = rights.covers(queue);
            rights.covered.insert(queue, covers);
        }
        rights
    }

    /// Checks whether a victim may be taken in addition to those taken so far.
    ///
    /// # Errors
    /// Its protection.
    pub fn over(&self, victim: &Subject<'_>) -> Result<Right, Protection> {
        if victim.is_stopping {
            return Err(Protection::Stopping);
        }
        if let Some(until) = protected_until(self.state, victim)
            && until > self.state.time
        {
            return Err(Protection::Young { until });
        }
        let ours = self.preemptor.allocation_basis;
        match (ours, victim.allocation_basis) {
            (AllocationBasis::Opportunistic, _) => Err(Protection::PreemptorOpportunistic),
            (_, AllocationBasis::Opportunistic) => Ok(Right::Opportunistic),
            _ if victim.job.spec.queue == self.preemptor.job.spec.queue => {
                let by_share = matches!(victim.allocation_basis, AllocationBasis::Share);
                self.by_priority(by_share, victim.job.spec.priority)
            }
            (_, AllocationBasis::Cells(_)) => Err(Protection::OtherCells),
            (AllocationBasis::Cells(cells), AllocationBasis::Share) => {
                if self.lies_in(victim, cells) {
                    Ok(Right::Cells)
                } else {
                    Err(Protection::OtherCells)
                }
            }
            (AllocationBasis::Share, AllocationBasis::Share) => {
                let is_held = matches!(victim.tasks, Tasks::Held(_));
                self.by_reclaim(&victim.job.spec.queue, is_held)
            }
        }
    }

    /// Returns the right by which attempts of a class may be taken in addition to those taken so far; each
    /// one has to be checked besides, as it may be protected, or lie elsewhere. `None` if there is no right
    /// over any of them.
    pub fn over_class(&self, class: &AttemptClass) -> Option<Right> {
        let same_queue = *class.queue == *self.preemptor.job.spec.queue;
        match (self.preemptor.allocation_basis, class.basis) {
            (_, BasisKind::Stopping) | (AllocationBasis::Opportunistic, _) => None,
            (_, BasisKind::Opportunistic) => Some(Right::Opportunistic),
            (_, BasisKind::Share | BasisKind::Cells) if same_queue => {
                let by_share = class.basis == BasisKind::Share;
                self.by_priority(by_share, class.priority).ok()
            }
            (_, BasisKind::Cells) => None,
            (AllocationBasis::Cells(_), BasisKind::Share) => Some(Right::Cells),
            (AllocationBasis::Share, BasisKind::Share) => self.by_reclaim(&class.queue, true).ok(),
        }
    }

    /// Whether a guarantee covers the unit: if not, it reclaims nothing from other queues.
    pub fn reclaims(&self) -> bool {
        self.covered.values().any(|covers| *covers)
    }

    /// Takes a victim, so that the usage of its queues no longer includes it.
    pub fn take(&mut self, victim: &Subject<'a>) {
        if *victim.allocation_basis == AllocationBasis::Opportunistic {
            return;
        }
        let amounts = victim.amounts(self.state);
        let state = self.state;
        for queue in within(&victim.job.spec.queue) {
            let left = self.left.entry(queue);
            let left = left.or_insert_with(|| firmly_held(state, queue));
            *left = left.without(&amounts);
        }
    }

    /// Takes all of these, smallest first: the last one may exceed the excess of its queue, so this order
    /// succeeds whenever any order would.
    ///
    /// # Errors
    /// The job of the first one that cannot be taken, and its protection.
    pub fn take_all(&mut self, mut victims: Vec<Subject<'a>>) -> Result<(), (JobId, Protection)> {
        victims.sort_by_key(|victim| (victim.gpus().len(), victim.job.id));
        for victim in victims {
            self.over(&victim)
                .map_err(|protection| (victim.job.id, protection))?;
            self.take(&victim);
        }
        Ok(())
    }

    fn by_priority(&self, by_share: bool, priority: i32) -> Result<Right, Protection> {
        let spec = &self.preemptor.job.spec;
        let queue = self.state.queues.get(spec.queue.as_str());
        let allowed = queue.is_some_and(|queue| queue.config.preempt_by_priority);
        let same_ground =
            matches!(self.preemptor.allocation_basis, AllocationBasis::Share) == by_share;
        if allowed && same_ground && priority < spec.priority {
            Ok(Right::Priority)
        } else {
            Err(Protection::SameQueue)
        }
    }

    /// Returns the right to reclaim what a queue holds, or claims.
    fn by_reclaim(&self, theirs: &str, is_held: bool) -> Result<Right, Protection> {
        let ours = self.preemptor.job.spec.queue.as_str();
        let our_side = side(ours, theirs);
        if our_side.is_none_or(|queue| self.covered.get(queue) != Some(&true)) {
            return Err(Protection::OverGuarantee {
                queue: our_side.unwrap_or(ours).to_owned(),
            });
        }
        // Work of a common ancestor queue is on neither side: nothing guarantees it.
        let Some(queue) = side(theirs, ours) else {
            return Ok(Right::Reclaim);
        };
        let known = self.left.get(queue).map(Cow::Borrowed);
        let mut used = known.unwrap_or_else(|| Cow::Owned(firmly_held(self.state, queue)));
        if !is_held {
            used.to_mut().add(&claimed(self.state, queue));
        }
        if is_over(&used, &guarantee(self.state, queue), self.preemptor.amounts) {
            Ok(Right::Reclaim)
        } else {
            Err(Protection::WithinGuarantee {
                queue: queue.to_owned(),
            })
        }
    }

    /// Whether the guarantee of a queue covers the preemptor in addition to its current usage.
    fn covers(&self, queue: &str) -> bool {
        let mut used = firmly_held(self.state, queue);
        used.add(&claimed(self.state, queue));
        let Preemptor {
            job, unit, amounts, ..
        } = self.preemptor;
        if let Some(claim) = job.unit(unit).and_then(|known| known.claim.as_deref()) {
            let own = amounts_of(&self.state.hosts, &job.spec, &claim.tasks);
            used = used.without(&own);
        }
        used.add(amounts);
        is_covered(&used, &guarantee(self.state, queue), amounts)
    }

    fn lies_in(&self, victim: &Subject<'_>, cells: &[CellId]) -> bool {
        let takes_room = |host: HostId| {
            let overlaps = |cell: &CellId| overlaps(self.state, cell, host);
            cells.iter().any(overlaps)
        };
        if victim.hosts_without_gpus().into_iter().any(takes_room) {
            return true;
        }
        victim.gpus().iter().any(|(host, gpu)| {
            let host = self.state.host(*host);
            host.is_some_and(|host| {
                let position = host.gpus.iter().position(|known| known.uuid == *gpu);
                position.is_some_and(|position| {
                    let encloses = |cell: &CellId| encloses(self.state, cell, host, position);
                    cells.iter().any(encloses)
                })
            })
        })
    }
}

/// Returns the work lost if an attempt were stopped now: milliseconds since its newest committed checkpoint
/// (or since it ran), times its GPUs; work without GPUs counts as one.
#[must_use]
pub fn lost_work_ms(unit: &Unit, attempt: &Attempt, now: TimeMs) -> u64 {
    let since = unit.unkept_since(attempt);
    since.map_or(0, |since| lost_since_ms(since, attempt.gpus(), now))
}

/// Returns the work lost for an attempt with `gpus` GPUs whose unsaved work began at `since`.
#[must_use]
pub fn lost_since_ms(since: TimeMs, gpus: u32, now: TimeMs) -> u64 {
    now.since(since).saturating_mul(u64::from(gpus.max(1)))
}

/// Whether a cell contains a host or a part of it.
fn overlaps(state: &State, cell: &CellId, host: HostId) -> bool {
    match cell {
        CellId::Above(path) => {
            let cells = state.index.host_cells.get(&host);
            cells.is_some_and(|cells| cells.above.contains(path))
        }
        CellId::Host(id) | CellId::Inside(id, ..) => *id == host,
    }
}

/// Whether a cell contains the GPU at a position of a host.
fn encloses(state: &State, cell: &CellId, host: &Host, position: usize) -> bool {
    match cell {
        CellId::Above(path) => {
            let cells = state.index.host_cells.get(&host.id);
            cells.is_some_and(|cells| cells.above.contains(path))
        }
        CellId::Host(id) => *id == host.id,
        CellId::Inside(id, _, gpus) => *id == host.id && gpus.has(position),
    }
}

/// Returns the end of an attempt's protection from preemption by its queue; `None` if it has none.
fn protected_until(state: &State, victim: &Subject<'_>) -> Option<TimeMs> {
    let protected_ms = protected_ms(state, &victim.job.spec.queue);
    let since = victim.protected_since.filter(|_| protected_ms > 0);
    since.map(|since| since.after(protected_ms))
}

/// Returns how long a queue protects its attempts from preemption.
pub fn protected_ms(state: &State, queue: &str) -> u64 {
    let known = state.queues.get(queue).filter(|queue| !queue.retired);
    known.map_or(0, |queue| queue.config.protected_ms)
}

/// Returns the outermost ancestor of `queue` (or itself) that is no ancestor of `other`; `None` if `other`
/// lies in `queue`.
fn side<'q>(queue: &'q str, other: &str) -> Option<&'q str> {
    within(queue)
        .take(limits::QUEUE_DEPTH_MAX)
        .take_while(|part| !within(other).any(|around| around == *part))
        .last()
}

/// Returns the guarantee of a queue in amounts: empty if it is retired, a virtual cluster, or missing.
fn guarantee<'s>(state: &'s State, queue: &str) -> Cow<'s, Amounts> {
    let known = state.queues.get(queue).filter(|queue| !queue.retired);
    match known.map(|queue| &queue.config.guarantee) {
        Some(Guarantee::Amounts(amounts)) => Cow::Borrowed(amounts),
        Some(Guarantee::Cells(_)) | None => Cow::Owned(Amounts::default()),
    }
}

/// Returns the amounts that attempts of a queue hold and that count against its guarantee.
fn firmly_held(state: &State, queue: &str) -> Amounts {
    let Some(usage) = state.index.usage.get(queue) else {
        return Amounts::default();
    };
    let Usage {
        held,
        opportunistic,
        stopping,
        ..
    } = &usage.total;
    held.without(opportunistic).without(stopping)
}

fn claimed(state: &State, queue: &str) -> Amounts {
    let usage = state.index.usage.get(queue);
    usage.map_or_else(Amounts::default, |usage| usage.total.claimed.clone())
}

/// Returns the GPUs used beyond those guaranteed by model, and the GPUs guaranteed of any model.
fn any_model(used: &Amounts, guarantee: &Amounts) -> (u64, u64) {
    let beyond = used.gpus_by_model.iter().map(|(model, count)| {
        let named = guarantee.gpus_by_model.get(model).copied().unwrap_or(0);
        count.saturating_sub(named)
    });
    let named: u64 = guarantee.gpus_by_model.values().sum();
    (beyond.sum(), guarantee.gpus.saturating_sub(named))
}

/// Returns the first requested resource whose usage exceeds the guarantee: name, usage and guarantee.
#[must_use]
pub fn uncovered(
    used: &Amounts,
    guarantee: &Amounts,
    unit: &Amounts,
) -> Option<(String, u64, u64)> {
    if is_covered(used, guarantee, unit) {
        return None;
    }
    let kinds = [
        ("gpus", unit.gpus, used.gpus, guarantee.gpus),
        (
            "cpus_milli",
            unit.cpus_milli,
            used.cpus_milli,
            guarantee.cpus_milli,
        ),
        (
            "memory_mib",
            unit.memory_mib,
            used.memory_mib,
            guarantee.memory_mib,
        ),
    ];
    let over = kinds
        .iter()
        .find(|(_, asked, used, guaranteed)| *asked > 0 && used > guaranteed);
    let (name, _, used, guaranteed) = over.unwrap_or(&kinds[0]);
    Some(((*name).to_owned(), *used, *guaranteed))
}

/// Whether a guarantee covers the usage including the unit, in the resources that the unit requests.
fn is_covered(used: &Amounts, guarantee: &Amounts, unit: &Amounts) -> bool {
    if unit.gpus > 0 {
        let within_model = unit.gpus_by_model.keys().all(|model| {
            let count = used.gpus_by_model.get(model).copied().unwrap_or(0);
            count <= guarantee.gpus_by_model.get(model).copied().unwrap_or(0)
        });
        let (beyond, any) = any_model(used, guarantee);
        return within_model || beyond <= any;
    }
    (unit.cpus_milli == 0 || used.cpus_milli <= guarantee.cpus_milli)
        && (unit.memory_mib == 0 || used.memory_mib <= guarantee.memory_mib)
}

/// Whether the usage exceeds the guarantee in a resource that the unit requests.
fn is_over(used: &Amounts, guarantee: &Amounts, unit: &Amounts) -> bool {
    if unit.gpus > 0 {
        let (beyond, any) = any_model(used, guarantee);
        return beyond > any
            && unit.gpus_by_model.keys().any(|model| {
                let count = used.gpus_by_model.get(model).copied().unwrap_or(0);
                count > guarantee.gpus_by_model.get(model).copied().unwrap_or(0)
            });
    }
    (unit.cpus_milli > 0 && used.cpus_milli > guarantee.cpus_milli)
        || (unit.memory_mib > 0 && used.memory_mib > guarantee.memory_mib)
}
