//! Checks that the cluster can honour the guarantees of queues.

use muster_model::quota::{Amounts, Guarantee, Limits, QueueConfig, parent_of};
use muster_model::spec::Violation;
use muster_model::topology::ClusterTree;

use crate::cells::check_quotas;
use crate::state::State;

/// Returns the guarantees that exceed the registered hosts, with the arithmetic. A cluster without hosts
/// accepts any guarantee.
pub(in crate::apply) fn check(state: &State, queues: &[(&str, QueueConfig)]) -> Vec<Violation> {
    if state.hosts.is_empty() {
        return Vec::new();
    }
    let mut guaranteed = Amounts::default();
    let mut parts = Vec::new();
    for (name, config) in queues {
        let own = amounts(name, config);
        if !own.is_zero() {
            parts.push((*name, own.gpus));
            guaranteed.add(&own);
        }
    }
    let have = capacity(state);
    let limits = Limits {
        gpus: Some(have.gpus),
        gpus_by_model: guaranteed
            .gpus_by_model
            .keys()
            .map(|model| {
                let count = have.gpus_by_model.get(model).copied().unwrap_or(0);
                (model.clone(), count)
            })
            .collect(),
        cpus_milli: Some(have.cpus_milli),
        memory_mib: Some(have.memory_mib),
    };
    let over = Amounts::default().over(&guaranteed, &limits);
    let mut found: Vec<Violation> = over
        .map(|(resource, sum, have)| Violation {
            field: "queues".to_owned(),
            rule: format!(
                "{sum} {resource} are guaranteed, and the registered hosts have {have} (GPUs: {})",
                arithmetic(&parts)
            ),
        })
        .into_iter()
        .collect();
    if found.is_empty() {
        let queues = queues.iter().map(|(name, config)| (*name, config));
        found = check_quotas(state, &state.index.tree, queues);
    }
    found
}

/// Returns the cells guaranteed to virtual clusters that the tree cannot provide.
pub(in crate::apply) fn check_cells(state: &State, tree: &ClusterTree) -> Vec<Violation> {
    let live = state.queues.values().filter(|queue| !queue.retired);
    let queues: Vec<(&str, &QueueConfig)> = live
        .map(|queue| (queue.name.as_ref(), queue.config.as_ref()))
        .collect();
    check_quotas(state, tree, queues.iter().copied())
}

/// Returns what a queue adds to the sum: a top-level queue its guarantee, which covers its children; a
/// virtual cluster the GPUs of its cells.
fn amounts(name: &str, config: &QueueConfig) -> Amounts {
    match &config.guarantee {
        Guarantee::Amounts(amounts) if parent_of(name).is_none() => amounts.clone(),
        Guarantee::Amounts(_) => Amounts::default(),
        Guarantee::Cells(quotas) => {
            let mut amounts = Amounts::default();
            for quota in quotas {
                let cells = u64::from(quota.count) + quota.pinned.len() as u64;
                amounts.add_gpus(&quota.gpu_model, cells * u64::from(quota.gpus));
            }
            amounts
        }
    }
}

/// Returns the total resources of all registered hosts, regardless of their state.
fn capacity(state: &State) -> Amounts {
    let mut capacity = Amounts::default();
    for host in state.hosts.values() {
        for gpu in &host.gpus {
            capacity.add_gpus(&gpu.model, 1);
        }
        capacity.cpus_milli += u64::from(host.cpus_milli);
        capacity.memory_mib = capacity.memory_mib.saturating_add(host.memory_mib);
    }
    capacity
}

/// Maximum number of queues named in an error.
const NAMED_MAX: usize = 8;

fn arithmetic(parts: &[(&str, u64)]) -> String {
    let mut named: Vec<String> = parts
        .iter()
        .take(NAMED_MAX)
        .map(|(name, gpus)| format!("{name} {gpus}"))
        .collect();
    if parts.len() > NAMED_MAX {
        named.push(format!("{} more queues", parts.len() - NAMED_MAX));
    }
    named.join(" + ")
}
