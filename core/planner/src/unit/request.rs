//! Placement request of a unit: its task groups, with the names of hosts, levels and GPUs resolved.

use std::collections::BTreeSet;

use muster_engine::feasibility::Requester;
use muster_engine::state::{HostClass, State};
use muster_model::ids::{HostId, TaskIndex};
use muster_model::spec::{Packing, TaskGroup, Within};
use muster_model::topology::{GpuMask, Level, TaskScope, Topology};

use crate::capacity::{Capacity, Masks, Need};

/// A cell that tasks share, at host level or above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// Its level; `None` if the topology has no such level.
    pub(super) level: Option<Level>,
    /// Whether the tasks wait until such a cell has room.
    pub(super) required: bool,
}

/// The tasks of one group.
pub(super) struct Part<'a> {
    pub(super) group: &'a TaskGroup,
    /// Number of tasks that each of them counts as on its host.
    pub(super) places: u32,
    /// Position of the group in the job.
    pub(super) position: usize,
    pub(super) first_task: u32,
    /// Requested number of tasks.
    pub(super) count: u32,
    /// Minimum number of tasks.
    pub(super) count_min: u32,
    /// Acceptable GPU models, preferred ones first; one without a name if no GPU is needed.
    pub(super) classes: Vec<HostClass>,
    /// Level that the GPUs of one task must share.
    pub(super) own: TaskScope,
    /// Level that they should preferably share.
    pub(super) own_preferred: TaskScope,
    /// The cell that each subgroup shares.
    pub(super) shared: Option<Shared>,
    /// Tasks of a subgroup.
    pub(super) subgroup: u32,
    /// The only GPUs allowed, if the group names any.
    pub(super) named: Option<Masks>,
    /// The only hosts allowed, if the group names any.
    pub(super) few_hosts: Option<BTreeSet<HostId>>,
}

/// Request of a unit.
pub(super) struct UnitRequest<'a> {
    pub(super) requester: Requester<'a>,
    pub(super) parts: Vec<Part<'a>>,
    /// The cell that all tasks of a gang share.
    pub(super) shared: Option<Shared>,
}

impl<'a> UnitRequest<'a> {
    pub(super) fn of(capacity: &Capacity<'_>, requester: Requester<'a>) -> Self {
        let spec = &requester.job.spec;
        let mut parts = Vec::new();
        let mut first_task = 0;
        for (position, group) in spec.groups.iter().enumerate() {
            let end = first_task + group.count;
            let own = (first_task..end).contains(&requester.unit.get());
            if spec.gang {
                parts.push(Part::of(capacity, requester, group, position, first_task));
            } else if own {
                let task = requester.unit.get();
                parts.push(Part {
                    count: 1,
                    count_min: 1,
                    ..Part::of(capacity, requester, group, position, task)
                });
            }
            first_task = end;
        }
        let within = spec.scheduling.within.as_ref().filter(|_| spec.gang);
        Self {
            requester,
            parts,
            shared: within.map(|within| Shared::of(&capacity.state().topology, within)),
        }
    }

    /// Whether the job spreads over as many hosts as possible.
    pub(super) fn spreads(&self) -> bool {
        self.requester.job.spec.scheduling.packing == Packing::Spread
    }

    /// Number of GPUs that the unit requests.
    pub(super) fn gpus(&self) -> u64 {
        self.parts.iter().map(Part::gpus).sum()
    }

    /// Number of tasks that the unit requests.
    pub(super) fn tasks(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.count)).sum()
    }
}

impl Shared {
    fn of(topology: &Topology, within: &Within) -> Self {
        Self {
            level: topology.level(&within.level),
            required: within.required,
        }
    }
}

impl<'a> Part<'a> {
    fn of(
        capacity: &Capacity<'_>,
        requester: Requester<'a>,
        group: &'a TaskGroup,
        position: usize,
        first_task: u32,
    ) -> Self {
        let state = capacity.state();
        let topology = &state.topology;
        let within = group.layout.within.as_ref();
        let level = within.and_then(|within| topology.level(&within.level));
        let own = level.map_or(TaskScope::Host, |level| TaskScope::of(topology, level));
        let required = within.is_some_and(|within| within.required);
        let inside = own != TaskScope::Host;
        let named = named(state, group);
        Self {
            group,
            places: group.task_weight(),
            position,
            first_task,
            count: group.count,
            count_min: group
                .layout
                .count_min
                .unwrap_or(group.count)
                .min(group.count),
            classes: classes(capacity, group),
            own: if required { own } else { TaskScope::Host },
            own_preferred: own,
            shared: within
                .filter(|_| !inside)
                .map(|within| Shared::of(topology, within)),
            subgroup: group.layout.within_tasks.unwrap_or(group.count).max(1),
            few_hosts: few_hosts(state, requester, named.as_ref()),
            named,
        }
    }

    /// Requirements of one task on GPUs of a class.
    pub(super) fn need<'n>(
        &'n self,
        requester: Requester<'n>,
        class: &'n HostClass,
        own: TaskScope,
    ) -> Need<'n>
    where
        'a: 'n,
    {
        Need {
            requester,
            group: self.group,
            places: self.places,
            position: self.position,
            class,
            own,
            named: self.named.as_ref(),
            few_hosts: self.few_hosts.as_ref(),
        }
    }

    /// Number of GPUs that its tasks request.
    pub(super) fn gpus(&self) -> u64 {
        u64::from(self.count) * u64::from(self.group.resources.gpus)
    }
}

/// Models, on hosts that accept work, that a group may use, in the order in which it names them; the class
/// of all hosts if it needs no GPU.
fn classes(capacity: &Capacity<'_>, group: &TaskGroup) -> Vec<HostClass> {
    if group.resources.gpus == 0 {
        return vec![HostClass::from("")];
    }
    if group.resources.gpu_models.is_empty() {
        return capacity.models().cloned().collect();
    }
    let models = group.resources.gpu_models.iter();
    models
        .map(|model| HostClass::from(model.as_str()))
        .collect()
}

fn named(state: &State, group: &TaskGroup) -> Option<Masks> {
    if group.layout.gpus.is_empty() {
        return None;
    }
    let mut masks = Masks::new();
    for uuid in &group.layout.gpus {
        let host = state.gpu_hosts.get(uuid).and_then(|host| state.host(*host));
        let Some(host) = host else { continue };
        if let Some(position) = host.gpus.iter().position(|gpu| gpu.uuid == *uuid) {
            let mask = masks.entry(host.id).or_default();
            *mask = mask.or(GpuMask::one(position));
        }
    }
    Some(masks)
}

fn few_hosts(
    state: &State,
    requester: Requester<'_>,
    named: Option<&Masks>,
) -> Option<BTreeSet<HostId>> {
    let names = &requester.job.spec.scheduling.hosts;
    if let Some(named) = named {
        return Some(named.keys().copied().collect());
    }
    if names.is_empty() {
        return None;
    }
    let ids = names.iter();
    Some(
        ids.filter_map(|name| state.host_names.get(name.as_str()).copied())
            .collect(),
    )
}

/// Task of a group by its position in the group.
pub(super) const fn task_of(part: &Part<'_>, position: u32) -> TaskIndex {
    TaskIndex(part.first_task + position)
}
