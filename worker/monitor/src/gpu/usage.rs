//! Recent utilization of GPUs for the exit records of their tasks, their used memory before the task
//! started, and the job that holds each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::ids::{GpuUuid, JobId};
use muster_model::time::MonotonicMs;

/// The time before a task's exit that counts.
const SPAN_MS: u64 = 60_000;
/// Readings kept of one GPU: one per second of the span, more than are taken.
const READINGS_MAX: usize = 60;

/// Usage of all GPUs: written by GPU, read by task.
#[derive(Clone, Debug, Default)]
pub struct GpuUsage(Arc<Mutex<BTreeMap<GpuUuid, Usage>>>);

#[derive(Debug, Default)]
struct Usage {
    /// Newest last.
    busy: VecDeque<(MonotonicMs, u16)>,
    held_before_mib: Option<u64>,
    job: Option<JobId>,
}

impl GpuUsage {
    /// Records that a task starts on a GPU with `held_mib` of memory in use; none if that is unknown.
    pub(crate) fn task_started(&self, gpu: GpuUuid, held_mib: Option<u64>) {
        let fresh = Usage {
            held_before_mib: held_mib,
            ..Usage::default()
        };
        self.lock().insert(gpu, fresh);
    }

    /// Sets the jobs that hold GPUs now.
    pub fn set_holders(&self, holders: &BTreeMap<GpuUuid, JobId>) {
        let mut all = self.lock();
        for gpu in holders.keys() {
            all.entry(*gpu).or_default();
        }
        for (gpu, known) in all.iter_mut() {
            known.job = holders.get(gpu).copied();
        }
    }

    /// The job that holds a GPU.
    pub(crate) fn job_of(&self, gpu: GpuUuid) -> Option<JobId> {
        self.lock().get(&gpu)?.job
    }

    /// Adds a reading of utilization, per mille.
    pub(crate) fn read(&self, gpu: GpuUuid, now: MonotonicMs, busy_permille: u16) {
        let mut all = self.lock();
        let busy = &mut all.entry(gpu).or_default().busy;
        if busy.len() >= READINGS_MAX {
            busy.pop_front();
        }
        busy.push_back((now, busy_permille));
    }

    /// Average utilization of these GPUs over the last minute, per mille; none if not read since their task
    /// started.
    #[must_use]
    pub fn busy_permille(&self, gpus: &[GpuUuid], now: MonotonicMs) -> Option<u16> {
        let all = self.lock();
        let uses = gpus.iter().filter_map(|gpu| all.get(gpu));
        let readings = uses.flat_map(|it| &it.busy);
        let lately = readings.filter(|(at, _)| now.since(*at) <= SPAN_MS);
        let (sum, count) = lately.fold((0u64, 0u64), |(sum, count), (_, busy)| {
            (sum + u64::from(*busy), count + 1)
        });
        u16::try_from(sum.checked_div(count)?).ok()
    }

    /// MiB in use on these GPUs before their task started; the maximum over the GPUs.
    #[must_use]
    pub fn held_before_mib(&self, gpus: &[GpuUuid]) -> Option<u64> {
        let all = self.lock();
        let uses = gpus.iter().filter_map(|gpu| all.get(gpu));
        uses.filter_map(|it| it.held_before_mib).max()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, Usage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minute_of_a_task_counts_and_not_that_of_the_one_before() {
        let [first, second] = [1, 2].map(GpuUuid);
        let seen = GpuUsage::default();
        let at = |seconds: u64| MonotonicMs(seconds * 1_000);
        assert_eq!(seen.busy_permille(&[first], at(0)), None);
        seen.read(first, at(0), 0);
        seen.task_started(first, Some(300));
        assert_eq!(seen.busy_permille(&[first], at(1)), None);
        seen.read(first, at(10), 0);
        seen.read(first, at(40), 900);
        seen.read(first, at(70), 1_000);
        assert_eq!(seen.busy_permille(&[first], at(80)), Some(950));
        seen.read(second, at(75), 0);
        assert_eq!(seen.busy_permille(&[first, second], at(80)), Some(633));
        assert_eq!(seen.held_before_mib(&[first, second]), Some(300));
        assert_eq!(seen.held_before_mib(&[second]), None);
    }

    #[test]
    fn a_gpu_is_the_jobs_that_has_it_now() {
        let [first, second] = [1, 2].map(GpuUuid);
        let seen = GpuUsage::default();
        seen.read(second, MonotonicMs(0), 0);
        assert_eq!(seen.job_of(first), None);
        seen.set_holders(&[(first, JobId(7))].into());
        assert_eq!(seen.job_of(first), Some(JobId(7)));
        assert_eq!(seen.job_of(second), None);
        seen.set_holders(&BTreeMap::new());
        assert_eq!(seen.job_of(first), None);
    }
}
