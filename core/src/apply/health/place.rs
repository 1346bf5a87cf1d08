//! Where a component is, as its health must know it.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::Step;
use crate::command::GpuHealth;
use crate::health::book;
use crate::health::component::{Condition, Phase};
use crate::health::guard_rails::{Group, GroupKind, PoolView};
use crate::health::rules::RuleSet;
use crate::health::{Component, Weight};
use crate::ids::{GpuUuid, HostId, JobId, UnitIndex};
use crate::state::{Gpu, Holder, Host, Job, State};

/// The label by which a host says to which pool it belongs; without it, its first GPU's model counts.
pub const POOL_LABEL: &str = "muster.pool";
/// The pool of hosts without GPUs and without a label.
const POOL_OF_CPUS: &str = "cpu";

/// Where a component is.
pub(in crate::apply) struct Place {
    pub(super) host: HostId,
    pub(super) view: PoolView,
    gpus: u32,
    pool: String,
    groups: Vec<(Group, u32)>,
    job: Option<JobId>,
    user: Option<String>,
    is_ours: bool,
}

impl Place {
    /// What speaks for a block is a job's end, and the job is this one.
    pub(in crate::apply) fn belongs_to(&mut self, job: &Job) {
        self.job = Some(job.id);
        self.user = Some(job.spec.user.clone());
    }

    pub(in crate::apply) fn as_the_book_has_it(&self) -> book::Place<'_> {
        book::Place {
            host: self.host,
            gpus: self.gpus,
            pool: &self.pool,
            view: self.view,
            groups: &self.groups,
            job: self.job,
            user: self.user.as_deref(),
            is_ours: self.is_ours,
        }
    }
}

impl Step<'_> {
    pub(in crate::apply) fn place_of(&self, id: HostId, component: &Component) -> Place {
        let host = self.state.host(id).expect("it was found to exist");
        let pool = pool_of(host).to_owned();
        let rack = rack_of(self.state, host);
        let holder = holder_of(host, component);
        let job = holder.and_then(|holder| self.state.job(holder.job));
        let is_ours = job.zip(holder).is_some_and(|(job, holder)| {
            let unit = job.unit(holder.unit);
            unit.is_some_and(|unit| unit.attempt.as_ref().is_some_and(|it| it.stop.is_some()))
        });
        Place {
            host: id,
            gpus: count(host.gpus.len()),
            view: view_of(self.state, (&pool, rack.as_deref()), component),
            groups: groups_of(self.state, rack),
            pool,
            job: job.map(|job| job.id),
            user: job.map(|job| job.spec.user.clone()),
            is_ours,
        }
    }

    /// The host that a component is part of.
    pub(in crate::apply) fn host_of(&self, component: &Component) -> Option<HostId> {
        match component {
            Component::Gpu(uuid) => self.state.gpu_hosts.get(uuid).copied(),
            Component::Host(host) | Component::Nic { host, .. } => {
                self.state.host(*host).map(|host| host.id)
            }
            Component::Rack(_) => None,
        }
    }

    /// Whether nothing runs on a component.
    pub(super) fn is_idle_component(&self, host: HostId, component: &Component) -> bool {
        is_idle_component(self.state, host, component)
    }
}

/// Whether nothing runs on a component.
pub(crate) fn is_idle_component(state: &State, host: HostId, component: &Component) -> bool {
    if let Component::Gpu(uuid) = component {
        let gpu = state.gpu(*uuid);
        return gpu.is_none_or(|(_, gpu)| gpu.holder.is_none());
    }
    let first = (host, JobId(0), UnitIndex(0));
    let last = (host, JobId(u64::MAX), UnitIndex(u32::MAX));
    state.index.on_host.range(first..=last).next().is_none()
}

/// The pool of a host as it is at the moment.
pub(crate) fn repair_view(state: &State, host: &Host) -> PoolView {
    let rack = rack_of(state, host);
    let of_host = Component::Host(host.id);
    view_of(state, (pool_of(host), rack.as_deref()), &of_host)
}

/// The pool that a host belongs to: budgets and breakers are a pool's.
pub fn pool_of(host: &Host) -> &str {
    let model = host.gpus.first().map(|gpu| &*gpu.model);
    let label = host.labels.get(POOL_LABEL).map(String::as_str);
    label.or(model).unwrap_or(POOL_OF_CPUS)
}

fn holder_of(host: &Host, component: &Component) -> Option<Holder> {
    let Component::Gpu(uuid) = component else {
        return None;
    };
    let gpu = host.gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
    gpu.holder
}

/// The innermost cell above a host: what fails together.
fn rack_of(state: &State, host: &Host) -> Option<String> {
    let cells = state.index.tree.cells(host);
    cells.above.last().map(ToString::to_string)
}

fn groups_of(state: &State, rack: Option<String>) -> Vec<(Group, u32)> {
    let all = Group {
        kind: GroupKind::Cluster,
        name: String::new(),
    };
    let mut groups = vec![(all, count(state.hosts.len()))];
    if let Some(rack) = rack {
        let in_rack = state.hosts.values();
        let in_rack = in_rack.filter(|host| rack_of(state, host).as_deref() == Some(&*rack));
        let hosts = count(in_rack.count());
        let kind = GroupKind::Rack;
        groups.push((Group { kind, name: rack }, hosts));
    }
    groups
}

/// How a pool is at the moment, apart from what is asked about: a GPU whose worker calls it unfit does not stand in its own way.
/// What is known of health is looked through once, not for every host: almost all are well.
fn view_of(state: &State, (pool, rack): (&str, Option<&str>), about: &Component) -> PoolView {
    let mut view = PoolView::default();
    let out = OutOfPlacement::of(state);
    for host in state.hosts.values().filter(|host| pool_of(host) == pool) {
        view.hosts += 1;
        view.gpus += count(host.gpus.len());
        view.hosts_in_service += u32::from(host.accepts_work());
        if out.repairing.contains(&host.id) {
            view.repairs += 1;
            let in_rack = rack.is_some() && rack_of(state, host).as_deref() == rack;
            view.repairs_in_rack += u32::from(in_rack);
        }
        out.add(&mut view, host, about);
    }
    view
}

/// Components that rules keep out of placement, by how sure these are.
#[derive(Default)]
struct OutOfPlacement {
    hosts: BTreeMap<HostId, Weight>,
    gpus: BTreeMap<GpuUuid, Weight>,
    /// Hosts in repair.
    repairing: BTreeSet<HostId>,
}

impl OutOfPlacement {
    fn of(state: &State) -> Self {
        let mut out = Self::default();
        let rules = &state.health_rules.set;
        for (component, condition) in state.health.conditions() {
            let weight = weight_of(rules, condition);
            match component {
                Component::Host(host) => {
                    out.hosts.extend(weight.map(|weight| (*host, weight)));
                    if condition.phase == Phase::Repairing {
                        out.repairing.insert(*host);
                    }
                }
                Component::Gpu(gpu) => out.gpus.extend(weight.map(|weight| (*gpu, weight))),
                Component::Nic { .. } | Component::Rack(_) => {}
            }
        }
        out
    }

    /// Adds what is out of placement of one host.
    fn add(&self, view: &mut PoolView, host: &Host, about: &Component) {
        if *about == Component::Host(host.id) {
            return;
        }
        if let Some(weight) = self.hosts.get(&host.id) {
            add(view, *weight, count(host.gpus.len()));
            return;
        }
        let is_other = |gpu: &&Gpu| *about != Component::Gpu(gpu.uuid);
        for gpu in host.gpus.iter().filter(is_other) {
            if let Some(weight) = self.gpus.get(&gpu.uuid) {
                add(view, *weight, 1);
            } else if gpu.health != GpuHealth::Healthy {
                add(view, Weight::Hard, 1);
            }
        }
    }
}

/// How sure a rule is that keeps a component out of placement; none if none does.
fn weight_of(rules: &RuleSet, condition: &Condition) -> Option<Weight> {
    if condition.phase.accepts_work() || condition.phase.is_admins() {
        return None;
    }
    let accusation = condition.history.iter().rev();
    let rule = accusation
        .filter(|change| change.event.is_fault())
        .find_map(|change| rules.rule(&change.rule));
    Some(rule.map_or(Weight::Soft, |rule| rule.weight))
}

const fn add(view: &mut PoolView, weight: Weight, gpus: u32) {
    match weight {
        Weight::Soft => view.gpus_blocked_soft += gpus,
        Weight::Hard => view.gpus_blocked_hard += gpus,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
