//! Checker for P5: a unit that the state counts as success really ran to its end, once.

use muster_engine::state::{Job, State};
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey, UnitIndex};
use muster_model::lifecycle::UnitPhase;

use crate::checkers::{GpuLedger, UnitAttempt};

/// The state counts a unit as success, but no process of one of its tasks exited with code 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unit {unit} of job {job} counts as success, but attempt {epoch} of its task {task} never ended with exit code 0"
)]
pub struct PhantomSuccess {
    /// The job.
    pub job: JobId,
    /// The unit.
    pub unit: UnitIndex,
    /// The attempt recorded as successful; 0 if no attempt of the unit ever ended.
    pub epoch: AttemptEpoch,
    /// The task.
    pub task: TaskIndex,
}

/// Returns units that succeeded in the state but not in the GPU ledger.
#[must_use]
pub fn phantom_successes(state: &State, ledger: &GpuLedger) -> Vec<PhantomSuccess> {
    let jobs = state.jobs.values();
    jobs.flat_map(|job| of_job(job, ledger)).collect()
}

fn of_job(job: &Job, ledger: &GpuLedger) -> Vec<PhantomSuccess> {
    let succeeded = job
        .units
        .iter()
        .filter(|(_, unit)| unit.phase == UnitPhase::Succeeded);
    let mut found = Vec::new();
    for (index, unit) in succeeded {
        // A unit's newest attempts are never forgotten: a unit without attempts never ran.
        let last = unit.past.last();
        let tasks = job.tasks_of(*index).map(TaskIndex);
        let phantoms = tasks.filter(|task| {
            let key = TaskKey {
                job: job.id,
                task: *task,
            };
            let ended_well = last.is_some_and(|last| {
                let gang = UnitAttempt {
                    unit: *index,
                    number: last.number,
                };
                ledger.ended_well(key, gang)
            });
            !ended_well
        });
        found.extend(phantoms.map(|task| PhantomSuccess {
            job: job.id,
            unit: *index,
            epoch: last.map_or(AttemptEpoch(0), |last| last.epoch),
            task,
        }));
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use muster_harness::{Cluster, single};

    use super::super::Owner;
    use super::*;

    #[test]
    fn a_success_without_a_process_that_ended_well_is_noticed() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let job = cluster.submit(single("done", 1, 1));
        cluster.place_all(job);
        cluster.finish_all(job);
        let mut ledger = GpuLedger::default();
        let found = phantom_successes(&cluster.state, &ledger);
        assert_eq!(found.len(), 1);
        let key = TaskKey {
            job,
            task: found[0].task,
        };
        let owner = Owner {
            key,
            epoch: found[0].epoch,
        };
        let gang = UnitAttempt {
            unit: found[0].unit,
            number: 1,
        };
        ledger.started(owner, gang, &[]);
        ledger.ended(owner, Some(0));
        assert_eq!(phantom_successes(&cluster.state, &ledger), []);
        // Whatever else ran: a unit without an ended attempt did not succeed.
        let known = Arc::make_mut(cluster.state.jobs.get_mut(&job).unwrap());
        let unit = known.units.get_mut(&found[0].unit).unwrap();
        Arc::make_mut(unit).past.clear();
        let never_ran = phantom_successes(&cluster.state, &ledger);
        assert_eq!(never_ran[0].epoch, AttemptEpoch(0));
    }
}
