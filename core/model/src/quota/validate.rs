//! Validation of a queue tree on its own; `apply` checks whether the cluster can honour it.

use std::collections::BTreeMap;

use crate::limits;
use crate::quota::{
    Amounts, CellQuota, Defragment, Guarantee, Limits, QueueConfig, QueueTree, parent_of,
};
use crate::spec::Violation;
use crate::topology::Topology;

/// All rules that a tree violates, each with its position and the arithmetic; empty if it is valid.
#[must_use]
pub fn validate(tree: &QueueTree, topology: &Topology) -> Vec<Violation> {
    let mut found = Findings(Vec::new());
    if tree.queues.len() > limits::QUEUES_MAX {
        found.add(
            "queues",
            format!(
                "{} queues are over the limit of {} (QUEUES_MAX)",
                tree.queues.len(),
                limits::QUEUES_MAX
            ),
        );
        // The checks below compare queues pairwise.
        return found.0;
    }
    if tree.history_half_life_ms == Some(0) {
        found.add(
            "history_half_life_ms",
            "must be at least 1, or absent to count only present usage".to_owned(),
        );
    }
    if tree.history_half_life_ms > Some(limits::PERIOD_MS_MAX) {
        found.add(
            "history_half_life_ms",
            format!(
                "is over the limit of {} (PERIOD_MS_MAX)",
                limits::PERIOD_MS_MAX
            ),
        );
    }
    if let Some(defragment) = &tree.defragment {
        found.defragment(defragment);
    }
    let mut pinned = BTreeMap::new();
    for (name, queue) in &tree.queues {
        found.name(name, tree);
        found.numbers(name, queue);
        found.children(name, queue, tree);
        if let Guarantee::Cells(quotas) = &queue.guarantee {
            found.cells(name, quotas, topology, &mut pinned);
        }
    }
    found.0
}

struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, field: &str, rule: String) {
        self.0.push(Violation {
            field: field.to_owned(),
            rule,
        });
    }

    fn defragment(&mut self, config: &Defragment) {
        for (field, value, limit, limit_name) in [
            (
                "moves_max",
                config.moves_max,
                limits::MOVES_PER_CLAIM_MAX,
                " (MOVES_PER_CLAIM_MAX)",
            ),
            (
                "moves_in_flight_max",
                config.moves_in_flight_max,
                limits::MOVES_IN_FLIGHT_MAX,
                " (MOVES_IN_FLIGHT_MAX)",
            ),
            ("cost_percent_max", config.cost_percent_max, 100, ""),
        ] {
            if value == 0 || value > limit {
                let rule = format!("{value} does not lie within 1 to {limit}{limit_name}");
                self.add(&format!("defragment.{field}"), rule);
            }
        }
        for (field, value) in [
            ("interval_ms", config.interval_ms),
            ("after_ms", config.after_ms),
            ("restart_ms", config.restart_ms),
            ("young_ms", config.young_ms),
        ] {
            let limit = limits::PERIOD_MS_MAX;
            if value > limit {
                let rule = format!("{value} is over the limit of {limit} (PERIOD_MS_MAX)");
                self.add(&format!("defragment.{field}"), rule);
            }
        }
    }

    fn name(&mut self, name: &str, tree: &QueueTree) {
        let at = format!("queues.{name}");
        let usable = name.len() <= limits::NAME_BYTES_MAX
            && !name.chars().any(char::is_control)
            && name.split('/').all(|part| !part.is_empty());
        if !usable {
            self.add(
                &at,
                format!(
                    "is not a valid name: 1 to {} bytes (NAME_BYTES_MAX), parts separated by single `/`, \
                     no control characters",
                    limits::NAME_BYTES_MAX
                ),
            );
        }
        let depth = name.split('/').count();
        if depth > limits::QUEUE_DEPTH_MAX {
            self.add(
                &at,
                format!(
                    "lies {depth} levels deep, over the limit of {} (QUEUE_DEPTH_MAX)",
                    limits::QUEUE_DEPTH_MAX
                ),
            );
        }
        if let Some(parent) = parent_of(name)
            && !tree.queues.contains_key(parent)
        {
            self.add(&at, format!("lies in `{parent}`, which does not exist"));
        }
    }

    fn numbers(&mut self, name: &str, queue: &QueueConfig) {
        let at = |field: &str| format!("queues.{name}.{field}");
        if queue.weight == 0 || queue.weight > limits::QUEUE_WEIGHT_MAX {
            self.add(
                &at("weight"),
                format!(
                    "{} does not lie within 1 to {} (QUEUE_WEIGHT_MAX)",
                    queue.weight,
                    limits::QUEUE_WEIGHT_MAX
                ),
            );
        }
        for (field, value, limit_name, limit) in [
            (
                "live_jobs_max",
                queue.live_jobs_max,
                "LIVE_JOBS_PER_QUEUE_MAX",
                limits::LIVE_JOBS_PER_QUEUE_MAX,
            ),
            (
                "protected_ms",
                queue.protected_ms,
                "PERIOD_MS_MAX",
                limits::PERIOD_MS_MAX,
            ),
            (
                "reserve_after_ms",
                queue.reserve_after_ms,
                "PERIOD_MS_MAX",
                limits::PERIOD_MS_MAX,
            ),
        ] {
            if value > limit {
                self.add(
                    &at(field),
                    format!("{value} is over the limit of {limit} ({limit_name})"),
                );
            }
        }
        if let Guarantee::Amounts(guarantee) = &queue.guarantee {
            self.guarantee_under_limit(&at("guarantee"), guarantee, &queue.limit);
        }
    }

    fn guarantee_under_limit(&mut self, at: &str, guarantee: &Amounts, limit: &Limits) {
        if let Some((resource, guaranteed, limit)) = Amounts::default().over(guarantee, limit) {
            self.add(
                at,
                format!("{guaranteed} {resource} are over the queue's own limit of {limit}"),
            );
        }
        let models = guarantee.gpus_by_model.values();
        let by_model = models.fold(0u64, |sum, gpus| sum.saturating_add(*gpus));
        if by_model > guarantee.gpus {
            self.add(
                at,
                format!(
                    "gpus_by_model add up to {by_model}, and gpus, which includes them, is {}",
                    guarantee.gpus
                ),
            );
        }
    }

    /// A queue's guarantee covers those of its children; virtual clusters have no children.
    fn children(&mut self, name: &str, queue: &QueueConfig, tree: &QueueTree) {
        let children: Vec<_> = tree
            .queues
            .iter()
            .filter(|(child, _)| parent_of(child) == Some(name))
            .collect();
        if children.is_empty() {
            return;
        }
        let Guarantee::Amounts(own) = &queue.guarantee else {
            self.add(
                &format!("queues.{name}.guarantee"),
                format!(
                    "is given in cells, and only a queue without children may be a virtual cluster (`{}` lies in it)",
                    children[0].0
                ),
            );
            return;
        };
        let mut sum = Amounts::default();
        for (_, child) in children {
            if let Guarantee::Amounts(amounts) = &child.guarantee {
                sum.add(amounts);
            }
        }
        let cover = Limits {
            gpus: Some(own.gpus),
            gpus_by_model: own.gpus_by_model.clone(),
            cpus_milli: Some(own.cpus_milli),
            memory_mib: Some(own.memory_mib),
        };
        if let Some((resource, sum, own)) = Amounts::default().over(&sum, &cover) {
            self.add(
                &format!("queues.{name}.guarantee"),
                format!(
                    "its children's guarantees add up to {sum} {resource}, and its own is {own}"
                ),
            );
        }
    }

    fn cells<'a>(
        &mut self,
        name: &str,
        quotas: &'a [CellQuota],
        topology: &Topology,
        pinned: &mut BTreeMap<(&'static str, &'a str), String>,
    ) {
        for (position, quota) in quotas.iter().enumerate() {
            let at = format!("queues.{name}.guarantee.cells[{position}]");
            if topology.level(&quota.level).is_none() {
                let levels: Vec<&str> = topology.levels().collect();
                self.add(
                    &format!("{at}.level"),
                    format!(
                        "`{}` is not a cell level; the levels are {}",
                        quota.level,
                        levels.join(", ")
                    ),
                );
            }
            if quota.gpus == 0 {
                self.add(&format!("{at}.gpus"), "must be at least 1".to_owned());
            }
            if quota.gpu_model.is_empty() {
                self.add(&format!("{at}.gpu_model"), "must not be empty".to_owned());
            }
            for cell in &quota.pinned {
                for key in [("name", cell.name.as_str()), ("cell", cell.cell.as_str())] {
                    if let Some(earlier) = pinned.insert(key, at.clone()) {
                        self.add(
                            &format!("{at}.pinned"),
                            format!(
                                "the {} `{}` is pinned twice: here and in {earlier}",
                                key.0, key.1
                            ),
                        );
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guaranteed(models: &[&str]) -> QueueConfig {
        let gpus_by_model = models.iter().map(|model| ((*model).to_owned(), u64::MAX));
        QueueConfig {
            guarantee: Guarantee::Amounts(Amounts {
                gpus: u64::MAX - 1,
                gpus_by_model: gpus_by_model.collect(),
                cpus_milli: u64::MAX,
                memory_mib: u64::MAX,
            }),
            ..QueueConfig::default()
        }
    }

    #[test]
    fn sums_of_huge_guarantees_saturate() {
        let models = [("a", ["x", "y"]), ("a/b", ["x", "z"]), ("a/c", ["x", "y"])];
        let queues = models.map(|(name, models)| (name.to_owned(), guaranteed(&models)));
        let tree = QueueTree {
            queues: queues.into(),
            ..QueueTree::default()
        };
        let found = validate(&tree, &Topology::default());
        let fields: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        let expected = ["a", "a", "a/b", "a/c"].map(|name| format!("queues.{name}.guarantee"));
        assert_eq!(fields, expected, "{found:?}");
    }

    #[test]
    fn a_tree_of_too_many_queues_is_refused_quickly() {
        let queues = (0..200_000).map(|queue| (format!("q{queue}"), QueueConfig::default()));
        let tree = QueueTree {
            queues: queues.collect(),
            ..QueueTree::default()
        };
        assert_eq!(validate(&tree, &Topology::default()).len(), 1);
    }
}
