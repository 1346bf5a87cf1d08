//! Preemption candidates: running attempts that a unit may preempt, and the cost of stopping each.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use imbl::OrdSet;
use muster_engine::rights::{Right, Rights, lost_since_ms, lost_work_ms, protected_ms};
use muster_engine::state::{AttemptClass, AttemptKey, BasisKind, Job, Running, State};
use muster_model::ids::{HostId, JobId, UnitId, UnitIndex};
use muster_model::quota::{Amounts, within};
use muster_model::time::TimeMs;

use crate::capacity::Capacity;
use crate::preempt::{Claimant, Cost};
use crate::running::Useful;

/// An attempt that may be stopped, and the cost of stopping it.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) running: Running<'a>,
    pub(super) cost: Cost,
}

/// The only attempts whose end helps, because a limit blocks the unit.
#[derive(Clone, Debug)]
pub(super) struct LimitScope {
    pub(super) queue: String,
    pub(super) user: Option<String>,
}

impl LimitScope {
    fn counts(&self, job: &Job) -> bool {
        let user = self.user.as_ref();
        user.is_none_or(|user| *user == job.spec.user)
            && within(&job.spec.queue).any(|queue| *queue == *self.queue)
    }
}

/// Candidates, and whether they are complete.
pub(super) struct Gathered<'a> {
    /// Candidates in ascending order of lost work.
    pub(super) candidates: Vec<Candidate<'a>>,
    pub(super) is_all: bool,
}

/// Attempts of one class that the unit has a right to preempt.
struct ClassCursor<'a> {
    class: &'a AttemptClass,
    right: Right,
    keys: &'a OrdSet<AttemptKey>,
    protected_ms: u64,
}

/// All attempts that a unit has a right to preempt, protected ones included.
pub(super) struct Pool<'r, 'a> {
    capacity: &'r Capacity<'a>,
    claimant: Claimant<'r>,
    open: Vec<ClassCursor<'a>>,
    only: Option<LimitScope>,
    useful: Useful<'r>,
    protection_ends: Option<TimeMs>,
}

impl<'r, 'a> Pool<'r, 'a> {
    pub(super) fn open(
        capacity: &'r Capacity<'a>,
        claimant: Claimant<'r>,
        rights: &Rights<'_>,
    ) -> Self {
        Self {
            capacity,
            claimant,
            open: classes(capacity.state(), claimant, rights),
            only: None,
            useful: Useful::for_job(capacity.state(), claimant.job),
            protection_ends: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Restricts the pool to attempts that count towards the limit.
    pub(super) fn narrow(&mut self, only: LimitScope) {
        self.open
            .retain(|open| within(&open.class.queue).any(|queue| *queue == *only.queue));
        self.only = Some(only);
    }

    /// Whether the GPUs would suffice if all of them ended: otherwise no attempt need be examined.
    pub(super) fn holds_enough(&self, coming: &Capacity<'_>, asked: &Amounts) -> bool {
        let held = self
            .open
            .iter()
            .map(|open| u64::from(open.class.gpus).saturating_mul(open.keys.len() as u64));
        let free: u64 = match asked.gpus_by_model.keys().next() {
            Some(_) => coming.models().map(|model| coming.gpus_free(model)).sum(),
            None => return true,
        };
        held.fold(free, u64::saturating_add) >= asked.gpus
    }

    /// Earliest end of protection among the protected attempts examined.
    pub(super) const fn protection_ends(&self) -> Option<TimeMs> {
        self.protection_ends
    }

    /// At most `most` candidates: all if there are no more; otherwise half of them those with the least
    /// lost work, and half those on the hosts with the most room, where the fewest have to be stopped.
    pub(super) fn gather(&mut self, most: usize) -> Gathered<'a> {
        let all: usize = self.open.iter().map(|open| open.keys.len()).sum();
        let is_all = all <= most;
        let cheapest = if is_all { all } else { most / 2 };
        let mut known: BTreeSet<UnitId> = BTreeSet::new();
        let mut candidates = Vec::with_capacity(all.min(most));
        let least: Vec<_> = Cheapest::of(&self.open, self.claimant.now)
            .take(cheapest)
            .collect();
        for (unit, open) in least {
            known.insert(unit);
            let ClassCursor {
                right,
                protected_ms,
                ..
            } = self.open[open];
            candidates.extend(self.candidate(unit, right, protected_ms));
        }
        if !is_all {
            for unit in self.on_roomy_hosts(most - cheapest) {
                if known.insert(unit) {
                    candidates.extend(self.candidate_on_host(unit));
                }
            }
        }
        candidates.sort_by_key(|one: &Candidate<'a>| {
            let Running { job, index, .. } = one.running;
            (one.cost, Reverse(job.id), index)
        });
        Gathered { candidates, is_all }
    }

    /// A preemptible attempt as a candidate, unless it is protected or holds nothing that the unit could
    /// use.
    fn candidate(
        &mut self,
        unit: UnitId,
        right: Right,
        protected_ms: u64,
    ) -> Option<Candidate<'a>> {
        let state = self.capacity.state();
        let running = Running::of(state, unit)?;
        let counts = match &self.only {
            Some(only) => only.counts(running.job),
            None => self.useful.has(self.capacity, &running),
        };
        if !counts {
            return None;
        }
        // A process that cannot be killed frees nothing, and would put the next GPU out of service as well.
        if running.unit.has_stuck_task(state) {
            return None;
        }
        let attempt = running.attempt;
        let until = attempt.protected_since().after(protected_ms);
        if protected_ms > 0 && until > state.time {
            self.protection_ends = super::earlier(self.protection_ends, Some(until));
            return None;
        }
        let lost_ms = lost_work_ms(running.unit, attempt, self.claimant.now);
        Some(Candidate {
            running,
            cost: cost(right, running.job.spec.priority, lost_ms),
        })
    }

    /// An attempt on a host as a candidate, if it may be preempted.
    fn candidate_on_host(&mut self, unit: UnitId) -> Option<Candidate<'a>> {
        let state = self.capacity.state();
        let Running { job, attempt, .. } = Running::of(state, unit)?;
        let kind = (BasisKind::of(attempt), job.spec.priority, attempt.gpus());
        let open = self.open.iter().find(|open| {
            let AttemptClass {
                basis,
                queue,
                priority,
                gpus,
            } = open.class;
            (*basis, *priority, *gpus) == kind && **queue == *job.spec.queue
        })?;
        let (right, protected_ms) = (open.right, open.protected_ms);
        self.candidate(unit, right, protected_ms)
    }

    /// Up to `most` attempts on the hosts with the most room.
    fn on_roomy_hosts(&self, most: usize) -> Vec<UnitId> {
        let state = self.capacity.state();
        let models: Vec<&Arc<str>> = self.capacity.models().collect();
        let hosts = models.iter().flat_map(|model| {
            let mut groups = self.claimant.job.spec.groups.iter();
            let serves = groups
                .any(|group| group.resources.gpus > 0 && group.resources.accepts_model(model));
            let hosts = serves.then(|| self.capacity.hosts(model));
            let share = most.div_ceil(models.len().max(1));
            let roomy = hosts.into_iter().flat_map(|hosts| {
                let roomy: Vec<HostId> = hosts.iter().rev().map(|(_, host)| *host).collect();
                roomy
            });
            roomy
                .flat_map(|host| state.index.units_on(host))
                .take(share)
        });
        hosts.collect()
    }
}

fn cost(right: Right, priority: i32, lost_ms: u64) -> Cost {
    Cost::of(right == Right::Opportunistic, priority, lost_ms)
}

/// Classes that a unit has a right to preempt: opportunistic ones, those of its queue, and if a guarantee
/// covers it, those of queues above their own guarantee.
fn classes<'a>(
    state: &'a State,
    claimant: Claimant<'_>,
    rights: &Rights<'_>,
) -> Vec<ClassCursor<'a>> {
    let attempts = &state.index.attempts;
    let first = |basis, queue: &str| AttemptClass {
        basis,
        queue: Arc::from(queue),
        priority: i32::MIN,
        gpus: 0,
    };
    let opportunistic = attempts
        .range(first(BasisKind::Opportunistic, "")..)
        .take_while(|(class, _)| class.basis == BasisKind::Opportunistic);
    let own = &claimant.job.spec.queue;
    let by_priority = state
        .queues
        .get(own.as_str())
        .is_some_and(|queue| queue.config.preempt_by_priority);
    let of_queue = by_priority.then(|| {
        attempts
            .range(first(BasisKind::Share, own)..)
            .take_while(|(class, _)| class.basis == BasisKind::Share && *class.queue == **own)
    });
    let shares = rights.reclaims().then(|| {
        attempts
            .range(first(BasisKind::Share, "")..)
            .take_while(|(class, _)| class.basis == BasisKind::Share)
    });
    let of_others = shares
        .into_iter()
        .flatten()
        .filter(|(class, _)| *class.queue != **own);
    // Within one queue all classes are equivalent to a unit of another queue.
    let mut last: Option<(&'a str, Option<Right>)> = None;
    let far = of_others.filter_map(|(class, keys)| {
        let right = match last {
            Some((queue, right)) if *queue == *class.queue => right,
            _ => rights.over_class(class),
        };
        last = Some((&class.queue, right));
        let right = right?;
        Some(ClassCursor {
            class,
            right,
            keys,
            protected_ms: protected_ms(state, &class.queue),
        })
    });
    let own_classes = of_queue.into_iter().flatten();
    let near = opportunistic
        .chain(own_classes)
        .filter_map(|(class, keys)| {
            let right = rights.over_class(class)?;
            Some(ClassCursor {
                class,
                right,
                keys,
                protected_ms: protected_ms(state, &class.queue),
            })
        });
    near.chain(far).collect()
}

/// Attempts of several classes in ascending order of lost work.
struct Cheapest<'o, 'a> {
    open: &'o [ClassCursor<'a>],
    now: TimeMs,
    rest: Vec<Box<dyn Iterator<Item = &'a AttemptKey> + 'a>>,
    heads: BinaryHeap<Reverse<Head>>,
}

/// The next attempt of a class.
type Head = (Cost, Reverse<JobId>, UnitIndex, usize);

impl<'o, 'a> Cheapest<'o, 'a> {
    fn of(open: &'o [ClassCursor<'a>], now: TimeMs) -> Self {
        let mut merged = Self {
            open,
            now,
            rest: Vec::with_capacity(open.len()),
            heads: BinaryHeap::with_capacity(open.len()),
        };
        for (position, open) in open.iter().enumerate() {
            merged.rest.push(Box::new(open.keys.iter()));
            merged.refill(position);
        }
        merged
    }

    fn refill(&mut self, position: usize) {
        let ClassCursor { class, right, .. } = &self.open[position];
        if let Some(key) = self.rest[position].next() {
            let lost_ms = lost_since_ms(key.unkept_since.0, class.gpus, self.now);
            let cost = cost(*right, class.priority, lost_ms);
            let head = (cost, key.job, key.unit, position);
            self.heads.push(Reverse(head));
        }
    }
}

impl Iterator for Cheapest<'_, '_> {
    /// The unit of an attempt, and the position of its class.
    type Item = (UnitId, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((_, Reverse(job), unit, position)) = self.heads.pop()?;
        self.refill(position);
        Some((UnitId::new(job, unit), position))
    }
}
