//! Parallel simulations, one per core; results are in the order of the requests.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use muster_simulate::report::{Report, RunReport};
use muster_simulate::{Policy, Scenario, simulate};

use crate::Failure;

/// Runs a scenario under one policy.
pub(super) fn run(scenario: &Scenario, policy: Policy) -> Result<RunReport, Failure> {
    let outcomes = [simulate(scenario, policy, &mut |_| {})?];
    let mut report = Report::new(scenario, &outcomes);
    Ok(report.runs.swap_remove(0))
}

/// Runs all requests.
///
/// # Errors
/// The first error in order.
pub(super) fn all<Q: Sync, A: Send>(
    questions: &[Q],
    answer: impl Fn(&Q) -> Result<A, Failure> + Sync,
) -> Result<Vec<A>, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<(usize, Result<A, Failure>)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..cores.min(questions.len()) {
            scope.spawn(|| {
                loop {
                    let position = next.fetch_add(1, Ordering::Relaxed);
                    let Some(question) = questions.get(position) else {
                        break;
                    };
                    let answer = answer(question);
                    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    answers.push((position, answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|(position, _)| *position);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
