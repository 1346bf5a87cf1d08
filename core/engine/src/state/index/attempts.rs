//! Running attempts indexed in preemption order (derived), so the planner need not scan every attempt for
//! preemptible ones.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::command::AllocationBasis;
use muster_model::ids::{HostId, JobId, UnitId, UnitIndex};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::state::{Attempt, Index, Unit};

/// Allocation basis of an attempt, as seen by preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BasisKind {
    /// Being stopped: its resources are released anyway.
    Stopping,
    /// No guarantee.
    Opportunistic,
    /// The share of its queue.
    Share,
    /// Cells of its virtual cluster.
    Cells,
}

impl BasisKind {
    /// Returns the allocation basis of an attempt.
    #[must_use]
    pub fn of(attempt: &Attempt) -> Self {
        match attempt.allocation_basis {
            _ if attempt.stop.is_some() => Self::Stopping,
            AllocationBasis::Opportunistic => Self::Opportunistic,
            AllocationBasis::Share => Self::Share,
            AllocationBasis::Cells(_) => Self::Cells,
        }
    }
}

/// Attempts with equal preemption rights and an equal cost of lost work per unit of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptClass {
    /// Their allocation basis.
    pub basis: BasisKind,
    /// Queue of their jobs.
    pub queue: Arc<str>,
    /// Priority of their jobs.
    pub priority: i32,
    /// GPUs held by each attempt.
    pub gpus: u32,
}

/// Order of attempts within a class: least lost work first, then the youngest job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    /// Start of the work that no checkpoint keeps ([`Unit::unkept_since`]); the maximum time if there is none
    /// yet.
    pub unkept_since: Reverse<TimeMs>,
    /// The owning job.
    pub job: Reverse<JobId>,
    /// The unit within the job.
    pub unit: UnitIndex,
}

impl AttemptKey {
    /// Returns the unit whose attempt it is.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job.0, self.unit)
    }
}

/// Attempts by class; within a class those that lose the least work come first. No entry is empty.
pub type Attempts = OrdMap<AttemptClass, OrdSet<AttemptKey>>;

/// GPUs held in cells by attempts that are not being stopped, keyed by queue, priority and host; no entry is
/// 0.
pub type HeldInCells = OrdMap<(Arc<str>, i32, HostId), u32>;

impl Index {
    /// Adds the new or changed attempt of a unit.
    pub(crate) fn add_attempt(&mut self, id: UnitId, spec: &JobSpec, unit: &Unit) {
        let Some((class, key)) = entry(id, spec, unit) else {
            return;
        };
        for (place, gpus) in in_cells(&class, unit) {
            *self.held_in_cells.entry(place).or_default() += gpus;
        }
        self.attempts.entry(class).or_default().insert(key);
    }

    /// Removes a unit's attempt; called before it changes or ends.
    pub(crate) fn remove_attempt(&mut self, id: UnitId, spec: &JobSpec, unit: &Unit) {
        let Some((class, key)) = entry(id, spec, unit) else {
            return;
        };
        for (place, gpus) in in_cells(&class, unit) {
            match self.held_in_cells.get_mut(&place) {
                Some(held) if *held > gpus => *held -= gpus,
                _ => drop(self.held_in_cells.remove(&place)),
            }
        }
        if let Some(keys) = self.attempts.get_mut(&class) {
            keys.remove(&key);
            if keys.is_empty() {
                self.attempts.remove(&class);
            }
        }
    }
}

fn entry(id: UnitId, spec: &JobSpec, unit: &Unit) -> Option<(AttemptClass, AttemptKey)> {
    let attempt = unit.attempt.as_deref()?;
    let class = AttemptClass {
        basis: BasisKind::of(attempt),
        queue: Arc::from(spec.queue.as_str()),
        priority: spec.priority,
        gpus: attempt.gpus(),
    };
    let since = unit.unkept_since(attempt).unwrap_or(TimeMs(u64::MAX));
    let key = AttemptKey {
        unkept_since: Reverse(since),
        job: Reverse(id.job),
        unit: id.unit,
    };
    Some((class, key))
}

/// Returns the GPUs per host that an attempt holds in cells; empty for other allocation bases.
fn in_cells(
    class: &AttemptClass,
    unit: &Unit,
) -> impl Iterator<Item = ((Arc<str>, i32, HostId), u32)> {
    let attempt = unit.attempt.as_deref();
    let attempt = attempt.filter(|_| class.basis == BasisKind::Cells);
    let tasks = attempt.into_iter().flat_map(|attempt| &attempt.tasks);
    tasks.filter(|run| !run.gpus.is_empty()).map(|run| {
        let gpus = u32::try_from(run.gpus.len()).unwrap_or(u32::MAX);
        ((Arc::clone(&class.queue), class.priority, run.host), gpus)
    })
}
