//! Resource amounts that a waiting unit would hold once placed.

use muster_engine::state::Job;
use muster_model::ids::{TaskIndex, UnitIndex};
use muster_model::quota::Amounts;
use muster_model::spec::TaskGroup;

use crate::capacity::Capacity;

/// Amounts that the unit would hold, by the model of the GPUs that it would get.
pub(super) fn by_model(capacity: &Capacity<'_>, job: &Job, unit: UnitIndex) -> Vec<Amounts> {
    let groups: Vec<(&TaskGroup, u64)> = if job.spec.gang {
        let groups = job.spec.groups.iter();
        groups
            .map(|group| {
                (
                    group,
                    u64::from(group.layout.count_min.unwrap_or(group.count)),
                )
            })
            .collect()
    } else {
        let group = job.spec.group_of(TaskIndex(unit.get()));
        group.map(|(group, _)| (group, 1)).into_iter().collect()
    };
    let of_model = |model: &str| {
        let mut amounts = Amounts::default();
        for (group, tasks) in &groups {
            let accepted = &group.resources.gpu_models;
            let model = match accepted.first() {
                Some(first) if !group.resources.accepts_model(model) => first,
                _ => model,
            };
            amounts.add_tasks(&group.resources, model, *tasks);
        }
        amounts
    };
    if groups.iter().all(|(group, _)| group.resources.gpus == 0) {
        return vec![of_model("")];
    }
    let is_accepted = |model: &str| {
        let mut all = groups.iter().map(|(group, _)| &group.resources);
        all.any(|resources| resources.gpus > 0 && resources.accepts_model(model))
    };
    let models = capacity.models();
    models
        .filter(|model| is_accepted(model))
        .map(|model| of_model(model))
        .collect()
}
