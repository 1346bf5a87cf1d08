//! What is free, as one planning round sees it: the state's index, less what the round gave out.

use std::collections::BTreeMap;

use imbl::{OrdMap, OrdSet};

use crate::ids::{GpuUuid, HostId};
use crate::limits;
use crate::spec::Resources;
use crate::state::{Host, HostClass, State};

/// Hosts by their number of free GPUs of one class.
pub(super) type FreeHosts = OrdSet<(u32, HostId)>;

/// Shapes whose hopeless hosts a round remembers. Past it the round still plans right, only slower.
const SHAPES_REMEMBERED_MAX: usize = 32;

/// Hosts tried for the rest of a gang before it is split once more: it bounds the search for a tidy
/// packing, not whether the gang is placed.
const TIGHTEST_TRIES_MAX: usize = 32;

/// What one task takes from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    /// Whole GPUs, all of one class.
    pub(super) gpus: u32,
    /// Thousandths of a CPU.
    pub(super) cpus_milli: u32,
    /// Memory in MiB.
    pub(super) memory_mib: u64,
}

impl From<&Resources> for Shape {
    fn from(resources: &Resources) -> Self {
        Self {
            gpus: resources.gpus,
            cpus_milli: resources.cpus_milli,
            memory_mib: resources.memory_mib,
        }
    }
}

/// What the round gave out of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// One bit per position in the host's list; a host has at most 64 GPUs (`GPUS_PER_HOST_MAX`).
    gpus: u64,
    cpus_milli: u32,
    memory_mib: u64,
    /// Tasks that the host has, those from before the round included.
    tasks: u32,
}

/// Free resources in one planning round. A clone is cheap, so a gang is tried on one.
#[derive(Clone)]
pub(super) struct Capacity<'a> {
    state: &'a State,
    /// The index, with the GPUs of this round taken off; the empty class keeps the order it had at first,
    /// which only says which hosts CPU tasks prefer.
    free: OrdMap<HostClass, FreeHosts>,
    taken: OrdMap<HostId, Taken>,
    /// The same without hosts that lack CPUs or memory for a shape: within a round they stay hopeless, so
    /// none is looked at twice.
    narrowed: BTreeMap<(HostClass, Shape), FreeHosts>,
}

impl<'a> Capacity<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            free: state.index.free.clone(),
            taken: OrdMap::new(),
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

    /// The host with the fewest free GPUs that still takes a task of this shape, and their number.
    pub(super) fn best_fit(&mut self, class: &HostClass, shape: Shape) -> Option<(u32, HostId)> {
        let key = (HostClass::clone(class), shape);
        let hosts = self.narrowed.get(&key).or_else(|| self.free.get(class))?;
        let mut hopeless = Vec::new();
        let found = hosts
            .range((shape.gpus, HostId(0))..)
            .find(|(free, host)| {
                let fits = self.tasks_fitting(*host, *free, shape) > 0;
                if !fits {
                    hopeless.push((*free, *host));
                }
                fits
            })
            .copied();
        self.narrow(key, &hopeless);
        found
    }

    /// The host with the fewest free GPUs that takes `count` tasks of a shape together, if one of the first
    /// few does that is not among those `used`.
    pub(super) fn tightest<T>(
        &self,
        class: &str,
        shape: Shape,
        count: u32,
        used: &BTreeMap<HostId, T>,
    ) -> Option<HostId> {
        self.free
            .get(class)?
            .range((shape.gpus.saturating_mul(count), HostId(0))..)
            .take(TIGHTEST_TRIES_MAX)
            .find(|(free, host)| {
                !used.contains_key(host) && self.tasks_fitting(*host, *free, shape) >= count
            })
            .map(|(_, host)| *host)
    }

    fn narrow(&mut self, key: (HostClass, Shape), hopeless: &[(u32, HostId)]) {
        if hopeless.is_empty() {
            return;
        }
        if self.narrowed.len() >= SHAPES_REMEMBERED_MAX && !self.narrowed.contains_key(&key) {
            return;
        }
        let all = self.hosts(&key.0);
        let hosts = self.narrowed.entry(key).or_insert(all);
        for entry in hopeless {
            hosts.remove(entry);
        }
    }

    /// How many tasks of a shape a host takes that has `gpus_free` free GPUs of the right class.
    pub(super) fn tasks_fitting(&self, host: HostId, gpus_free: u32, shape: Shape) -> u32 {
        let Some(host) = self.state.host(host) else {
            return 0;
        };
        let taken = self.taken.get(&host.id).copied().unwrap_or_default();
        let cpus_free = host.cpus_milli_free().saturating_sub(taken.cpus_milli);
        let memory_free = host.memory_mib_free().saturating_sub(taken.memory_mib);
        let by_gpus = gpus_free.checked_div(shape.gpus).unwrap_or(u32::MAX);
        let by_cpus = cpus_free.checked_div(shape.cpus_milli).unwrap_or(u32::MAX);
        let by_memory = memory_free
            .checked_div(shape.memory_mib)
            .map_or(u32::MAX, |tasks| u32::try_from(tasks).unwrap_or(u32::MAX));
        let fitting = by_gpus.min(by_cpus).min(by_memory);
        if shape.gpus > 0 || fitting == 0 {
            return fitting;
        }
        let tasks_max = u32::try_from(limits::TASKS_PER_HOST_MAX).unwrap_or(u32::MAX);
        fitting.min(tasks_max.saturating_sub(self.tasks_on(host)))
    }

    /// Tasks that a host has, those of this round included.
    fn tasks_on(&self, host: &Host) -> u32 {
        self.taken
            .get(&host.id)
            .map_or_else(|| tasks_before(self.state, host.id), |taken| taken.tasks)
    }

    /// Gives out room for `count` tasks of a shape on one host, which must have it; returns the GPUs of
    /// each, ascending by position in the host's list.
    pub(super) fn take(
        &mut self,
        host: HostId,
        class: &HostClass,
        shape: Shape,
        count: u32,
    ) -> Vec<Vec<GpuUuid>> {
        let Some(host) = self.state.host(host) else {
            return Vec::new();
        };
        let tasks = self.tasks_on(host);
        let mut taken = self.taken.get(&host.id).copied().unwrap_or_default();
        taken.cpus_milli += shape.cpus_milli * count;
        taken.memory_mib += shape.memory_mib * u64::from(count);
        taken.tasks = tasks + count;
        let gpus = take_gpus(host, class, &mut taken, shape.gpus, count);
        self.taken.insert(host.id, taken);
        if shape.gpus > 0 {
            self.fewer(
                host.id,
                class,
                free_of_class(host, class, taken.gpus),
                shape.gpus * count,
            );
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
        for ((narrowed_class, _), hosts) in &mut self.narrowed {
            if narrowed_class == class && hosts.remove(&before).is_some() {
                hosts.insert(now);
            }
        }
    }

    /// Counts a host in although it accepts no work, with all its GPUs that nobody holds: what would be if
    /// somebody let it back in.
    pub(super) fn admit(&mut self, host: &Host) {
        let mut classes: BTreeMap<HostClass, u32> = BTreeMap::new();
        for gpu in host.gpus.iter().filter(|gpu| gpu.is_free()) {
            *classes.entry(HostClass::clone(&gpu.model)).or_default() += 1;
        }
        let all = classes.values().sum();
        classes.insert(HostClass::from(""), all);
        for (class, free) in classes {
            self.free.entry(class).or_default().insert((free, host.id));
        }
    }
}

/// Tasks that a host had before the round.
fn tasks_before(state: &State, host: HostId) -> u32 {
    crate::desired::units_on(state, host)
        .map(|(_, _, attempt)| {
            let here = attempt.tasks.iter().filter(|task| task.host == host);
            u32::try_from(here.count()).unwrap_or(u32::MAX)
        })
        .sum()
}

/// GPUs of a class that are free on a host and not among `taken`.
fn free_of_class(host: &Host, class: &str, taken: u64) -> u32 {
    let free = free_positions(host, class, taken).count();
    u32::try_from(free).unwrap_or(u32::MAX)
}

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

fn take_gpus(
    host: &Host,
    class: &str,
    taken: &mut Taken,
    gpus: u32,
    count: u32,
) -> Vec<Vec<GpuUuid>> {
    let before = taken.gpus;
    let mut positions = free_positions(host, class, before);
    (0..count)
        .map(|_| {
            positions
                .by_ref()
                .take(gpus as usize)
                .map(|position| {
                    taken.gpus |= 1 << position;
                    host.gpus[position].uuid
                })
                .collect()
        })
        .collect()
}
