//! Free resources of the cluster within one round: the state's index of free resources minus what the round
//! has allocated.
//!
//! A clone is cheap (the maps share their nodes), so every trial runs on a clone. Three kinds of forks show
//! more or less than is free now: [`Capacity::free_attempts`] without some attempts and claims,
//! [`Capacity::for_unit`] with the claimed resources that one unit may use, [`Capacity::within`] with only
//! some GPUs.

mod empty;
mod forks;
mod left;
mod need;
mod take;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_engine::feasibility::{Freed, unequipped};
use muster_model::command::Planned;
use muster_model::ids::{HostId, JobId};

use crate::capacity::left::Remaining;
pub(crate) use crate::capacity::need::Need;
use crate::capacity::need::NeedKey;
pub use crate::capacity::take::positions;
pub(crate) use crate::capacity::take::uuids;
use muster_engine::state::{CellIndex, HostClass, State};
use muster_model::host::Host;
use muster_model::time::TimeMs;
use muster_model::topology::{GpuMask, HostCells};

/// Hosts by their number of free GPUs of one class.
pub(crate) type FreeHosts = OrdSet<(u32, HostId)>;

/// Number of distinct needs for which a round remembers unsuitable hosts. Beyond it planning is still
/// correct, only slower.
const NEEDS_REMEMBERED_MAX: usize = 32;

/// Hosts tried for the rest of a gang before it is split once more: bounds the search for a tidy packing,
/// not whether the gang is placed.
const TIGHTEST_TRIES_MAX: usize = 32;

/// Hosts tried for a task of a job that spreads its tasks: beyond it two tasks may share a host.
const SPREAD_TRIES_MAX: usize = 256;

/// GPU masks by host.
pub(crate) type Masks = BTreeMap<HostId, GpuMask>;

/// Free resources in one planning round. A clone is cheap, so a gang is tried on one.
#[derive(Clone)]
pub(crate) struct Capacity<'a> {
    state: &'a State,
    now: TimeMs,
    /// The index minus the GPUs of this round; the empty class keeps its initial order, which only says
    /// which hosts CPU tasks prefer.
    free: OrdMap<HostClass, FreeHosts>,
    /// Free GPUs by cell above hosts.
    places: CellIndex,
    left: OrdMap<HostId, Remaining>,
    /// Tasks that the round placed on a host, by job and group position, for groups with a limit per host.
    spread: OrdMap<(JobId, usize, HostId), u32>,
    /// Resources that count as free although they are held.
    freed: Arc<Freed>,
    /// Whether unreachable and blocked hosts, and hosts exclusive to others, count as well.
    all_hosts: bool,
    /// The only GPUs that count; `None` for all.
    only: Option<Arc<Masks>>,
    /// Hosts that do not count.
    avoided: Arc<BTreeSet<HostId>>,
    /// Free hosts minus those that lack another resource for a need: they stay unsuitable within a round,
    /// so none is examined twice.
    narrowed: BTreeMap<NeedKey, FreeHosts>,
    /// For each class whose hosts all have a planned block: the block that admits the longest work. `None`
    /// for other classes.
    last_blocks: BTreeMap<HostClass, Option<Planned>>,
}

impl<'a> Capacity<'a> {
    /// Resources neither held nor claimed now.
    pub(crate) fn new(state: &'a State) -> Self {
        Self {
            state,
            now: state.time,
            free: state.index.free.clone(),
            places: state.index.cells.clone(),
            left: OrdMap::new(),
            spread: OrdMap::new(),
            freed: Arc::default(),
            all_hosts: false,
            only: None,
            avoided: Arc::default(),
            narrowed: BTreeMap::new(),
            last_blocks: BTreeMap::new(),
        }
    }

    /// The time at which the round decides.
    pub(crate) const fn now(&self) -> TimeMs {
        self.now
    }

    /// The same capacity at another time, which determines the work that ends before a claim is due.
    pub(crate) fn at(mut self, now: TimeMs) -> Self {
        self.now = now;
        self
    }

    /// The state behind this capacity.
    pub(crate) const fn state(&self) -> &'a State {
        self.state
    }

    /// The GPU models of hosts that accept work, ascending.
    pub(crate) fn models(&self) -> impl Iterator<Item = &HostClass> {
        self.free.keys().filter(|class| !class.is_empty())
    }

    /// Hosts of a class that accept work, by free GPUs.
    pub(crate) fn hosts(&self, class: &str) -> FreeHosts {
        self.free.get(class).cloned().unwrap_or_default()
    }

    /// Number of free GPUs of a class.
    pub(crate) fn gpus_free(&self, class: &str) -> u64 {
        self.slots(class, 1)
    }

    /// Number of groups of `gpus` free GPUs on one host each, ignoring CPUs and memory.
    pub(crate) fn slots(&self, class: &str, gpus: u32) -> u64 {
        let Some(hosts) = self.free.get(class) else {
            return 0;
        };
        hosts
            .range((gpus, HostId(0))..)
            .map(|(free, _)| u64::from(free / gpus.max(1)))
            .sum()
    }

    /// The free GPUs of a host in a class.
    pub(crate) fn free_on(&self, host: &Host, class: &str) -> GpuMask {
        let of_class = self.cells(host.id).map(|cells| cells.of_model(class));
        self.left_of(host).free.and(of_class.unwrap_or_default())
    }

    /// Best host for a job that spreads its tasks, with its free GPUs: one without tasks of the job if
    /// there is one among the emptiest.
    pub(crate) fn emptiest_fit(&self, need: Need<'_>) -> Option<(u32, HostId)> {
        let class = self.hosts(need.class);
        let hosts: Box<dyn Iterator<Item = (u32, HostId)>> = match need.few_hosts {
            Some(hosts) => Box::new(self.sized(hosts.iter().copied(), need).into_iter().rev()),
            None => Box::new(class.iter().rev().copied()),
        };
        let mut fitting = hosts
            .take_while(|(free, _)| *free >= need.group.resources.gpus)
            .filter(|(free, host)| self.tasks_fitting(*host, *free, need) > 0);
        let emptiest = fitting.next()?;
        let without_tasks = std::iter::once(emptiest)
            .chain(fitting.take(SPREAD_TRIES_MAX))
            .find(|(_, host)| !self.has_tasks_of(need, *host));
        Some(without_tasks.unwrap_or(emptiest))
    }

    fn has_tasks_of(&self, need: Need<'_>, host: HostId) -> bool {
        let job = need.requester.job.id;
        let placed_in_round = self.left.get(&host).is_some_and(|left| left.holds(job));
        let index = &self.state.index;
        placed_in_round || index.units_of_job_on(job, host).next().is_some()
    }

    /// The host with the fewest free GPUs that still fits a task, with that number.
    pub(crate) fn best_fit(&mut self, need: Need<'_>) -> Option<(u32, HostId)> {
        if let Some(hosts) = need.few_hosts {
            let fitting = hosts.iter().filter_map(|host| {
                let host = self.state.host(*host)?;
                let free = self.free_on(host, need.class).count();
                (self.tasks_fitting(host.id, free, need) > 0).then_some((free, host.id))
            });
            return fitting.min();
        }
        if self.all_begin_too_late(need) {
            return None;
        }
        // Fast path: usually nothing is narrowed, so the key need not be computed.
        let narrowed = match self.narrowed.is_empty() {
            true => None,
            false => self.narrowed.get(&need.key(self.state)),
        };
        let hosts = narrowed.or_else(|| self.free.get(need.class))?;
        let mut found = None;
        let mut hopeless = Vec::new();
        for (free, host) in hosts.range((need.group.resources.gpus, HostId(0))..) {
            if self.tasks_fitting(*host, *free, need) > 0 {
                found = Some((*free, *host));
                break;
            }
            hopeless.push((*free, *host));
        }
        self.narrow(need, &hopeless);
        found
    }

    /// Whether no host of a need's class lets it start because all have planned blocks too soon: decided
    /// without examining each host.
    fn all_begin_too_late(&mut self, need: Need<'_>) -> bool {
        let Some(hosts) = self.free.get(need.class) else {
            return false;
        };
        if hosts.len() > self.state.index.planned.len() {
            return false;
        }
        let last = match self.last_blocks.get(need.class) {
            Some(last) => *last,
            None => {
                let last = self.last_block(hosts);
                self.last_blocks.insert(need.class.clone(), last);
                last
            }
        };
        let run_time_ms_max = need.requester.job.spec.scheduling.run_time_ms_max;
        last.is_some_and(|last| !last.allows_start(self.now, run_time_ms_max))
    }

    /// The latest planned block of all these hosts, with the shortest notice.
    fn last_block(&self, hosts: &FreeHosts) -> Option<Planned> {
        let mut last: Option<Planned> = None;
        for (_, host) in hosts {
            let block = self.state.host(*host)?.planned.as_ref()?;
            let planned = block.planned.filter(|_| !block.has_expired_at(self.now))?;
            let before = last.unwrap_or(planned);
            last = Some(Planned {
                at: before.at.max(planned.at),
                notice_ms: before.notice_ms.min(planned.notice_ms),
            });
        }
        last
    }

    fn narrow(&mut self, need: Need<'_>, hopeless: &[(u32, HostId)]) {
        if hopeless.is_empty() {
            return;
        }
        let key = need.key(self.state);
        if self.narrowed.len() >= NEEDS_REMEMBERED_MAX && !self.narrowed.contains_key(&key) {
            return;
        }
        let all = self.hosts(need.class);
        let hosts = self.narrowed.entry(key).or_insert(all);
        for entry in hopeless {
            hosts.remove(entry);
        }
    }

    /// Cells above hosts with their free resources.
    pub(crate) const fn places(&self) -> &CellIndex {
        &self.places
    }

    /// The host with the fewest free GPUs that fits `count` tasks of a need.
    pub(crate) fn fitting_host(&self, need: Need<'_>, count: u32) -> Option<HostId> {
        let gpus = need.group.resources.gpus.saturating_mul(count);
        let fits = |(free, host): &(u32, HostId)| self.tasks_fitting(*host, *free, need) >= count;
        if let Some(hosts) = need.few_hosts {
            return self
                .sized(hosts.iter().copied(), need)
                .into_iter()
                .find(fits)
                .map(|(_, host)| host);
        }
        let hosts = self.free.get(need.class)?;
        hosts
            .range((gpus, HostId(0))..)
            .copied()
            .find(fits)
            .map(|(_, host)| host)
    }

    /// Hosts with their free GPUs of a need's class, fewest free GPUs first.
    pub(crate) fn sized(
        &self,
        hosts: impl Iterator<Item = HostId>,
        need: Need<'_>,
    ) -> Vec<(u32, HostId)> {
        let records = hosts.filter_map(|host| self.state.host(host));
        let mut sized: Vec<(u32, HostId)> = records
            .filter(|host| self.accepts(host))
            .map(|host| (self.free_on(host, need.class).count(), host.id))
            .collect();
        sized.sort_unstable();
        sized
    }

    /// The host with the fewest free GPUs that fits `count` tasks together, among the first few that are
    /// not in `used`. `hosts` are in the initial order of their free GPUs.
    pub(crate) fn tightest<T>(
        &self,
        need: Need<'_>,
        count: u32,
        hosts: &FreeHosts,
        used: &BTreeMap<HostId, T>,
    ) -> Option<HostId> {
        hosts
            .range((need.group.resources.gpus.saturating_mul(count), HostId(0))..)
            .take(TIGHTEST_TRIES_MAX)
            .find(|(free, host)| {
                !used.contains_key(host) && self.tasks_fitting(*host, *free, need) >= count
            })
            .map(|(_, host)| *host)
    }

    /// Number of such tasks that fit on a host with `gpus_free` free GPUs of the right class.
    pub(crate) fn tasks_fitting(&self, host: HostId, gpus_free: u32, need: Need<'_>) -> u32 {
        let Some(host) = self.state.host(host) else {
            return 0;
        };
        let by_room = self.room_of(host).tasks(&need.group.resources, need.places);
        let by_gpus = self.by_gpus(host, gpus_free, need);
        let fitting = by_gpus.min(by_room);
        if fitting == 0 || !self.admits(host, need) {
            return 0;
        }
        match need.group.tasks_per_host_max {
            Some(limit) => fitting.min(limit.saturating_sub(self.spread_on(need, host.id))),
            None => fitting,
        }
    }

    /// Number of such tasks for which the host's free GPUs suffice.
    fn by_gpus(&self, host: &Host, gpus_free: u32, need: Need<'_>) -> u32 {
        let gpus = need.group.resources.gpus;
        if need.any_gpus() {
            return gpus_free.checked_div(gpus).unwrap_or(u32::MAX);
        }
        let free = need.named_of(host.id, self.free_on(host, need.class));
        self.cells(host.id)
            .map_or(0, |cells| cells.tasks(need.own, free, gpus))
    }

    /// Whether a job may run on a host, given the host's name and the jobs on it or planned for it.
    fn admits(&self, host: &Host, need: Need<'_>) -> bool {
        self.accepts(host)
            && !self.avoided.contains(&host.id)
            && self
                .only
                .as_ref()
                .is_none_or(|only| only.contains_key(&host.id))
            && need.requester.name_or_probation_misfit(host).is_none()
            && unequipped(need.group, host).is_none()
            && (self.all_hosts
                || need
                    .requester
                    .exclusivity_misfit(self.state, host, &self.freed)
                    .is_none())
            && self
                .left
                .get(&host.id)
                .is_none_or(|left| left.admits(need.requester))
    }

    /// Tasks of a group with a limit on a host, including those of this round.
    fn spread_on(&self, need: Need<'_>, host: HostId) -> u32 {
        let of_round = self.spread.get(&need.spread_key(host)).copied();
        let job = need.requester.job;
        if self.freed.has_unit(need.requester.unit_id()) {
            return of_round.unwrap_or(0);
        }
        muster_engine::feasibility::tasks_of_group(self.state, job, host, need.group)
            + of_round.unwrap_or(0)
    }

    pub(crate) fn cells(&self, host: HostId) -> Option<&'a HostCells> {
        self.state.index.host_cells.get(&host).map(AsRef::as_ref)
    }
}
