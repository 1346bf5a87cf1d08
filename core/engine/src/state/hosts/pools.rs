//! Pools of hosts with their out-of-placement counts: budgets, breakers and repair limits apply per pool.

use std::sync::Arc;

use imbl::OrdMap;
use muster_health::component::Condition;
use muster_health::guard_rails::PoolView;
use muster_health::rules::RuleSet;
use muster_health::state::HealthState;
use muster_model::command::GpuHealth;
use muster_model::health::{Component, Phase, Weight};
use muster_model::host::{DRIVER_LABEL, Gpu, Host};
use muster_model::ids::HostId;

use crate::state::State;

/// Host label that names its pool; without it, the model of its first GPU does.
pub const POOL_LABEL: &str = "muster.pool";
/// The pool of hosts without GPUs and without a label.
const POOL_OF_CPUS: &str = "cpu";

/// Returns the pool of a host.
#[must_use]
pub fn pool_of(host: &Host) -> &str {
    let model = host.gpus.first().map(|gpu| &*gpu.model);
    let label = host.labels.get(POOL_LABEL).map(String::as_str);
    label.or(model).unwrap_or(POOL_OF_CPUS)
}

/// Contribution of every host to its pool, and the sums. Derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    hosts: OrdMap<HostId, Contribution>,
    /// Pools that have hosts; racks are not considered.
    sums: OrdMap<Arc<str>, PoolView>,
    /// Number of hosts by driver release, where known.
    drivers: OrdMap<Arc<str>, u32>,
}

/// Contribution of one host to its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contribution {
    pool: Arc<str>,
    driver: Option<Arc<str>>,
    gpus: u32,
    is_in_service: bool,
    is_in_repair: bool,
    out: OutOfPlacement,
}

/// GPUs out of placement, by confidence of the rule that blocks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OutOfPlacement {
    soft: u32,
    hard: u32,
}

impl Pools {
    /// Counts all hosts.
    pub(crate) fn of(state: &State) -> Self {
        let mut pools = Self::default();
        for host in state.hosts.values() {
            pools.count(host, &state.health, &state.health_rules.set);
        }
        pools
    }

    /// Replaces the contribution of a host with its current one.
    pub(crate) fn count(&mut self, host: &Host, health: &HealthState, rules: &RuleSet) {
        let now = Contribution::of(host, health, rules);
        if self.hosts.get(&host.id) == Some(&now) {
            return;
        }
        let sum = self.sums.entry(Arc::clone(&now.pool)).or_default();
        now.add_to(sum);
        if let Some(driver) = &now.driver {
            *self.drivers.entry(Arc::clone(driver)).or_default() += 1;
        }
        if let Some(before) = self.hosts.insert(host.id, now) {
            self.subtract(&before);
        }
    }

    fn subtract(&mut self, before: &Contribution) {
        if let Some(sum) = self.sums.get_mut(&before.pool) {
            before.subtract_from(sum);
            if sum.hosts == 0 {
                self.sums.remove(&before.pool);
            }
        }
        let Some(driver) = &before.driver else {
            return;
        };
        if let Some(hosts) = self.drivers.get_mut(driver) {
            *hosts -= 1;
            if *hosts == 0 {
                self.drivers.remove(driver);
            }
        }
    }

    /// Returns the pools that have hosts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sums.keys().map(AsRef::as_ref)
    }

    /// Returns the number of hosts with this driver release.
    #[must_use]
    pub fn hosts_with_driver(&self, driver: &str) -> u32 {
        self.drivers.get(driver).copied().unwrap_or_default()
    }

    /// Returns the current counts of a host's pool, without the component in question: a GPU that its worker
    /// reports as unfit does not count against itself.
    #[must_use]
    pub fn view(state: &State, host: &Host, about: &Component) -> PoolView {
        let pools = &state.index.pools;
        let own = pools
            .hosts
            .get(&host.id)
            .expect("every host of the state is counted");
        let sum = pools
            .sums
            .get(&own.pool)
            .expect("a pool with a host has a sum");
        let mut view = *sum;
        own.out.subtract_from(&mut view);
        OutOfPlacement::of(host, &state.health, &state.health_rules.set, Some(about))
            .add_to(&mut view);
        view.repairs_in_rack = pools.repairs_beside(state, host, own);
        view
    }

    /// Returns the repairs in the pool and the rack of a host.
    fn repairs_beside(&self, state: &State, host: &Host, own: &Contribution) -> u32 {
        let hosts = state.hosts_in_rack_of(host);
        let others = hosts.filter_map(|id| self.hosts.get(&id));
        let in_repair = others.filter(|other| other.is_in_repair && other.pool == own.pool);
        size(in_repair.count())
    }
}

impl Contribution {
    fn of(host: &Host, health: &HealthState, rules: &RuleSet) -> Self {
        Self {
            pool: Arc::from(pool_of(host)),
            driver: host
                .labels
                .get(DRIVER_LABEL)
                .map(|driver| Arc::from(driver.as_str())),
            gpus: size(host.gpus.len()),
            is_in_service: host.accepts_work(),
            is_in_repair: health.phase(&Component::Host(host.id)) == Phase::Repairing,
            out: OutOfPlacement::of(host, health, rules, None),
        }
    }

    fn add_to(&self, sum: &mut PoolView) {
        sum.hosts += 1;
        sum.gpus += self.gpus;
        sum.hosts_in_service += u32::from(self.is_in_service);
        sum.repairs += u32::from(self.is_in_repair);
        self.out.add_to(sum);
    }

    fn subtract_from(&self, sum: &mut PoolView) {
        sum.hosts -= 1;
        sum.gpus -= self.gpus;
        sum.hosts_in_service -= u32::from(self.is_in_service);
        sum.repairs -= u32::from(self.is_in_repair);
        self.out.subtract_from(sum);
    }
}

impl OutOfPlacement {
    /// Returns what is out of placement on a host, excluding a component: all of its GPUs if a rule blocks
    /// the host.
    fn of(host: &Host, health: &HealthState, rules: &RuleSet, but: Option<&Component>) -> Self {
        let mut out = Self::default();
        let itself = Component::Host(host.id);
        if but == Some(&itself) {
            return out;
        }
        let weight = |component: &Component| {
            let condition = health.condition(component);
            condition.and_then(|condition| weight_of(rules, condition))
        };
        if let Some(weight) = weight(&itself) {
            out.add(weight, size(host.gpus.len()));
            return out;
        }
        let is_other = |gpu: &&Gpu| but != Some(&Component::Gpu(gpu.uuid));
        for gpu in host.gpus.iter().filter(is_other) {
            if let Some(weight) = weight(&Component::Gpu(gpu.uuid)) {
                out.add(weight, 1);
            } else if gpu.health != GpuHealth::Healthy {
                out.add(Weight::Hard, 1);
            }
        }
        out
    }

    const fn add(&mut self, weight: Weight, gpus: u32) {
        match weight {
            Weight::Soft => self.soft += gpus,
            Weight::Hard => self.hard += gpus,
        }
    }

    const fn add_to(self, sum: &mut PoolView) {
        sum.gpus_blocked_soft += self.soft;
        sum.gpus_blocked_hard += self.hard;
    }

    const fn subtract_from(self, sum: &mut PoolView) {
        sum.gpus_blocked_soft -= self.soft;
        sum.gpus_blocked_hard -= self.hard;
    }
}

/// Returns the confidence of the rule that blocks a component; `None` if no rule does.
fn weight_of(rules: &RuleSet, condition: &Condition) -> Option<Weight> {
    if condition.phase.accepts_work() || condition.phase.is_admins() {
        return None;
    }
    let newest_first = condition.history.iter().rev();
    let rule = newest_first
        .filter(|change| change.event.is_fault())
        .find_map(|change| rules.rule(&change.rule));
    Some(rule.map_or(Weight::Soft, |rule| rule.weight))
}

fn size(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
