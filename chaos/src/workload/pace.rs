//! Time scaling of a trace replay.

use std::time::Duration;

use crate::workload::TraceJob;

/// Maximum span of a replay, so that no clock overflows.
const SPAN_MAX: Duration = Duration::from_hours(24 * 365 * 10);

/// Replay of a stream faster than it was recorded: submissions and run times are divided by the same
/// factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    origin_ms: u64,
    speed_up: f64,
}

impl Pace {
    /// Replays `speed_up` trace seconds per real second; the first job is submitted at once.
    #[must_use]
    pub fn faster(jobs: &[TraceJob], speed_up: f64) -> Self {
        let origin_ms = jobs.iter().map(|job| job.submit_ms).min().unwrap_or(0);
        Self {
            origin_ms,
            speed_up: speed_up.max(f64::MIN_POSITIVE),
        }
    }

    /// Replays all submissions within `span`.
    #[must_use]
    pub fn within(jobs: &[TraceJob], span: Duration) -> Self {
        let last_ms = jobs.iter().map(|job| job.submit_ms).max().unwrap_or(0);
        let real_time = Self::faster(jobs, 1.0);
        let length_ms = last_ms.saturating_sub(real_time.origin_ms).max(1);
        Self {
            speed_up: Duration::from_millis(length_ms).as_secs_f64() / span.as_secs_f64(),
            ..real_time
        }
    }

    /// Trace seconds per real second.
    #[must_use]
    pub const fn speed_up(&self) -> f64 {
        self.speed_up
    }

    /// Delay of this submission after the first one.
    #[must_use]
    pub fn submit_after(&self, job: &TraceJob) -> Duration {
        self.shrink(job.submit_ms.saturating_sub(self.origin_ms))
    }

    /// Run time of the job; zero if the trace does not give it.
    #[must_use]
    pub fn run_for(&self, job: &TraceJob) -> Duration {
        self.shrink(job.duration_ms.unwrap_or(0))
    }

    fn shrink(&self, ms: u64) -> Duration {
        let seconds = Duration::from_millis(ms).as_secs_f64() / self.speed_up;
        Duration::try_from_secs_f64(seconds).map_or(SPAN_MAX, |span| span.min(SPAN_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit_s: u64, duration_s: u64) -> TraceJob {
        TraceJob {
            name: "j".to_owned(),
            submit_ms: submit_s * 1_000,
            duration_ms: Some(duration_s * 1_000),
            tasks: 1,
            gpus_per_task: 1,
            ..TraceJob::default()
        }
    }

    #[test]
    fn the_first_job_is_submitted_at_once_and_the_last_at_the_end_of_the_span() {
        let jobs = [job(1_000, 600), job(1_300, 60), job(7_000, 1)];
        let pace = Pace::within(&jobs, Duration::from_secs(60));
        assert_eq!(pace.submit_after(&jobs[0]), Duration::ZERO);
        assert_eq!(pace.submit_after(&jobs[1]), Duration::from_secs(3));
        assert_eq!(pace.submit_after(&jobs[2]), Duration::from_secs(60));
        assert_eq!(pace.run_for(&jobs[0]), Duration::from_secs(6));
    }

    #[test]
    fn jobs_that_were_submitted_in_one_second_do_not_divide_by_zero() {
        let jobs = [job(5, 10), job(5, 10)];
        let pace = Pace::within(&jobs, Duration::from_secs(10));
        assert_eq!(pace.submit_after(&jobs[1]), Duration::ZERO);
    }

    #[test]
    fn however_slow_the_replay_no_span_overflows() {
        let never_s = u64::MAX / 1_000;
        let jobs = [job(0, never_s), job(never_s, 1)];
        let pace = Pace::faster(&jobs, f64::MIN_POSITIVE);
        assert_eq!(pace.run_for(&jobs[0]), SPAN_MAX);
        assert_eq!(pace.submit_after(&jobs[1]), SPAN_MAX);
        assert!(tokio::time::Instant::now().checked_add(SPAN_MAX).is_some());
    }
}
