//! Bounds for any policy on a scenario, with the proofs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use crate::measure::{JobEnd, JobRecord};
use crate::report::numbers::{float, seconds, share};
use crate::workload::Scenario;
use crate::world::Outcome;

/// Bounds for any policy on this scenario, over the jobs that ran to their end. Work is counted
/// once: repeating it after a stop only adds to what a policy needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Mean completion time, in seconds: no job ends before its running time has passed, and no set of jobs
    /// before the crowded bound; the sets tried are all jobs, and repeatedly those that must wait according
    /// to the bound.
    ///
    /// *The crowded bound.* Let `m` be the mean time at which the work of a job of `g` GPUs and running
    /// time `d` is done. It is done on at most `g` GPUs at a time, so the job ends no earlier than `m +
    /// d/2`. On a cluster of M GPUs the sum of all `m` is no smaller than with one machine that does M
    /// GPU-seconds a second, always on the submitted job with the smallest total work `g d`: the time `t`
    /// at which a unit of work is done adds `t / (g d)` to the sum, so of two units that are exchanged the
    /// one of the smaller job belongs to the earlier time. Other jobs only add waiting time.
    pub completion_mean_s: f64,
    /// The mean running time, in seconds: the part of the bound above that holds for a cluster of any size.
    pub run_mean_s: f64,
    /// Makespan in seconds. Work submitted from a moment on is done after it: no run ends before any moment
    /// plus the work submitted from then on, spread over all GPUs; nor before the last end if no job ever
    /// waited.
    pub makespan_s: f64,
    /// Maximum useful utilisation until the last submission: a job's work until then is at most its GPUs
    /// times its running time, and at most its GPUs times the time since its submission; the total is at
    /// most all GPUs.
    pub utilisation_until_last_submission: Option<f64>,
}

/// A job reduced to what the bounds need.
#[derive(Clone, Copy)]
struct Work {
    submitted_ms: u64,
    duration_ms: u64,
    gpus: u64,
}

impl Work {
    fn of(record: &JobRecord) -> Option<Self> {
        let ended = record.end == JobEnd::Finished;
        Some(Self {
            submitted_ms: record.submitted_ms,
            duration_ms: record.duration_ms.filter(|_| ended)?,
            gpus: u64::from(record.gpus),
        })
    }

    /// Total work in GPU-milliseconds.
    const fn total(&self) -> u128 {
        self.gpus as u128 * self.duration_ms as u128
    }
}

impl Bounds {
    pub(super) fn of(scenario: &Scenario, outcome: &Outcome) -> Self {
        let work: Vec<Work> = outcome.records.iter().filter_map(Work::of).collect();
        let gpus = scenario.cluster.gpus();
        let count = float(work.len().max(1) as u64);
        let run_ms: u64 = work.iter().map(|job| job.duration_ms).sum();
        let run_mean_s = seconds(run_ms) / count;
        let last_submission_ms = scenario.jobs.last().map_or(0, |job| job.submit_ms);
        Self {
            completion_mean_s: completion_s(&work, gpus) / count,
            run_mean_s,
            makespan_s: seconds(makespan_ms(&work, gpus)),
            utilisation_until_last_submission: utilisation(&work, gpus, last_submission_ms),
        }
    }
}

/// Maximum number of sets of jobs tried for the crowded bound.
const SETS_MAX: usize = 16;

/// A bound on the sum of completion times, in seconds.
fn completion_s(work: &[Work], gpus: u64) -> f64 {
    let run_s: f64 = work.iter().map(|job| seconds(job.duration_ms)).sum();
    let mut gain_max_s: f64 = 0.0;
    let mut set: Vec<Work> = work.iter().copied().filter(|job| job.total() > 0).collect();
    for _ in 0..SETS_MAX {
        let gains_s: Vec<f64> = crowded_s(&set, gpus)
            .into_iter()
            .zip(&set)
            .map(|(crowded_s, job)| crowded_s - seconds(job.duration_ms))
            .collect();
        gain_max_s = gain_max_s.max(gains_s.iter().sum());
        let waiting = set.iter().zip(gains_s).filter(|(_, gain_s)| *gain_s > 0.0);
        let waiting: Vec<Work> = waiting.map(|(job, _)| *job).collect();
        if waiting.len() == set.len() {
            break;
        }
        set = waiting;
    }
    run_s + gain_max_s
}

/// The crowded bound of every job of a set, in seconds after its submission. Only their sum is a bound.
/// Jobs are in order of submission and have work.
fn crowded_s(work: &[Work], gpus: u64) -> Vec<f64> {
    let mut machine = Machine::new(u128::from(gpus.max(1)), work.len());
    for (position, job) in work.iter().enumerate() {
        machine.serve_until(machine.instant(job.submitted_ms));
        let total = job.total();
        machine.waiting.push(Reverse((total, position, total)));
    }
    machine.serve_until(u128::MAX);
    let means_s = machine.means_s.into_iter().zip(work);
    means_s
        .map(|(mean_s, job)| mean_s + seconds(job.duration_ms) / 2.0 - seconds(job.submitted_ms))
        .collect()
}

/// One machine as fast as all GPUs that always serves the job with the smallest total work. Its instants
/// are milliseconds times its speed, so one unit of work takes one instant.
struct Machine {
    speed: u128,
    now: u128,
    /// Total work, position, and remaining work.
    waiting: BinaryHeap<Reverse<(u128, usize, u128)>>,
    /// Mean time of each job's work, in seconds.
    means_s: Vec<f64>,
}

impl Machine {
    fn new(speed: u128, jobs: usize) -> Self {
        Self {
            speed,
            now: 0,
            waiting: BinaryHeap::new(),
            means_s: vec![0.0; jobs],
        }
    }

    const fn instant(&self, at_ms: u64) -> u128 {
        at_ms as u128 * self.speed
    }

    fn serve_until(&mut self, until: u128) {
        while self.now < until
            && let Some(Reverse((total, position, left))) = self.waiting.pop()
        {
            let done = left.min(until - self.now);
            let middle_s = ratio(2 * self.now + done, 2_000 * self.speed);
            self.means_s[position] += middle_s * ratio(done, total);
            self.now += done;
            if done < left {
                self.waiting.push(Reverse((total, position, left - done)));
            }
        }
        if until != u128::MAX {
            self.now = self.now.max(until);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a bound to a dozen digits is enough"
)]
fn ratio(part: u128, whole: u128) -> f64 {
    part as f64 / whole as f64
}

fn makespan_ms(work: &[Work], gpus: u64) -> u64 {
    let mut left: u128 = 0;
    let mut bound_ms = 0;
    for job in work.iter().rev() {
        left += job.total();
        let spread_ms = left.checked_div(u128::from(gpus)).unwrap_or(0);
        let spread_ms = u64::try_from(spread_ms).unwrap_or(u64::MAX);
        let undisturbed_ms = job.submitted_ms + job.duration_ms;
        let crowded_ms = job.submitted_ms.saturating_add(spread_ms);
        bound_ms = bound_ms.max(undisturbed_ms).max(crowded_ms);
    }
    bound_ms
}

fn utilisation(work: &[Work], gpus: u64, until_ms: u64) -> Option<f64> {
    let possible = work.iter().map(|job| {
        let since_ms = until_ms.saturating_sub(job.submitted_ms);
        u128::from(job.gpus) * u128::from(since_ms.min(job.duration_ms))
    });
    let whole = u128::from(gpus) * u128::from(until_ms);
    share(possible.sum::<u128>().min(whole), whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn job(submitted_s: u64, duration_s: u64, gpus: u64) -> Work {
        Work {
            submitted_ms: submitted_s * 1_000,
            duration_ms: duration_s * 1_000,
            gpus,
        }
    }

    #[test]
    fn jobs_that_fill_the_cluster_one_after_the_other_meet_the_bound() {
        // Three jobs of all 4 GPUs for 10 s, submitted at once: they end at 10, 20 and 30 s, which is
        // optimal.
        let work = [job(0, 10, 4), job(0, 10, 4), job(0, 10, 4)];
        assert!((completion_s(&work, 4) - 60.0).abs() < 1e-9);
        assert_eq!(makespan_ms(&work, 4), 30_000);
    }

    #[test]
    fn the_smallest_work_goes_first_and_may_interrupt() {
        // 80 GPU-seconds, then at 2 s 8: the large one is served in 0 to 2 and 3 to 11, the small one in 2
        // to 3.
        let work = [job(0, 20, 4), job(2, 1, 8)];
        let crowded = crowded_s(&work, 8);
        let expected = [(2.0 * 1.0 + 8.0 * 7.0) / 10.0 + 10.0, 0.5 + 0.5];
        for (one, other) in crowded.iter().zip(expected) {
            assert!((one - other).abs() < 1e-9, "{crowded:?}");
        }
        // The large one alone would end after 20 s, and that is more.
        assert!((completion_s(&work, 8) - 21.0).abs() < 1e-9);
    }

    #[test]
    fn work_is_not_done_before_it_is_submitted() {
        // At 100 s come 80 GPU-seconds for 4 GPUs, in two jobs of 2 GPUs.
        let work = [job(0, 5, 1), job(100, 20, 4), job(100, 20, 4)];
        assert_eq!(makespan_ms(&work, 4), 140_000);
        let share = utilisation(&work, 4, 100_000);
        assert_eq!(share, Some(5.0 / 400.0));
    }
}
