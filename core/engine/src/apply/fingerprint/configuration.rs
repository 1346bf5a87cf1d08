//! Fingerprints of configurations and of scheduling requests.

use std::collections::BTreeMap;

use muster_model::quota::{
    Amounts, CellQuota, Guarantee, Limits, QueueConfig, QueueOrder, QueueTree,
};
use muster_model::spec::{Layout, Packing, Scheduling, Within};
use muster_model::topology::Topology;

use crate::apply::fingerprint::Fold;

impl Fold {
    pub(super) fn tree(&mut self, tree: &QueueTree) {
        self.option(tree.history_half_life_ms);
        self.number(tree.queues.len() as u64);
        for (name, queue) in &tree.queues {
            self.text(name);
            self.queue(queue);
        }
        self.moves(tree);
    }

    /// Folds newer fields only where they differ from their former behaviour.
    fn moves(&mut self, tree: &QueueTree) {
        let queues = tree.queues.iter();
        for (name, _) in queues.filter(|(_, queue)| queue.movable) {
            self.text("movable");
            self.text(name);
        }
        let Some(config) = &tree.defragment else {
            return;
        };
        self.text("defragment");
        self.number(u64::from(config.moves_max));
        self.number(u64::from(config.moves_in_flight_max));
        self.number(config.interval_ms);
        self.number(config.after_ms);
        self.number(u64::from(config.cost_percent_max));
        self.number(config.restart_ms);
        self.number(config.young_ms);
    }

    fn queue(&mut self, queue: &QueueConfig) {
        self.number(u64::from(queue.weight));
        self.number(match queue.order {
            QueueOrder::Priority => 0,
            QueueOrder::Fifo => 1,
            QueueOrder::Fair => 2,
        });
        match &queue.guarantee {
            Guarantee::Amounts(amounts) => {
                self.number(0);
                self.amounts(amounts);
            }
            Guarantee::Cells(quotas) => {
                self.number(1);
                self.number(quotas.len() as u64);
                for quota in quotas {
                    self.quota(quota);
                }
            }
        }
        self.limits(&queue.limit);
        self.limits(&queue.user_limit);
        self.number(u64::from(queue.borrow));
        self.number(u64::from(queue.preempt_by_priority));
        self.number(u64::from(queue.backfill));
        self.number(queue.reserve_after_ms);
        self.number(queue.protected_ms);
        self.number(queue.live_jobs_max);
    }

    fn amounts(&mut self, amounts: &Amounts) {
        self.number(amounts.gpus);
        self.counts(&amounts.gpus_by_model);
        self.number(amounts.cpus_milli);
        self.number(amounts.memory_mib);
    }

    fn limits(&mut self, limits: &Limits) {
        self.option(limits.gpus);
        self.counts(&limits.gpus_by_model);
        self.option(limits.cpus_milli);
        self.option(limits.memory_mib);
    }

    fn counts(&mut self, counts: &BTreeMap<String, u64>) {
        self.number(counts.len() as u64);
        for (name, count) in counts {
            self.text(name);
            self.number(*count);
        }
    }

    fn quota(&mut self, quota: &CellQuota) {
        self.text(&quota.level);
        self.text(&quota.gpu_model);
        self.number(u64::from(quota.gpus));
        self.number(u64::from(quota.count));
        self.number(quota.pinned.len() as u64);
        for pinned in &quota.pinned {
            self.text(&pinned.name);
            self.text(&pinned.cell);
        }
    }

    pub(super) fn topology(&mut self, topology: &Topology) {
        self.texts(topology.above.iter());
        self.texts(topology.inside.iter());
        self.number(topology.places.len() as u64);
        for place in &topology.places {
            self.texts(place.cell.iter());
            self.texts(place.hosts.iter());
        }
        self.number(topology.shapes.len() as u64);
        for shape in &topology.shapes {
            self.text(&shape.gpu_model);
            self.number(u64::from(shape.gpus));
            self.texts(shape.hosts.iter());
            self.number(shape.groups.len() as u64);
            for group in &shape.groups {
                self.text(&group.level);
                self.number(group.gpus.len() as u64);
                for gpu in &group.gpus {
                    self.number(u64::from(*gpu));
                }
            }
        }
    }

    pub(super) fn scheduling(&mut self, scheduling: &Scheduling) {
        self.number(u64::from(scheduling.opportunistic));
        self.number(u64::from(scheduling.lazy_preemption));
        self.option(scheduling.run_time_ms_max);
        self.option(scheduling.assembly_ms_max);
        self.within(scheduling.within.as_ref());
        self.number(match scheduling.packing {
            Packing::Pack => 0,
            Packing::Spread => 1,
            Packing::Exclusive => 2,
        });
        self.texts(scheduling.hosts.iter());
        self.texts(scheduling.hosts_excluded.iter());
        self.number(u64::from(scheduling.pinned_cell.is_some()));
        self.text(scheduling.pinned_cell.as_deref().unwrap_or(""));
    }

    pub(super) fn layout(&mut self, layout: &Layout) {
        self.option(layout.count_min.map(u64::from));
        self.within(layout.within.as_ref());
        self.option(layout.within_tasks.map(u64::from));
        self.number(layout.gpus.len() as u64);
        for gpu in &layout.gpus {
            self.0.extend_from_slice(&gpu.0.to_le_bytes());
        }
    }

    fn within(&mut self, within: Option<&Within>) {
        self.number(u64::from(within.is_some()));
        if let Some(within) = within {
            self.text(&within.level);
            self.number(u64::from(within.required));
        }
    }
}
