//! Resource and host requirements of one task.

use std::collections::BTreeSet;

use muster_engine::feasibility::Requester;
use muster_engine::state::{HostClass, State};
use muster_model::ids::{HostId, JobId};
use muster_model::spec::TaskGroup;
use muster_model::topology::{GpuMask, TaskScope};

use crate::capacity::Masks;

/// Requirements of one task on its host.
#[derive(Clone, Copy)]
pub(crate) struct Need<'a> {
    /// The unit that owns the task.
    pub(crate) requester: Requester<'a>,
    /// The task's group.
    pub(crate) group: &'a TaskGroup,
    /// Number of tasks that it counts as on its host.
    pub(crate) places: u32,
    /// Position of the group in the job.
    pub(crate) position: usize,
    /// The model of its GPUs; empty if it needs none.
    pub(crate) class: &'a HostClass,
    /// Level that the task's own GPUs must share.
    pub(crate) own: TaskScope,
    /// The only GPUs allowed, if the group names any.
    pub(crate) named: Option<&'a Masks>,
    /// The only hosts allowed, if they are few and known.
    pub(crate) few_hosts: Option<&'a BTreeSet<HostId>>,
}

/// Key of equivalent needs: the resource amounts, the hosts that accept such work, and the job and group
/// where they matter.
pub(super) type NeedKey = (
    HostClass,
    (u32, u32, u64, u32),
    TaskScope,
    AcceptanceKey,
    Option<(JobId, usize)>,
);

/// Properties that decide which hosts accept the work: gang, tolerance of a lost host, and maximum run time
/// where it matters.
type AcceptanceKey = (bool, bool, Option<u64>);

impl Need<'_> {
    /// Whether any free GPUs of the class will do.
    pub(super) fn any_gpus(&self) -> bool {
        self.own == TaskScope::Host && self.named.is_none()
    }

    /// The given GPUs of a host that the group names.
    pub(super) fn named_of(&self, host: HostId, gpus: GpuMask) -> GpuMask {
        match self.named {
            Some(named) => gpus.and(named.get(&host).copied().unwrap_or_default()),
            None => gpus,
        }
    }

    pub(super) fn key(&self, state: &State) -> NeedKey {
        let needs = &self.group.resources;
        let spec = &self.requester.job.spec;
        let scheduling = &spec.scheduling;
        let run_time_ms_max = scheduling.run_time_ms_max;
        let takers = (
            spec.gang,
            spec.may_be_lost(),
            run_time_ms_max.filter(|_| !state.index.planned.is_empty()),
        );
        let particular = self.group.tasks_per_host_max.is_some()
            || self.named.is_some()
            || self.requester.is_exclusive()
            || self.group.execution.container.is_some()
            || !scheduling.hosts.is_empty()
            || !scheduling.hosts_excluded.is_empty();
        (
            HostClass::clone(self.class),
            (needs.gpus, needs.cpus_milli, needs.memory_mib, self.places),
            self.own,
            takers,
            particular.then_some((self.requester.job.id, self.position)),
        )
    }

    pub(super) fn spread_key(&self, host: HostId) -> (JobId, usize, HostId) {
        (self.requester.job.id, self.position, host)
    }
}
