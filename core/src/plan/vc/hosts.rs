//! What hosts can give to a unit of a virtual cluster: what is free, and by force what others have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cells::{Ground, Piece, Room};
use crate::command::{Standing, TaskPlacement, Victim};
use crate::feasibility::Asker;
use crate::ids::{HostId, JobId, TaskIndex, UnitIndex};
use crate::plan::capacity::{Capacity, Masks, Need, positions, uuids};
use crate::quota::Amounts;
use crate::rights::{Preemptor, lost_work_ms, may_preempt};
use crate::spec::TaskGroup;
use crate::state::{Host, HostClass, Job, State};
use crate::topology::{CellId, GpuMask, HostCells, Own};

/// At whose cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Force {
    /// Nobody's.
    None,
    /// That of work that counts on no cells.
    Others,
    /// That of lower priorities of the same cluster, too.
    Priority,
    /// Also what lower priorities of the same cluster have claimed.
    Claims,
}

/// The hosts, with what the unit took so far.
#[derive(Clone)]
pub(super) struct Hosts<'r, 'a> {
    state: &'a State,
    job: &'r Job,
    unit: UnitIndex,
    capacity: Capacity<'a>,
    force: Force,
    /// Whose resources count as free for the tasks so far.
    freed: BTreeSet<(JobId, UnitIndex)>,
    /// The only GPUs that count, if not all do.
    only: Option<Arc<Masks>>,
}

impl<'r, 'a> Hosts<'r, 'a> {
    pub(super) fn new(
        state: &'a State,
        capacity: &Capacity<'a>,
        (job, unit): (&'r Job, UnitIndex),
        force: Force,
    ) -> Self {
        Self {
            state,
            job,
            unit,
            capacity: capacity.clone(),
            force,
            freed: BTreeSet::new(),
            only: None,
        }
    }

    /// Only these GPUs.
    pub(super) fn within(&self, gpus: Vec<(HostId, GpuMask)>) -> Self {
        let masks: Masks = gpus.into_iter().collect();
        Self {
            capacity: self.capacity.within(masks.clone()),
            only: Some(Arc::new(masks)),
            ..self.clone()
        }
    }

    pub(super) fn asker(&self) -> Asker<'r> {
        self.capacity.asker(self.job, self.unit)
    }

    pub(super) fn ground(&self) -> &'a Ground {
        self.state.index.allocation.ground()
    }

    pub(super) fn cells(&self, host: HostId) -> Option<&'a HostCells> {
        self.capacity.cells(host)
    }

    /// Whether a group says which GPUs its tasks get, or what those of one share.
    pub(super) fn is_particular(&self, group: usize) -> bool {
        let group = self.job.spec.groups.get(group);
        group.is_none_or(|group| !group.layout.gpus.is_empty() || group.layout.within.is_some())
    }

    /// Free GPUs of a model of a host that lie in some cells.
    pub(super) fn free_in(&self, id: HostId, gpu_model: &HostClass, cells: &[CellId]) -> GpuMask {
        let Some(host) = self.state.host(id) else {
            return GpuMask::default();
        };
        let free = self.capacity.free_on(host, gpu_model);
        let inside = cells
            .iter()
            .flat_map(|cell| self.ground().gpus(cell))
            .filter(|(host, _)| *host == id)
            .fold(GpuMask::default(), |all, (_, gpus)| all.or(gpus));
        free.and(inside).and(self.counted(id))
    }

    fn counted(&self, host: HostId) -> GpuMask {
        match &self.only {
            Some(only) => only.get(&host).copied().unwrap_or_default(),
            None => GpuMask(u128::MAX),
        }
    }

    /// Attempts on a host that may be stopped for the unit (or are being stopped), the cheapest first, and their GPUs.
    fn stoppable(&self, host: &Host) -> Vec<(Victim, GpuMask)> {
        if self.force == Force::None {
            return Vec::new();
        }
        let mut held: BTreeMap<Victim, GpuMask> = BTreeMap::new();
        for (position, gpu) in host.gpus.iter().enumerate() {
            if let Some(holder) = gpu.holder.filter(|_| gpu.usable()) {
                let victim = Victim {
                    job: holder.job,
                    unit: holder.unit,
                    epoch: holder.epoch,
                };
                let mask = held.entry(victim).or_default();
                *mask = mask.or(GpuMask::one(position));
            }
        }
        let mut stoppable: Vec<_> = held
            .into_iter()
            .filter_map(|(victim, gpus)| Some((self.cost(victim, host.id)?, victim, gpus)))
            .collect();
        stoppable.sort_unstable();
        stoppable
            .into_iter()
            .map(|(_, victim, gpus)| (victim, gpus))
            .collect()
    }

    /// What it costs to stop an attempt: nothing if it is being stopped; otherwise on what ground it holds its
    /// resources, and the work that is lost. None if it may not be stopped.
    fn cost(&self, victim: Victim, host: HostId) -> Option<(u8, u64)> {
        let job = self.state.job(victim.job)?;
        let known = job.unit(victim.unit)?;
        let attempt = known.attempt.as_deref()?;
        if attempt.stop.is_some() {
            return Some((0, 0));
        }
        let ground = match attempt.standing {
            Standing::Opportunistic => 1,
            Standing::Share => 2,
            Standing::Cells(_) if self.force >= Force::Priority => 3,
            Standing::Cells(_) => return None,
        };
        // Whatever it gets lies in bound cells; which ones does not matter for the right.
        let standing = Standing::Cells(vec![CellId::Host(host)]);
        let preemptor = Preemptor {
            job: self.job,
            unit: self.unit,
            standing: &standing,
            amounts: &Amounts::default(),
        };
        may_preempt(self.state, preemptor, (job, attempt)).ok()?;
        Some((ground, lost_work_ms(known, attempt, self.state.time)))
    }

    /// The attempts that hold what the tasks get, ascending, without those that are being stopped; and whether there
    /// is neither of them.
    pub(super) fn victims(&self, tasks: &[TaskPlacement]) -> (Vec<Victim>, bool) {
        let mut victims = BTreeSet::new();
        let mut is_free = true;
        for holder in self.holders(tasks) {
            is_free = false;
            let job = self.state.job(holder.job);
            let attempt = job.and_then(|job| job.unit(holder.unit)?.attempt.as_deref());
            if attempt.is_some_and(|attempt| attempt.stop.is_none()) {
                victims.insert(holder);
            }
        }
        (victims.into_iter().collect(), is_free)
    }

    /// Whether the unit may take what another has claimed.
    fn outranks(&self, (id, _): (JobId, UnitIndex)) -> bool {
        self.force == Force::Claims
            && self.state.job(id).is_some_and(|other| {
                other.spec.queue == self.job.spec.queue
                    && other.spec.priority < self.job.spec.priority
            })
    }

    /// Units that the unit outranks and that claim what the tasks get.
    pub(super) fn outranked(&self, tasks: &[TaskPlacement]) -> BTreeSet<(JobId, UnitIndex)> {
        let gpus = tasks.iter().flat_map(|task| {
            let host = self.state.host(task.host);
            let gpus = host.into_iter().flat_map(|host| &host.gpus);
            gpus.filter(|gpu| task.gpus.contains(&gpu.uuid))
        });
        gpus.filter_map(|gpu| gpu.claim)
            .filter(|claimant| self.outranks(*claimant))
            .collect()
    }

    /// Units whose attempts hold what the tasks get.
    pub(super) fn freed(&self, tasks: &[TaskPlacement]) -> BTreeSet<(JobId, UnitIndex)> {
        let holders = self.holders(tasks);
        holders.map(|holder| (holder.job, holder.unit)).collect()
    }

    fn holders(&self, tasks: &[TaskPlacement]) -> impl Iterator<Item = Victim> {
        tasks.iter().flat_map(|task| {
            let host = self.state.host(task.host);
            let gpus = host.into_iter().flat_map(|host| &host.gpus);
            gpus.filter(|gpu| task.gpus.contains(&gpu.uuid))
                .filter_map(|gpu| gpu.holder)
                .map(|holder| Victim {
                    job: holder.job,
                    unit: holder.unit,
                    epoch: holder.epoch,
                })
        })
    }

    /// Takes room for a task without GPUs, where the fewest are free.
    pub(super) fn take_without_gpus(
        &mut self,
        position: usize,
        group: &TaskGroup,
    ) -> Option<HostId> {
        let class = HostClass::from("");
        let need = need(self.asker(), (position, group), &class);
        let (_, host) = self.capacity.best_fit(need)?;
        self.capacity.take(host, need, 1);
        Some(host)
    }

    /// Takes room for a task on what is free.
    fn take_free(&mut self, host: &Host, offered: GpuMask, piece: &Piece) -> Option<GpuMask> {
        let group = self.job.spec.groups.get(piece.group)?;
        let class = Arc::clone(&piece.gpu_model);
        let need = need(self.asker(), (piece.group, group), &class);
        let named = named(host, group);
        let free = self.capacity.free_on(host, &class).and(offered).and(named);
        if free.count() < piece.gpus {
            return None;
        }
        let own = own_of(self.state, group);
        let cells = self.capacity.cells(host.id)?;
        let gpus = own
            .iter()
            .find_map(|own| cells.choose(*own, free, piece.gpus))?;
        if self.capacity.tasks_fitting(host.id, free.count(), need) == 0 {
            return None;
        }
        let first: u32 = self.job.spec.groups[..piece.group]
            .iter()
            .map(|group| group.count)
            .sum();
        let placement = TaskPlacement {
            task: TaskIndex(first),
            host: host.id,
            gpus: uuids(host, gpus),
        };
        self.capacity.commit(self.asker(), &[placement]);
        Some(gpus)
    }
}

impl Room for Hosts<'_, '_> {
    fn open(&self, id: HostId) -> GpuMask {
        let Some(host) = self.state.host(id).filter(|host| host.accepts_work()) else {
            return GpuMask::default();
        };
        let free = self.capacity.free_on(host, "");
        let claimed = |gpus: GpuMask| {
            let own = (self.job.id, self.unit);
            gpus.positions()
                .filter(|position| {
                    let claim = host.gpus[*position].claim;
                    claim.is_some_and(|by| by != own && !self.outranks(by))
                })
                .fold(GpuMask::default(), |all, position| {
                    all.or(GpuMask::one(position))
                })
        };
        self.stoppable(host)
            .into_iter()
            .fold(free, |open, (_, gpus)| open.or(gpus.without(claimed(gpus))))
            .and(self.counted(id))
    }

    fn take(&mut self, id: HostId, offered: GpuMask, piece: &Piece) -> Option<GpuMask> {
        let host = self.state.host(id)?;
        if let Some(gpus) = self.take_free(host, offered, piece) {
            return Some(gpus);
        }
        let mut trial = self.clone();
        for (victim, gpus) in self.stoppable(host) {
            let unit = (victim.job, victim.unit);
            if gpus.and(offered).is_empty() || !trial.freed.insert(unit) {
                continue;
            }
            trial.capacity.free_attempt(victim);
            if let Some(gpus) = trial.take_free(host, offered, piece) {
                *self = trial;
                return Some(gpus);
            }
        }
        None
    }

    fn evicts(&self) -> bool {
        self.force != Force::None
    }

    fn oldest_on(&self, id: HostId) -> Option<JobId> {
        let gpus = &self.state.host(id)?.gpus;
        let holders = gpus.iter().filter_map(|gpu| gpu.holder);
        holders.map(|holder| holder.job).min()
    }
}

fn need<'n>(
    asker: Asker<'n>,
    (position, group): (usize, &'n TaskGroup),
    class: &'n HostClass,
) -> Need<'n> {
    Need {
        asker,
        group,
        position,
        class,
        own: Own::Host,
        named: None,
        few_hosts: None,
    }
}

/// The GPUs of a host that a group names; all if it names none.
fn named(host: &Host, group: &TaskGroup) -> GpuMask {
    match group.layout.gpus.as_slice() {
        [] => GpuMask(u128::MAX),
        gpus => positions(host, gpus),
    }
}

/// What the GPUs of one task share, the best first; the last one is what they must.
fn own_of(state: &State, group: &TaskGroup) -> Vec<Own> {
    let topology = &state.topology;
    let within = group.layout.within.as_ref();
    let level = within.and_then(|within| topology.level(&within.level));
    let own = level.map_or(Own::Host, |level| Own::of(topology, level));
    match within {
        Some(within) if !within.required && own != Own::Host => vec![own, Own::Host],
        _ => vec![own],
    }
}
