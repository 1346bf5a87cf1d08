//! Attempts that hold resources, in the order in which whoever needs room would stop them: derived, so that nobody
//! looks at all that runs in order to find those few over whom a right can exist.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::command::Standing;
use muster_model::ids::{HostId, JobId, UnitIndex};
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::state::{Attempt, Index, Unit};

/// What an attempt counts on, to whoever wants its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ground {
    /// It is being stopped: what it holds comes free anyway.
    Stopping,
    /// Nothing guarantees it anything.
    Opportunistic,
    /// Its queue's share.
    Share,
    /// Cells of its virtual cluster.
    Cells,
}

impl Ground {
    /// What an attempt counts on.
    #[must_use]
    pub fn of(attempt: &Attempt) -> Self {
        match attempt.standing {
            _ if attempt.stop.is_some() => Self::Stopping,
            Standing::Opportunistic => Self::Opportunistic,
            Standing::Share => Self::Share,
            Standing::Cells(_) => Self::Cells,
        }
    }
}

/// Attempts over which somebody has the same rights, and of which an equal time costs an equal amount of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptClass {
    /// What they count on.
    pub ground: Ground,
    /// Their jobs' queue.
    pub queue: Arc<str>,
    /// Their jobs' priority.
    pub priority: i32,
    /// GPUs that each holds.
    pub gpus: u32,
}

/// An attempt in its class: of those that lose equally much the one of the youngest job first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    /// Since when its work is not kept ([`Unit::unkept_since`]); the end of all time if there is none yet.
    pub unkept_since: Reverse<TimeMs>,
    /// Its job.
    pub job: Reverse<JobId>,
    /// Its unit.
    pub unit: UnitIndex,
}

/// Attempts by class, in each those first that lose the least; no entry is empty.
pub type Attempts = OrdMap<AttemptClass, OrdSet<AttemptKey>>;

/// GPUs that attempts in cells hold, and that are not being stopped: by their jobs' queue and priority, and by host; no
/// entry is 0.
pub type HeldInCells = OrdMap<(Arc<str>, i32, HostId), u32>;

impl Index {
    /// A unit has an attempt now, or a changed one.
    pub(crate) fn add_attempt(&mut self, id: (JobId, UnitIndex), spec: &JobSpec, unit: &Unit) {
        let Some((class, key)) = entry(id, spec, unit) else {
            return;
        };
        for (place, gpus) in in_cells(&class, unit) {
            *self.held_in_cells.entry(place).or_default() += gpus;
        }
        self.attempts.entry(class).or_default().insert(key);
    }

    /// A unit's attempt is about to change, or to end.
    pub(crate) fn remove_attempt(&mut self, id: (JobId, UnitIndex), spec: &JobSpec, unit: &Unit) {
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

fn entry(
    (job, index): (JobId, UnitIndex),
    spec: &JobSpec,
    unit: &Unit,
) -> Option<(AttemptClass, AttemptKey)> {
    let attempt = unit.attempt.as_deref()?;
    let class = AttemptClass {
        ground: Ground::of(attempt),
        queue: Arc::from(spec.queue.as_str()),
        priority: spec.priority,
        gpus: attempt.gpus(),
    };
    let since = unit.unkept_since(attempt).unwrap_or(TimeMs(u64::MAX));
    let key = AttemptKey {
        unkept_since: Reverse(since),
        job: Reverse(job),
        unit: index,
    };
    Some((class, key))
}

/// Where an attempt in cells holds how many GPUs; nothing for others.
fn in_cells(
    class: &AttemptClass,
    unit: &Unit,
) -> impl Iterator<Item = ((Arc<str>, i32, HostId), u32)> {
    let attempt = unit.attempt.as_deref();
    let attempt = attempt.filter(|_| class.ground == Ground::Cells);
    let tasks = attempt.into_iter().flat_map(|attempt| &attempt.tasks);
    tasks.filter(|run| !run.gpus.is_empty()).map(|run| {
        let gpus = u32::try_from(run.gpus.len()).unwrap_or(u32::MAX);
        ((Arc::clone(&class.queue), class.priority, run.host), gpus)
    })
}
