//! What is free, as one planning round sees it: the state's index, less what the round gave out.

use std::collections::BTreeMap;

use imbl::{OrdMap, OrdSet};

use crate::feasibility::{self, Room};
use crate::ids::{GpuUuid, HostId, JobId};
use crate::limits;
use crate::spec::{Resources, TaskGroup};
use crate::state::{Host, HostClass, Job, State};

/// Hosts by their number of free GPUs of one class.
pub(super) type FreeHosts = OrdSet<(u32, HostId)>;

/// Needs whose hopeless hosts a round remembers. Past it the round still plans right, only slower.
const LIKENESSES_MAX: usize = 32;

/// Hosts tried for the rest of a gang before it is split once more: it bounds the search for a tidy
/// packing, not whether the gang is placed.
const TIGHTEST_TRIES_MAX: usize = 32;

/// What a host has left in the round.
#[derive(Clone, Copy, Debug)]
struct Left {
    room: Room,
    /// GPUs given out: one bit per position in the host's list; a host has at most 64
    /// (`GPUS_PER_HOST_MAX`).
    gpus_taken: u64,
}

/// Tasks of a group with `tasks_per_host_max`: those of all its job's units count.
#[derive(Clone, Copy)]
pub(super) struct Spread<'a> {
    pub(super) job: &'a Job,
    pub(super) group: &'a TaskGroup,
    pub(super) limit: u32,
}

/// What one task needs of its host.
#[derive(Clone, Copy)]
pub(super) struct Need<'a> {
    pub(super) class: &'a HostClass,
    pub(super) resources: &'a Resources,
    pub(super) spread: Option<Spread<'a>>,
}

/// Needs that are alike: the resources' numbers, and the job and group if that is spread.
type Likeness = (HostClass, (u32, u32, u64), Option<(JobId, String)>);

impl Need<'_> {
    fn likeness(&self) -> Likeness {
        let needs = self.resources;
        (
            HostClass::clone(self.class),
            (needs.gpus, needs.cpus_milli, needs.memory_mib),
            self.spread.map(|spread| spread.key()),
        )
    }
}

impl Spread<'_> {
    fn key(&self) -> (JobId, String) {
        (self.job.id, self.group.name.clone())
    }
}

/// Free resources in one planning round. A clone is cheap, so a gang is tried on one.
#[derive(Clone)]
pub(super) struct Capacity<'a> {
    state: &'a State,
    /// The index, with the GPUs of this round taken off; the empty class keeps the order it had at first,
    /// which only says which hosts CPU tasks prefer.
    free: OrdMap<HostClass, FreeHosts>,
    left: OrdMap<HostId, Left>,
    /// Tasks of spread groups that the round put on a host.
    spread: OrdMap<(JobId, String, HostId), u32>,
    /// Free hosts without those that lack something else for a need: within a round they stay hopeless,
    /// so none is looked at twice.
    narrowed: BTreeMap<Likeness, FreeHosts>,
}

impl<'a> Capacity<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            free: state.index.free.clone(),
            left: OrdMap::new(),
            spread: OrdMap::new(),
            narrowed: BTreeMap::new(),
        }
    }

    /// The GPU models of hosts that accept work, ascending.
    pub(super) fn models(&self) -> impl Iterator<Item = &HostClass> {
        self.free.keys().filter(|class| !class.is_empty())
    }

    /// Hosts of a class that accept work, by free GPUs.
    pub(super) fn hosts(&self, class: &str) -> FreeHosts {
        self.free.get(class).cloned().unwrap_or_default()
    }

    /// Free GPUs of a class.
    pub(super) fn gpus_free(&self, class: &str) -> u64 {
        self.slots(class, 1)
    }

    /// Groups of `gpus` free GPUs that each lie on one host, whatever CPUs and memory say.
    pub(super) fn slots(&self, class: &str, gpus: u32) -> u64 {
        let Some(hosts) = self.free.get(class) else {
            return 0;
        };
        hosts
            .range((gpus, HostId(0))..)
            .map(|(free, _)| u64::from(free / gpus.max(1)))
            .sum()
    }

    /// The host with the fewest free GPUs that still takes a task, and their number.
    pub(super) fn best_fit(&mut self, need: Need<'_>) -> Option<(u32, HostId)> {
        let mut hopeless = Vec::new();
        let found = {
            // Nearly always nothing is narrowed, and then the likeness need not be spelled out.
            let narrowed = match self.narrowed.is_empty() {
                true => None,
                false => self.narrowed.get(&need.likeness()),
            };
            let hosts = narrowed.or_else(|| self.free.get(need.class))?;
            let mut candidates = hosts.range((need.resources.gpus, HostId(0))..);
            candidates.find(|(free, host)| {
                let fits = self.tasks_fitting(*host, *free, need) > 0;
                if !fits {
                    hopeless.push((*free, *host));
                }
                fits
            })
        };
        let found = found.copied();
        self.narrow(need, &hopeless);
        found
    }

    fn narrow(&mut self, need: Need<'_>, hopeless: &[(u32, HostId)]) {
        if hopeless.is_empty() {
            return;
        }
        let likeness = need.likeness();
        if self.narrowed.len() >= LIKENESSES_MAX && !self.narrowed.contains_key(&likeness) {
            return;
        }
        let all = self.hosts(need.class);
        let hosts = self.narrowed.entry(likeness).or_insert(all);
        for entry in hopeless {
            hosts.remove(entry);
        }
    }

    /// The host with the fewest free GPUs that takes `count` tasks together, if one of the first few does
    /// that is not among those `used`.
    pub(super) fn tightest<T>(
        &self,
        need: Need<'_>,
        count: u32,
        used: &BTreeMap<HostId, T>,
    ) -> Option<HostId> {
        self.free
            .get(need.class)?
            .range((need.resources.gpus.saturating_mul(count), HostId(0))..)
            .take(TIGHTEST_TRIES_MAX)
            .find(|(free, host)| {
                !used.contains_key(host) && self.tasks_fitting(*host, *free, need) >= count
            })
            .map(|(_, host)| *host)
    }

    /// How many such tasks a host takes that has `gpus_free` free GPUs of the right class.
    pub(super) fn tasks_fitting(&self, host: HostId, gpus_free: u32, need: Need<'_>) -> u32 {
        let Some(host) = self.state.host(host) else {
            return 0;
        };
        let by_gpus = gpus_free.checked_div(need.resources.gpus);
        let by_room = self.left_of(host).room.tasks(need.resources);
        let fitting = by_gpus.unwrap_or(u32::MAX).min(by_room);
        match need.spread {
            Some(spread) if fitting > 0 => {
                fitting.min(spread.limit.saturating_sub(self.spread_on(spread, host.id)))
            }
            _ => fitting,
        }
    }

    fn left_of(&self, host: &Host) -> Left {
        self.left.get(&host.id).copied().unwrap_or_else(|| Left {
            room: Room::of(self.state, host),
            gpus_taken: 0,
        })
    }

    /// Tasks of a spread group on a host, those of this round included.
    fn spread_on(&self, spread: Spread<'_>, host: HostId) -> u32 {
        let (job, group) = spread.key();
        let of_round = self.spread.get(&(job, group, host)).copied().unwrap_or(0);
        feasibility::tasks_of_group(self.state, spread.job, host, spread.group) + of_round
    }

    /// Gives out room for `count` tasks on one host, which must have it; returns the GPUs of each,
    /// ascending by position in the host's list.
    pub(super) fn take(&mut self, host: HostId, need: Need<'_>, count: u32) -> Vec<Vec<GpuUuid>> {
        let Some(host) = self.state.host(host) else {
            return Vec::new();
        };
        let mut left = self.left_of(host);
        left.room.give(need.resources, count);
        let gpus = take_gpus(host, need, &mut left.gpus_taken, count);
        self.left.insert(host.id, left);
        if let Some(spread) = need.spread {
            let (job, group) = spread.key();
            *self.spread.entry((job, group, host.id)).or_default() += count;
        }
        if need.resources.gpus > 0 {
            let free = free_positions(host, need.class, left.gpus_taken).count();
            let free = u32::try_from(free).unwrap_or(u32::MAX);
            self.fewer(host.id, need.class, free, need.resources.gpus * count);
        }
        gpus
    }

    /// Moves a host down in the order of its class.
    fn fewer(&mut self, host: HostId, class: &HostClass, free_now: u32, gpus: u32) {
        let before = (free_now + gpus, host);
        let now = (free_now, host);
        if let Some(hosts) = self.free.get_mut(class) {
            hosts.remove(&before);
            hosts.insert(now);
        }
        for ((narrowed_class, ..), hosts) in &mut self.narrowed {
            if narrowed_class == class && hosts.remove(&before).is_some() {
                hosts.insert(now);
            }
        }
    }
}

/// Positions of a host's GPUs of a class that are free and not among those `taken`.
fn free_positions<'h>(
    host: &'h Host,
    class: &'h str,
    taken: u64,
) -> impl Iterator<Item = usize> + 'h {
    host.gpus
        .iter()
        .take(limits::GPUS_PER_HOST_MAX)
        .enumerate()
        .filter(move |(position, gpu)| {
            taken & (1 << position) == 0 && gpu.is_free() && *gpu.model == *class
        })
        .map(|(position, _)| position)
}

fn take_gpus(host: &Host, need: Need<'_>, taken: &mut u64, count: u32) -> Vec<Vec<GpuUuid>> {
    let before = *taken;
    let mut positions = free_positions(host, need.class, before);
    (0..count)
        .map(|_| {
            let chosen = positions.by_ref().take(need.resources.gpus as usize);
            chosen
                .map(|position| {
                    *taken |= 1 << position;
                    host.gpus[position].uuid
                })
                .collect()
        })
        .collect()
}
