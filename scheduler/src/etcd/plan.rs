//! Current placements as etcd keys and values.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{Attempt, Job, State};
use muster_etcd::Keys;
use muster_etcd::mirror::Contents;
use muster_etcd::records::{Allocation, FORMAT, Task};
use muster_model::ids::{UnitId, UnitIndex};

/// An attempt with its key and its serialized value.
type Written = (Arc<Attempt>, String, Arc<str>);

/// The plan as of the last request; unchanged attempts are not serialized again.
#[derive(Debug)]
pub(super) struct Plan {
    keys: Keys,
    written: BTreeMap<UnitId, Written>,
}

impl Plan {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            keys,
            written: BTreeMap::new(),
        }
    }

    /// One key for every unit that holds resources.
    pub(super) fn contents(&mut self, state: &State) -> Contents {
        let mut written = BTreeMap::new();
        for key in state.index.attempts.values().flatten() {
            let id = UnitId::new(key.job.0, key.unit);
            let Some(job) = state.job(id.job) else {
                continue;
            };
            let Some(attempt) = job
                .units
                .get(&id.unit)
                .and_then(|unit| unit.attempt.as_ref())
            else {
                continue;
            };
            let known = self.written.remove(&id);
            let same = known.filter(|(known, ..)| Arc::ptr_eq(known, attempt));
            written.insert(
                id,
                same.unwrap_or_else(|| self.write(state, job, id.unit, attempt)),
            );
        }
        self.written = written;
        let pairs = self.written.values();
        pairs
            .map(|(_, key, value)| (key.clone(), Arc::clone(value)))
            .collect()
    }

    fn write(&self, state: &State, job: &Job, unit: UnitIndex, attempt: &Arc<Attempt>) -> Written {
        let key = self.keys.unit(job.id.get(), unit.get());
        let value = allocation(state, job, unit, attempt).encode();
        (Arc::clone(attempt), key, value.into())
    }
}

fn allocation(state: &State, job: &Job, unit: UnitIndex, attempt: &Attempt) -> Allocation {
    let running = attempt.tasks.iter().filter(|run| run.exit.is_none());
    let tasks = running.map(|run| Task {
        task: run.task.get(),
        host: state
            .host(run.host)
            .map_or_else(String::new, |host| host.name.to_string()),
        gpus: run.gpus.iter().map(ToString::to_string).collect(),
    });
    Allocation {
        format: FORMAT,
        job: job.id.get(),
        unit: unit.get(),
        attempt: attempt.number,
        attempt_epoch: attempt.epoch.get(),
        queue: job.spec.queue.clone(),
        user: job.spec.user.clone(),
        placed_at_ms: attempt.placed_at.0,
        tasks: tasks.collect(),
        tasks_left_out: false,
    }
}
