//! Figures of a run, each defined where it is declared.

use serde::Serialize;

use crate::measure::{JobEnd, JobRecord};
use crate::report::numbers::{float, gpu_hours, seconds, share};
use crate::workload::Scenario;
use crate::world::{HealthyOutByCause, Outcome};

/// Shortest running time in the denominator of slowdown: otherwise a job of one second that waits for a
/// minute outweighs a week of another user's work (Feitelson's bounded slowdown).
const SLOWDOWN_DURATION_MS_MIN: u64 = 10_000;

/// Mean and quantiles of a set of times, in seconds. The quantile of share q is the smallest time that at
/// least a share q of the set does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// Largest.
    pub max_s: f64,
}

impl Spread {
    /// Spread of these milliseconds; `None` if there are none.
    fn of(mut times_ms: Vec<u64>) -> Option<Self> {
        times_ms.sort_unstable();
        let last = *times_ms.last()?;
        let count = times_ms.len();
        let quantile = |percent: usize| {
            let rank = (count * percent).div_ceil(100).max(1);
            seconds(times_ms[rank - 1])
        };
        let sum: u64 = times_ms.iter().sum();
        Some(Self {
            mean_s: seconds(sum) / float(count as u64),
            p50_s: quantile(50),
            p99_s: quantile(99),
            max_s: seconds(last),
        })
    }
}

/// Figures of a set of jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobFigures {
    /// Jobs in the set.
    pub jobs: u64,
    /// Jobs placed at least once.
    pub placed: u64,
    /// Jobs that ran to their end.
    pub finished: u64,
    /// Jobs that wait or run when the simulation ends.
    pub unfinished: u64,
    /// Queueing delay: from submission to the first placement, over jobs that were placed.
    pub delay: Option<Spread>,
    /// Job completion time: from submission to the end, over jobs that ran to their end.
    pub completion: Option<Spread>,
    /// Completion time less running time: all waiting, also after a stop, and work done again; over jobs
    /// that ran to their end.
    pub overhead: Option<Spread>,
    /// Mean of completion time over running time (of at least 10 s) of jobs that ran to their end; 1 is
    /// ideal.
    pub slowdown_mean: Option<f64>,
    /// Attempts that were preempted.
    pub preemptions: u64,
    /// Attempts that were moved to make room for others.
    pub moves: u64,
    /// Attempts that ended because their host or GPU failed.
    pub interruptions: u64,
    /// GPU-hours of work that was done and kept.
    pub done_gpu_hours: f64,
    /// GPU-hours of work lost since the last checkpoint of stopped attempts.
    pub lost_gpu_hours: f64,
}

/// Jobs with a common property.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The queue, or the range of GPUs.
    pub name: String,
    /// Figures of these jobs.
    #[serde(flatten)]
    pub jobs: JobFigures,
}

/// Figures of the cluster as a whole. All GPUs count, also those of hosts that are down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterFigures {
    /// From the first submission to the last end of a job, in seconds.
    pub makespan_s: f64,
    /// Share of the makespan's GPU-time that attempts held.
    pub utilisation: Option<f64>,
    /// The same fraction until the last submission: a few endless jobs at the end do not count.
    pub utilisation_until_last_submission: Option<f64>,
    /// The same fraction over the time in which at least one job waits.
    pub utilisation_while_waiting: Option<f64>,
    /// Share of the makespan in which at least one job waits.
    pub waiting_share: Option<f64>,
    /// GPUs held when the simulation ends: of interest if nothing ends (packing).
    pub gpus_held_at_end: u64,
    /// Fragmentation for a whole host: of the free GPU-time, the share on hosts that are not wholly free.
    pub fragmentation_whole_host: Option<f64>,
    /// Fragmentation for the first waiting job: of the free GPU-time while a job waits for room, the share
    /// that cannot take part in that job's request (wrong model, or fewer GPUs left on the host than one of
    /// its tasks needs). The rest suffices for some of its tasks, but not for all.
    pub fragmentation_head: Option<f64>,
    /// Jain's index over the queues' mean slowdowns: 1 if all queues are slowed down equally, 1/n if one
    /// bears it all. Queues without a finished job do not count.
    pub fairness: Option<f64>,
    /// GPU-hours of hosts that were down, and of GPUs otherwise out of placement and not held.
    pub down_gpu_hours: f64,
}

/// Health of hosts and GPUs, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HealthFigures {
    /// Attempts of which a task died because of a faulty part.
    pub struck: u64,
    /// Jobs that failed because this exhausted their retries.
    pub ruined: u64,
    /// GPU-hours of work that these jobs needed and that was not delivered.
    pub ruined_gpu_hours: f64,
    /// GPU-hours of lost work: since the last checkpoint of stopped attempts, and all work of ruined jobs.
    pub lost_gpu_hours: f64,
    /// Components that the engine took out of placement.
    pub blocks: u64,
    /// Number of blocks of components without a faulty part.
    pub false_blocks: u64,
    /// GPU-hours of healthy GPUs out of placement and not held.
    pub healthy_idle_gpu_hours: f64,
    /// The same GPU-hours by what they waited for.
    pub healthy_out_gpu_hours: HealthyOutByCause<f64>,
    /// GPU-hours of faulty GPUs.
    pub unhealthy_gpu_hours: f64,
    /// The largest share of all GPUs out of placement at a time.
    pub out_share_max: Option<f64>,
}

impl HealthFigures {
    pub(super) fn of(scenario: &Scenario, outcome: &Outcome) -> Option<Self> {
        let counts = outcome.health?;
        let ruined = outcome.records.iter();
        let ruined = ruined.filter(|record| record.end == JobEnd::Ruined);
        let needed = |record: &JobRecord| {
            u128::from(record.duration_ms.unwrap_or_default()) * u128::from(record.gpus)
        };
        let ruined_gpu_hours = gpu_hours(ruined.clone().map(needed).sum());
        let kept_in_vain = ruined.clone().map(JobRecord::done_gpu_ms).sum::<u128>();
        let lost = outcome
            .records
            .iter()
            .map(JobRecord::lost_gpu_ms)
            .sum::<u128>();
        Some(Self {
            struck: counts.struck,
            ruined: ruined.count() as u64,
            ruined_gpu_hours,
            lost_gpu_hours: gpu_hours(lost + kept_in_vain),
            blocks: counts.blocks,
            false_blocks: counts.false_blocks,
            healthy_idle_gpu_hours: gpu_hours(counts.healthy_out_gpu_ms.total()),
            healthy_out_gpu_hours: counts.healthy_out_gpu_ms.map(gpu_hours),
            unhealthy_gpu_hours: gpu_hours(counts.faulty_gpu_ms),
            out_share_max: share(
                u128::from(counts.out_max),
                u128::from(scenario.cluster.gpus()),
            ),
        })
    }
}

/// Work done by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Commands applied.
    pub commands: u64,
    /// Planning rounds.
    pub rounds: u64,
    /// Placements made.
    pub placements: u64,
    /// Audits of the whole state.
    pub audits: u64,
}

/// Figures of a set of jobs.
pub(super) fn job_figures<'a>(records: impl Iterator<Item = &'a JobRecord> + Clone) -> JobFigures {
    let count = |end: JobEnd| {
        let of_end = records.clone().filter(|record| record.end == end);
        of_end.count() as u64
    };
    let sum = |part: fn(&JobRecord) -> u128| records.clone().map(part).sum::<u128>();
    let times = |time: fn(&JobRecord) -> Option<u64>| records.clone().filter_map(time).collect();
    let slowdowns: Vec<f64> = records.clone().filter_map(slowdown).collect();
    JobFigures {
        jobs: records.clone().count() as u64,
        placed: records
            .clone()
            .filter(|record| record.first_placed_ms.is_some())
            .count() as u64,
        finished: count(JobEnd::Finished),
        unfinished: count(JobEnd::Waiting) + count(JobEnd::Running),
        delay: Spread::of(times(JobRecord::delay_ms)),
        completion: Spread::of(times(JobRecord::completion_ms)),
        overhead: Spread::of(times(JobRecord::overhead_ms)),
        slowdown_mean: mean(&slowdowns),
        preemptions: records
            .clone()
            .map(|record| u64::from(record.preemptions))
            .sum(),
        moves: records.clone().map(|record| u64::from(record.moves)).sum(),
        interruptions: records
            .clone()
            .map(|record| u64::from(record.interruptions))
            .sum(),
        done_gpu_hours: gpu_hours(sum(JobRecord::done_gpu_ms)),
        lost_gpu_hours: gpu_hours(sum(JobRecord::lost_gpu_ms)),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len() as u64))
}

fn slowdown(record: &JobRecord) -> Option<f64> {
    let needed_ms = record.duration_ms?.max(SLOWDOWN_DURATION_MS_MIN);
    let slowdown = seconds(record.completion_ms()?) / seconds(needed_ms);
    Some(slowdown.max(1.0))
}

/// Jain's index of fairness: the square of the sum over n times the sum of squares.
fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (float(values.len() as u64) * squares))
}

/// The figures of the cluster; `by_queue` are those of its queues.
pub(super) fn cluster_figures(
    scenario: &Scenario,
    outcome: &Outcome,
    by_queue: &[Group],
) -> ClusterFigures {
    let observed = &outcome.observed;
    let sums = &observed.integrals;
    let gpus = u128::from(scenario.cluster.gpus());
    let makespan_ms = makespan_ms(&outcome.records);
    let last_submission_ms = scenario.jobs.last().map_or(0, |job| job.submit_ms);
    let whole = |span_ms: u64| gpus * u128::from(span_ms);
    let slowdowns: Vec<f64> = by_queue
        .iter()
        .filter_map(|group| group.jobs.slowdown_mean)
        .collect();
    let down = whole(observed.end_ms).saturating_sub(sums.held + sums.free);
    ClusterFigures {
        makespan_s: seconds(makespan_ms),
        utilisation: share(sums.held, whole(makespan_ms)),
        utilisation_until_last_submission: share(
            sums.held_until_last_submission,
            whole(last_submission_ms),
        ),
        utilisation_while_waiting: share(sums.held_while_waiting, whole(sums.waiting_ms)),
        waiting_share: share(u128::from(sums.waiting_ms), u128::from(makespan_ms)),
        gpus_held_at_end: observed.held.value(),
        fragmentation_whole_host: share(sums.stranded_for_whole_host, sums.free),
        fragmentation_head: share(sums.stranded_for_head, sums.free_beside_head),
        fairness: jain(&slowdowns),
        down_gpu_hours: gpu_hours(down),
    }
}

fn makespan_ms(records: &[JobRecord]) -> u64 {
    let ends = records.iter().filter_map(|record| record.finished_ms);
    ends.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_set() {
        let spread = Spread::of((1..=200).map(|second| second * 1_000).collect());
        let expected = Spread {
            mean_s: 100.5,
            p50_s: 100.0,
            p99_s: 198.0,
            max_s: 200.0,
        };
        assert_eq!(spread, Some(expected));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn fairness_is_one_for_equals_and_small_for_one_victim() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        let unfair = jain(&[1.0, 1.0, 1.0, 97.0]);
        assert!(unfair.is_some_and(|index| index < 0.27), "{unfair:?}");
        assert_eq!(jain(&[]), None);
    }
}
