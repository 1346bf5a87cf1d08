//! Progress reported by tasks: informational, so only in the leader's memory, as last reported by the
//! workers.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use muster_model::heartbeat::WorkerStatus;
use muster_model::ids::{AttemptEpoch, HostId, JobId, TaskIndex, TaskKey};

/// A training step reported by a task of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The task.
    pub task: TaskIndex,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// The training step.
    pub step: u64,
}

/// Reports of the tasks of one host.
type HostReports = BTreeMap<TaskKey, (AttemptEpoch, u64)>;

/// Reports of the tasks of each host, while its worker is connected here.
#[derive(Debug, Default)]
pub(super) struct ProgressBoard {
    hosts: RwLock<BTreeMap<HostId, HostReports>>,
}

impl ProgressBoard {
    /// Records the complete state reported by a host's worker.
    pub(super) fn record_status(&self, host: HostId, status: &WorkerStatus) {
        let tasks: HostReports = status
            .tasks
            .iter()
            .filter_map(|task| Some((task.key, (task.epoch, task.progress_step?))))
            .collect();
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        if tasks.is_empty() {
            hosts.remove(&host);
        } else {
            hosts.insert(host, tasks);
        }
    }

    /// Drops the reports of a host whose worker has disconnected.
    pub(super) fn forget(&self, host: HostId) {
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        hosts.remove(&host);
    }

    /// Reports of the tasks of a job, at most `max`, ascending.
    pub(super) fn of_job(&self, job: JobId, max: usize) -> Vec<Step> {
        let first = TaskKey {
            job,
            task: TaskIndex(0),
        };
        let last = TaskKey {
            job,
            task: TaskIndex(u32::MAX),
        };
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        let reports = hosts.values().flat_map(|tasks| tasks.range(first..=last));
        let mut steps: Vec<Step> = reports
            .map(|(key, (epoch, step))| Step {
                task: key.task,
                epoch: *epoch,
                step: *step,
            })
            .collect();
        steps.sort_by_key(|step| (step.task, step.epoch));
        steps.truncate(max);
        steps
    }
}

#[cfg(test)]
mod tests {
    use muster_model::heartbeat::{TaskStatus, WorkerTaskPhase};
    use muster_model::ids::UnitIndex;

    use super::*;

    fn status(tasks: &[(u64, u32, u64, Option<u64>)]) -> WorkerStatus {
        let task = |(job, task, epoch, step): &(u64, u32, u64, Option<u64>)| TaskStatus {
            key: TaskKey {
                job: JobId(*job),
                task: TaskIndex(*task),
            },
            unit: UnitIndex(0),
            epoch: AttemptEpoch(*epoch),
            phase: WorkerTaskPhase::Running,
            checkpoints: Vec::new(),
            progress_step: *step,
            damaged: Vec::new(),
        };
        WorkerStatus {
            tasks: tasks.iter().map(task).collect(),
            gpus: Vec::new(),
            ..WorkerStatus::default()
        }
    }

    #[test]
    fn the_last_report_of_each_connected_host_counts() {
        let board = ProgressBoard::default();
        board.record_status(
            HostId(1),
            &status(&[(7, 1, 4, Some(10)), (7, 2, 4, None), (8, 0, 5, Some(1))]),
        );
        board.record_status(HostId(2), &status(&[(7, 0, 4, Some(12))]));
        let steps = |job| -> Vec<(u32, u64)> {
            let of_job = board.of_job(JobId(job), 9);
            of_job
                .iter()
                .map(|step| (step.task.get(), step.step))
                .collect()
        };
        assert_eq!(steps(7), [(0, 12), (1, 10)]);
        assert_eq!(steps(8), [(0, 1)]);
        assert_eq!(board.of_job(JobId(7), 1).len(), 1);
        board.record_status(HostId(1), &status(&[(7, 1, 4, Some(11))]));
        assert_eq!(steps(7), [(0, 12), (1, 11)]);
        assert_eq!(steps(8), []);
        board.forget(HostId(2));
        assert_eq!(steps(7), [(1, 11)]);
    }
}
