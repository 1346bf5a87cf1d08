//! Pools of hosts with what is out of placement of them: budgets, breakers and limits of repairs are a pool's.

use std::sync::Arc;

use imbl::OrdMap;
use muster_health::book::Book;
use muster_health::component::Condition;
use muster_health::guard_rails::PoolView;
use muster_health::rules::RuleSet;
use muster_model::command::GpuHealth;
use muster_model::health::{Component, Phase, Weight};
use muster_model::host::{DRIVER_LABEL, Gpu, Host};
use muster_model::ids::HostId;

use crate::state::State;

/// The label by which a host says to which pool it belongs; without it, its first GPU's model counts.
pub const POOL_LABEL: &str = "muster.pool";
/// The pool of hosts without GPUs and without a label.
const POOL_OF_CPUS: &str = "cpu";

/// The pool that a host belongs to: budgets and breakers are a pool's.
#[must_use]
pub fn pool_of(host: &Host) -> &str {
    let model = host.gpus.first().map(|gpu| &*gpu.model);
    let label = host.labels.get(POOL_LABEL).map(String::as_str);
    label.or(model).unwrap_or(POOL_OF_CPUS)
}

/// What every host contributes to its pool, and the sums. Derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    hosts: OrdMap<HostId, Contribution>,
    /// Pools that have hosts; of racks they know nothing.
    sums: OrdMap<Arc<str>, PoolView>,
    /// Hosts by the release of their driver, where that is known.
    drivers: OrdMap<Arc<str>, u32>,
}

/// What one host contributes to its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contribution {
    pool: Arc<str>,
    driver: Option<Arc<str>>,
    gpus: u32,
    is_in_service: bool,
    is_in_repair: bool,
    out: Out,
}

/// GPUs that are out of placement, by how sure is what keeps them out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Out {
    soft: u32,
    hard: u32,
}

impl Pools {
    /// The contributions of all hosts.
    pub(crate) fn of(state: &State) -> Self {
        let mut pools = Self::default();
        for host in state.hosts.values() {
            pools.count(host, &state.health, &state.health_rules.set);
        }
        pools
    }

    /// Counts a host as it is now.
    pub(crate) fn count(&mut self, host: &Host, book: &Book, rules: &RuleSet) {
        let now = Contribution::of(host, book, rules);
        if self.hosts.get(&host.id) == Some(&now) {
            return;
        }
        let sum = self.sums.entry(Arc::clone(&now.pool)).or_default();
        now.add_to(sum);
        if let Some(driver) = &now.driver {
            *self.drivers.entry(Arc::clone(driver)).or_default() += 1;
        }
        if let Some(before) = self.hosts.insert(host.id, now) {
            self.take_off(&before);
        }
    }

    fn take_off(&mut self, before: &Contribution) {
        if let Some(sum) = self.sums.get_mut(&before.pool) {
            before.take_from(sum);
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

    /// Pools that have hosts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sums.keys().map(AsRef::as_ref)
    }

    /// Hosts that run this release of the driver.
    #[must_use]
    pub fn hosts_with_driver(&self, driver: &str) -> u32 {
        self.drivers.get(driver).copied().unwrap_or_default()
    }

    /// The pool of a host as it is at the moment, apart from what is asked about: a GPU whose worker calls it unfit does not
    /// stand in its own way.
    #[must_use]
    pub fn view(state: &State, host: &Host, about: &Component) -> PoolView {
        let pools = &state.index.pools;
        let own = { pools.hosts.get(&host.id) }.expect("every host of the state is counted");
        let sum = { pools.sums.get(&own.pool) }.expect("a pool with a host has a sum");
        let mut view = *sum;
        own.out.take_from(&mut view);
        Out::of(host, &state.health, &state.health_rules.set, Some(about)).add_to(&mut view);
        view.repairs_in_rack = pools.repairs_beside(state, host, own);
        view
    }

    /// Repairs in the pool and the rack of a host.
    fn repairs_beside(&self, state: &State, host: &Host, own: &Contribution) -> u32 {
        let hosts = state.hosts_in_rack_of(host);
        let others = hosts.filter_map(|id| self.hosts.get(&id));
        let in_repair = others.filter(|other| other.is_in_repair && other.pool == own.pool);
        size(in_repair.count())
    }
}

impl Contribution {
    fn of(host: &Host, book: &Book, rules: &RuleSet) -> Self {
        Self {
            pool: Arc::from(pool_of(host)),
            driver: { host.labels.get(DRIVER_LABEL) }.map(|driver| Arc::from(driver.as_str())),
            gpus: size(host.gpus.len()),
            is_in_service: host.accepts_work(),
            is_in_repair: book.phase(&Component::Host(host.id)) == Phase::Repairing,
            out: Out::of(host, book, rules, None),
        }
    }

    fn add_to(&self, sum: &mut PoolView) {
        sum.hosts += 1;
        sum.gpus += self.gpus;
        sum.hosts_in_service += u32::from(self.is_in_service);
        sum.repairs += u32::from(self.is_in_repair);
        self.out.add_to(sum);
    }

    fn take_from(&self, sum: &mut PoolView) {
        sum.hosts -= 1;
        sum.gpus -= self.gpus;
        sum.hosts_in_service -= u32::from(self.is_in_service);
        sum.repairs -= u32::from(self.is_in_repair);
        self.out.take_from(sum);
    }
}

impl Out {
    /// What is out of placement of a host, but for a component: all of its GPUs if a rule keeps the host out.
    fn of(host: &Host, book: &Book, rules: &RuleSet, but: Option<&Component>) -> Self {
        let mut out = Self::default();
        let itself = Component::Host(host.id);
        if but == Some(&itself) {
            return out;
        }
        let weight = |component: &Component| {
            let condition = book.condition(component);
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

    const fn take_from(self, sum: &mut PoolView) {
        sum.gpus_blocked_soft -= self.soft;
        sum.gpus_blocked_hard -= self.hard;
    }
}

/// How sure a rule is that keeps a component out of placement; none if none does.
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
