//! How many of some attempts, in a given order, have to end until a unit fits.

use crate::command::{TaskPlacement, Victim};
use crate::ids::UnitIndex;
use crate::plan::capacity::Capacity;
use crate::plan::unit;
use crate::state::Job;

/// Where a unit goes if these attempts end; none if it does not fit then.
pub(super) fn try_without(
    capacity: &Capacity<'_>,
    ending: &[Victim],
    (job, unit): (&Job, UnitIndex),
) -> Option<Vec<TaskPlacement>> {
    let mut fork = capacity.free_attempts(ending);
    let placed = unit::place(&mut fork, job, unit).ok()?;
    Some(placed.tasks)
}

/// The smallest number of attempts, from the first on, without which the unit fits, and where; none if it does not
/// even fit without all of them.
///
/// Doubling, then halving: about twice the logarithm of the number of attempts in tries.
pub(super) fn smallest(
    capacity: &Capacity<'_>,
    attempts: &[Victim],
    (job, unit): (&Job, UnitIndex),
) -> Option<(usize, Vec<TaskPlacement>)> {
    let fits = |count: usize| try_without(capacity, &attempts[..count], (job, unit));
    let (mut too_few, mut enough) = (None, 0);
    let mut tasks = loop {
        match fits(enough) {
            Some(tasks) => break tasks,
            None if enough == attempts.len() => return None,
            None => {
                too_few = Some(enough);
                enough = (enough * 2).max(1).min(attempts.len());
            }
        }
    };
    let mut low = too_few.map_or(enough, |count| count + 1);
    while low < enough {
        let middle = low + (enough - low) / 2;
        match fits(middle) {
            Some(found) => {
                tasks = found;
                enough = middle;
            }
            None => low = middle + 1,
        }
    }
    Some((enough, tasks))
}
