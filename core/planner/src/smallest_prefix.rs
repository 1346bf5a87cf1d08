//! Search for the fewest attempts, in a given order, that must end before a unit fits.

use muster_model::command::{TaskPlacement, Victim};

use crate::capacity::Capacity;

/// The smallest number of attempts, counted from the first, without which something fits, and the
/// placement; `None` if it does not fit even without all of them. `fits` receives a fork without the
/// prefix.
///
/// Exponential search, then bisection: about twice the logarithm of the number of attempts in tries. A fork
/// grows out of the largest one that was too small, so every attempt is freed only a few times.
pub(super) fn smallest<'a>(
    capacity: &Capacity<'a>,
    attempts: &[Victim],
    fits: impl Fn(&mut Capacity<'a>, usize) -> Option<Vec<TaskPlacement>>,
) -> Option<(usize, Vec<TaskPlacement>)> {
    let mut base = capacity.free_attempts(&[]);
    // Largest prefix known not to suffice.
    let mut freed = 0;
    let mut enough = 0;
    let mut tasks = loop {
        let larger = base.free_attempts(&attempts[freed..enough]);
        match fits(&mut larger.clone(), enough) {
            Some(tasks) => break tasks,
            None if enough == attempts.len() => return None,
            None => {
                (base, freed) = (larger, enough);
                enough = (enough * 2).max(1).min(attempts.len());
            }
        }
    };
    while enough - freed > 1 {
        let middle = freed + (enough - freed) / 2;
        let larger = base.free_attempts(&attempts[freed..middle]);
        match fits(&mut larger.clone(), middle) {
            Some(found) => {
                tasks = found;
                enough = middle;
            }
            None => (base, freed) = (larger, middle),
        }
    }
    Some((enough, tasks))
}
