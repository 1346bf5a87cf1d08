//! Requests of a job that this cluster or its queue cannot satisfy, found at submission.

use muster_model::quota::Guarantee;
use muster_model::spec::{JobSpec, TaskGroup, Violation, Within};

use crate::apply::violation;
use crate::state::{Queue, State};

/// Checks levels against the topology, pinned cells against the queue, and groups that the virtual cluster
/// cannot keep together.
pub(in crate::apply) fn of_state(state: &State, spec: &JobSpec) -> Vec<Violation> {
    let mut found = levels(state, spec);
    found.extend(pinned_cell(state, spec));
    found.extend(without_gpus(state, spec));
    found
}

fn levels(state: &State, spec: &JobSpec) -> Vec<Violation> {
    let groups = spec.groups.iter().enumerate();
    let withins = groups.filter_map(|(position, group)| {
        let field = format!("groups[{position}].layout.within.level");
        Some((field, group.layout.within.as_ref()?))
    });
    let of_job = spec.scheduling.within.as_ref();
    let of_job = of_job.map(|within| ("scheduling.within.level".to_owned(), within));
    let asked = of_job.into_iter().chain(withins);
    let unknown = asked.filter(|(_, within)| state.topology.level(&within.level).is_none());
    let violation = |(field, within): (String, &Within)| {
        let levels: Vec<&str> = state.topology.levels().collect();
        let rule = format!(
            "`{}` is not a cell level; the levels are {}",
            within.level,
            levels.join(", ")
        );
        violation(&field, rule)
    };
    unknown.map(violation).collect()
}

fn pinned_cell(state: &State, spec: &JobSpec) -> Option<Violation> {
    let asked = spec.scheduling.pinned_cell.as_ref()?;
    let queue = state.queues.get(spec.queue.as_str());
    let pinned = queue.is_some_and(|queue| match &queue.config.guarantee {
        Guarantee::Cells(quotas) => {
            let mut cells = quotas.iter().flat_map(|quota| &quota.pinned);
            cells.any(|cell| cell.name == *asked)
        }
        Guarantee::Amounts(_) => false,
    });
    let rule = format!("`{asked}` is no pinned cell of queue `{}`", spec.queue);
    (!pinned).then(|| violation("scheduling.pinned_cell", rule))
}

/// Finds groups without GPUs that must share a cell in a gang served in cells: cells are chosen for GPUs, and
/// tasks without GPUs are placed afterwards where CPUs are free. Such a gang might wait forever although
/// there is room.
fn without_gpus(state: &State, spec: &JobSpec) -> Vec<Violation> {
    let is_cluster =
        |queue: &Queue| queue.config.is_virtual_cluster() && !spec.scheduling.opportunistic;
    let queue = state.queues.get(spec.queue.as_str());
    let asks_cells = spec.gang && spec.groups.iter().any(|group| group.resources.gpus > 0);
    if !asks_cells || !queue.is_some_and(|queue| is_cluster(queue)) {
        return Vec::new();
    }
    let groups = spec.groups.iter().enumerate();
    let apart = groups.filter_map(|(position, group)| {
        let within = shared_without_gpus(state, group)?;
        let rule = format!(
            "group `{}` asks for no GPUs, and queue `{}` guarantees cells, which are chosen for GPUs alone: it cannot \
             promise that the group's tasks share a {}; only prefer it (required: false), require it of the whole gang \
             (scheduling.within), or submit to a queue without cells",
            group.name, spec.queue, within.level
        );
        Some(violation(
            &format!("groups[{position}].layout.within.required"),
            rule,
        ))
    });
    apart.collect()
}

/// Returns the cell level that several tasks without GPUs must share, if any.
fn shared_without_gpus<'g>(state: &State, group: &'g TaskGroup) -> Option<&'g Within> {
    let within = group.layout.within.as_ref()?;
    let level = state.topology.level(&within.level)?;
    let together = group.layout.within_tasks.unwrap_or(group.count);
    let is_shared = level <= state.topology.host_level() && together > 1;
    let asks_none = group.resources.gpus == 0;
    (within.required && is_shared && asks_none).then_some(within)
}
