//! Location of a component: the facts about it that health decisions need.

use muster_health::guard_rails::{Group, GroupKind, PoolView};
use muster_health::state;
use muster_model::health::Component;
use muster_model::host::{DRIVER_LABEL, Holder, Host};
use muster_model::ids::{HostId, JobId};

use crate::apply::Step;
use crate::state::{Job, Pools, State, pool_of};

/// Location of a component.
pub(in crate::apply) struct Place {
    pub(super) host: HostId,
    pub(super) view: PoolView,
    gpus: u32,
    pool: String,
    groups: Vec<(Group, u32)>,
    job: Option<JobId>,
    user: Option<String>,
    is_ours: bool,
    is_idle: bool,
    is_host_idle: bool,
}

impl Place {
    /// Adds the owner of the job whose end is the evidence.
    pub(in crate::apply) fn belongs_to(&mut self, job: &Job) {
        self.job = Some(job.id);
        self.user = Some(job.spec.user.clone());
    }

    pub(in crate::apply) fn as_health_place(&self) -> state::Circumstances<'_> {
        state::Circumstances {
            host: self.host,
            gpus: self.gpus,
            pool: &self.pool,
            view: self.view,
            groups: &self.groups,
            job: self.job,
            user: self.user.as_deref(),
            is_ours: self.is_ours,
            is_idle: self.is_idle,
            is_host_idle: self.is_host_idle,
        }
    }
}

impl Step<'_> {
    pub(in crate::apply) fn place_of(&self, id: HostId, component: &Component) -> Place {
        let host = self.state.host(id).expect("it was found to exist");
        let holder = holder_of(host, component);
        let job = holder.and_then(|holder| self.state.job(holder.job));
        let is_ours = job.zip(holder).is_some_and(|(job, holder)| {
            let unit = job.unit(holder.unit);
            unit.is_some_and(|unit| unit.attempt.as_ref().is_some_and(|it| it.stop.is_some()))
        });
        Place {
            host: id,
            gpus: count(host.gpus.len()),
            view: Pools::view(self.state, host, component),
            groups: groups_of(self.state, host),
            pool: pool_of(host).to_owned(),
            job: job.map(|job| job.id),
            user: job.map(|job| job.spec.user.clone()),
            is_ours,
            is_idle: self.is_idle_component(id, component),
            is_host_idle: self.is_idle_component(id, &Component::Host(id)),
        }
    }

    /// Returns the host that a component is part of.
    pub(in crate::apply) fn host_of(&self, component: &Component) -> Option<HostId> {
        match component {
            Component::Gpu(uuid) => self.state.gpu_hosts.get(uuid).copied(),
            Component::Host(host) | Component::Nic { host, .. } => {
                self.state.host(*host).map(|host| host.id)
            }
            Component::Rack(_) => None,
        }
    }

    /// Whether no work runs on a component.
    pub(super) fn is_idle_component(&self, host: HostId, component: &Component) -> bool {
        is_idle_component(self.state, host, component)
    }
}

/// Whether no work runs on a component.
pub fn is_idle_component(state: &State, host: HostId, component: &Component) -> bool {
    if let Component::Gpu(uuid) = component {
        let gpu = state.gpu(*uuid);
        return gpu.is_none_or(|(_, gpu)| gpu.holder.is_none());
    }
    state.index.units_on(host).next().is_none()
}

fn holder_of(host: &Host, component: &Component) -> Option<Holder> {
    let Component::Gpu(uuid) = component else {
        return None;
    };
    let gpu = host.gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
    gpu.holder
}

/// Returns the groups of a host with their sizes: the cells above it, the innermost of which is its rack, and
/// its driver release if reported.
pub(super) fn groups_of(state: &State, host: &Host) -> Vec<(Group, u32)> {
    let group = |kind, name: &str| Group {
        kind,
        name: name.to_owned(),
    };
    let mut groups = vec![(group(GroupKind::Cluster, ""), count(state.hosts.len()))];
    let mut cells = state.cells_above(host).iter().rev();
    let rack = cells.next().map(|cell| (GroupKind::Rack, cell));
    let above = cells.map(|cell| (GroupKind::Switch, cell));
    for (kind, cell) in rack.into_iter().chain(above) {
        let hosts = count(state.index.cells.host_count(cell));
        groups.push((group(kind, cell), hosts));
    }
    if let Some(driver) = host.labels.get(DRIVER_LABEL) {
        let hosts = state.index.pools.hosts_with_driver(driver);
        groups.push((group(GroupKind::Driver, driver), hosts));
    }
    groups
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
