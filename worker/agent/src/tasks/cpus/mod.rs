//! Assignment of CPUs to bound tasks: as many as they were given, exclusive while there are enough, near
//! their GPUs.
//!
//! Unbound tasks run on any CPU, including those of bound tasks, in proportion to their weights.

mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::desired::TaskAssignment;
use muster_model::ids::GpuUuid;
use muster_model::spec::CpuBinding;
use muster_supervisor::AssignedCpus;

pub(crate) use layout::CpuLayout;

/// Thousandths of a whole CPU.
const CPU_MILLI: u32 = 1_000;

/// Assigned CPUs of this host.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuLedger {
    layout: Arc<CpuLayout>,
    /// The NUMA nodes of the GPUs, as far as they are known.
    gpu_nodes: Arc<BTreeMap<GpuUuid, u32>>,
    taken: Arc<Mutex<Taken>>,
}

/// Number of bound tasks on each CPU and each node.
#[derive(Debug, Default)]
struct Taken {
    cpus: BTreeMap<u32, usize>,
    nodes: BTreeMap<u32, usize>,
}

/// CPUs that a task holds until this value is dropped.
#[derive(Debug)]
pub(crate) struct CpuGrant {
    place: AssignedCpus,
    taken: Arc<Mutex<Taken>>,
}

impl CpuLedger {
    /// A ledger without assigned CPUs.
    pub(crate) fn new(layout: CpuLayout, gpu_nodes: BTreeMap<GpuUuid, u32>) -> Self {
        Self {
            layout: Arc::new(layout),
            gpu_nodes: Arc::new(gpu_nodes),
            taken: Arc::default(),
        }
    }

    /// Assigns CPUs to a task; none if the task is not bound or the machine does not show its CPUs.
    pub(crate) fn grant(&self, assignment: &TaskAssignment) -> Option<CpuGrant> {
        if self.layout.is_empty() {
            return None;
        }
        let near: BTreeSet<u32> = assignment
            .gpus
            .iter()
            .filter_map(|gpu| self.gpu_nodes.get(gpu).copied())
            .collect();
        let mut taken = lock(&self.taken);
        let place = match assignment.execution.binding {
            CpuBinding::None => return None,
            CpuBinding::Cpus => self.cpus(assignment.cpus_milli / CPU_MILLI, &near, &taken),
            CpuBinding::Numa => self.nodes(&near, &taken),
        };
        taken.count(&place, true);
        drop(taken);
        Some(CpuGrant {
            place,
            taken: Arc::clone(&self.taken),
        })
    }

    /// Restores the CPUs of a task that an earlier agent started.
    pub(crate) fn held(&self, place: AssignedCpus) -> CpuGrant {
        lock(&self.taken).count(&place, true);
        CpuGrant {
            place,
            taken: Arc::clone(&self.taken),
        }
    }

    /// Chooses `count` CPUs. Order of preference: unassigned CPUs, one node if it has enough, near the
    /// GPUs, whole cores.
    fn cpus(&self, count: u32, near: &BTreeSet<u32>, taken: &Taken) -> AssignedCpus {
        let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        let users = |cpu: u32| taken.cpus.get(&cpu).copied().unwrap_or(0);
        let free = |node: u32| {
            self.layout
                .cpus_of(node)
                .filter(|cpu| users(*cpu) == 0)
                .count()
        };
        let mut cpus: Vec<u32> = self.layout.cpus().collect();
        cpus.sort_by_cached_key(|cpu| {
            let node = self.layout.node_of(*cpu);
            let room = free(node);
            let core = self.layout.core_of(*cpu);
            let core_users: usize = self.layout.siblings(core).map(users).sum();
            let is_far = !near.is_empty() && !near.contains(&node);
            // The fullest node with enough room, so that others keep theirs unfragmented.
            (
                users(*cpu),
                is_far,
                room < count,
                room,
                node,
                core_users,
                core,
                *cpu,
            )
        });
        cpus.truncate(count);
        cpus.sort_unstable();
        AssignedCpus {
            cpus,
            nodes: Vec::new(),
        }
    }

    /// All CPUs of the GPUs' nodes; without any, of the node with the fewest bound tasks.
    fn nodes(&self, near: &BTreeSet<u32>, taken: &Taken) -> AssignedCpus {
        let tasks = |node: &u32| (taken.nodes.get(node).copied().unwrap_or(0), *node);
        let nodes: Vec<u32> = if near.is_empty() {
            self.layout.nodes().min_by_key(tasks).into_iter().collect()
        } else {
            near.iter().copied().collect()
        };
        AssignedCpus {
            cpus: nodes
                .iter()
                .flat_map(|node| self.layout.cpus_of(*node))
                .collect(),
            nodes,
        }
    }
}

impl CpuGrant {
    /// The assigned CPUs.
    pub(crate) const fn place(&self) -> &AssignedCpus {
        &self.place
    }
}

impl Drop for CpuGrant {
    fn drop(&mut self) {
        lock(&self.taken).count(&self.place, false);
    }
}

impl Taken {
    /// Adds or removes a task. Binding to a whole node does not make its single CPUs unavailable.
    fn count(&mut self, place: &AssignedCpus, one_more: bool) {
        let (counts, numbers) = match place.nodes.as_slice() {
            [] => (&mut self.cpus, &place.cpus),
            _ => (&mut self.nodes, &place.nodes),
        };
        for number in numbers {
            let users = counts.entry(*number).or_default();
            *users = if one_more {
                *users + 1
            } else {
                users.saturating_sub(1)
            };
        }
        counts.retain(|_, users| *users > 0);
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_model::spec::Execution;

    use super::*;
    use crate::testing::assignment;

    /// Two nodes of four CPUs each, two to a core; the GPU is near the second node.
    fn ledger() -> CpuLedger {
        let first = [(0, 0, 0), (1, 0, 1), (4, 0, 0), (5, 0, 1)];
        let second = [(2, 1, 2), (3, 1, 3), (6, 1, 2), (7, 1, 3)];
        let layout = CpuLayout::of(first.into_iter().chain(second));
        CpuLedger::new(layout, [(GpuUuid(7), 1)].into())
    }

    fn task(binding: CpuBinding, cpus: u32, gpus: &[GpuUuid]) -> TaskAssignment {
        TaskAssignment {
            cpus_milli: cpus * CPU_MILLI,
            gpus: gpus.to_vec(),
            execution: Execution {
                binding,
                ..Execution::default()
            },
            ..assignment()
        }
    }

    #[test]
    fn bound_tasks_have_cpus_of_their_own_beside_their_gpus_until_they_end() {
        let ledger = ledger();
        assert!(ledger.grant(&task(CpuBinding::None, 2, &[])).is_none());
        let first = ledger
            .grant(&task(CpuBinding::Cpus, 2, &[GpuUuid(7)]))
            .unwrap();
        assert_eq!(first.place().cpus, [2, 6], "one core of the GPU's node");
        let second = ledger.grant(&task(CpuBinding::Cpus, 4, &[])).unwrap();
        assert_eq!(
            second.place().cpus,
            [0, 1, 4, 5],
            "a node with room for all"
        );
        let third = ledger.grant(&task(CpuBinding::Cpus, 2, &[])).unwrap();
        assert_eq!(third.place().cpus, [3, 7]);
        let crowded = ledger
            .grant(&task(CpuBinding::Cpus, 1, &[GpuUuid(7)]))
            .unwrap();
        assert_eq!(
            crowded.place().cpus.len(),
            1,
            "with none left they are shared"
        );
        drop(crowded);
        drop(first);
        let again = ledger.grant(&task(CpuBinding::Cpus, 2, &[])).unwrap();
        assert_eq!(again.place().cpus, [2, 6]);
    }

    #[test]
    fn cpus_of_an_adopted_task_are_not_assigned_to_others() {
        let ledger = ledger();
        let place = AssignedCpus {
            cpus: vec![2, 6],
            nodes: Vec::new(),
        };
        let held = ledger.held(place);
        let other = ledger
            .grant(&task(CpuBinding::Cpus, 2, &[GpuUuid(7)]))
            .unwrap();
        assert_eq!(other.place().cpus, [3, 7]);
        drop(held);
    }

    #[test]
    fn a_task_is_bound_to_the_node_of_its_gpus_or_the_one_with_the_fewest_tasks() {
        let ledger = ledger();
        let near = ledger
            .grant(&task(CpuBinding::Numa, 1, &[GpuUuid(7)]))
            .unwrap();
        assert_eq!(
            (&*near.place().cpus, &*near.place().nodes),
            (&[2, 3, 6, 7][..], &[1][..])
        );
        let first = ledger.grant(&task(CpuBinding::Numa, 1, &[])).unwrap();
        assert_eq!(first.place().nodes, [0], "the other one has a task");
    }
}
