//! Waiting times of jobs, by queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::state::{Job, State};
use muster_model::ids::JobId;
use muster_model::quota::parent_of;
use muster_model::time::TimeMs;

/// Queues with a label of their own; the others are counted together.
pub(super) const QUEUES_LABELLED_MAX: usize = 100;
/// Label of the queues without one of their own.
pub(super) const OTHER_QUEUES: &str = "(others)";

/// Label of the outermost queue that contains `queue`: itself if it has no parent. Of the outermost queues,
/// the first by name have a label of their own.
pub(crate) fn outermost_queue<'a>(state: &State, queue: &'a str) -> &'a str {
    let outermost = queue.split('/').next().unwrap_or(queue);
    let is_labelled = labelled(state).any(|name| name == outermost);
    if is_labelled { outermost } else { OTHER_QUEUES }
}

fn labelled(state: &State) -> impl Iterator<Item = &str> {
    let queues = state.queues.keys().map(AsRef::as_ref);
    let outermost = queues.filter(|name| parent_of(name).is_none());
    outermost.take(QUEUES_LABELLED_MAX)
}

/// Time since the submission of the oldest job that could run and has never run, by the outermost queue; 0 if
/// none waits. Jobs that wait for dependencies, or are suspended, do not count.
pub(super) fn oldest_waits_ms(state: &State, now: TimeMs) -> BTreeMap<String, u64> {
    let mut waits: BTreeMap<String, u64> = labelled(state)
        .map(|name| (name.to_owned(), 0))
        .chain([(OTHER_QUEUES.to_owned(), 0)])
        .collect();
    for (class, jobs) in &state.index.waiting {
        // Ids ascend with the time of submission, which alone skips most jobs.
        let oldest = jobs
            .iter()
            .fold(None, |oldest: Option<&Arc<Job>>, (_, id)| {
                let is_older = oldest.is_none_or(|oldest| *id < oldest.id);
                let older = is_older.then(|| never_ran(state, *id)).flatten();
                older.or(oldest)
            });
        let waited = waits.get_mut(outermost_queue(state, &class.queue));
        if let (Some(waited), Some(oldest)) = (waited, oldest) {
            *waited = now.since(oldest.submitted_at).max(*waited);
        }
    }
    waits
}

/// The job, if no part of it was ever placed.
fn never_ran(state: &State, id: JobId) -> Option<&Arc<Job>> {
    let job = state.jobs.get(&id)?;
    let never = job.units.values().all(|unit| unit.attempts == 0);
    never.then_some(job)
}

#[cfg(test)]
mod tests {
    use muster_harness::{Cluster, single};
    use muster_model::spec::DEFAULT_QUEUE;
    use muster_planner::{Budget, plan};

    use super::*;

    #[test]
    fn the_wait_of_a_queue_is_that_of_its_oldest_job_that_never_ran() {
        let mut cluster = Cluster::with_hosts(1, 4);
        let waited_ms =
            |cluster: &Cluster| oldest_waits_ms(&cluster.state, cluster.now)[DEFAULT_QUEUE];
        assert_eq!(waited_ms(&cluster), 0);
        cluster.submit(single("old", 1, 4));
        cluster.wait(5_000);
        let mut urgent = single("urgent", 1, 4);
        urgent.priority = 1;
        cluster.submit(urgent);
        cluster.wait(2_000);
        assert_eq!(
            waited_ms(&cluster),
            7_000,
            "independent of the jobs before it"
        );
        for step in plan(&cluster.state, cluster.now, Budget::default()).steps {
            assert!(cluster.apply(&step).result.is_ok(), "{step:?}");
        }
        assert_eq!(waited_ms(&cluster), 7_000, "the urgent one runs");
    }

    #[test]
    fn nested_and_unknown_queues_have_no_label_of_their_own() {
        let cluster = Cluster::with_hosts(1, 4);
        let label = |queue: &str| outermost_queue(&cluster.state, queue).to_owned();
        assert_eq!(label(DEFAULT_QUEUE), DEFAULT_QUEUE);
        assert_eq!(label(&format!("{DEFAULT_QUEUE}/vision")), DEFAULT_QUEUE);
        assert_eq!(label("unknown/vision"), OTHER_QUEUES);
    }
}
