//! Remaining resources of a host while one unit is placed on it.

use muster_model::command::HostHealth;
use muster_model::host::{Gpu, Host};
use muster_model::ids::{GpuUuid, UnitId};
use muster_model::spec::TaskGroup;
use muster_model::topology::{GpuMask, HostCells, TaskScope};

use crate::feasibility::{Freed, Misfit, Requester, Room, acceptable, tasks_of_group, unequipped};
use crate::state::{Running, State};

/// Remaining resources of a host while one unit is placed on it.
#[derive(Clone, Debug)]
pub struct HostTrial<'a> {
    host: &'a Host,
    state: &'a State,
    requester: Requester<'a>,
    freed: &'a Freed,
    room: Room,
    taken: GpuMask,
    /// Tasks on the host by group, for the groups with a limit.
    tasks_by_group: Vec<(&'a str, u32)>,
}

impl<'a> HostTrial<'a> {
    /// Opens the ledger of a host for a unit of a job; `freed` counts as free although it is in use.
    #[must_use]
    pub fn open(
        state: &'a State,
        host: &'a Host,
        requester: Requester<'a>,
        freed: &'a Freed,
    ) -> Self {
        Self {
            host,
            state,
            requester,
            freed,
            room: room(state, host, requester, freed),
            taken: GpuMask::default(),
            tasks_by_group: Vec::new(),
        }
    }

    /// Takes a task of a group with these GPUs; returns their positions.
    ///
    /// # Errors
    /// The first reason why the host cannot take it; then nothing is taken.
    pub fn take(&mut self, group: &'a TaskGroup, gpus: &[GpuUuid]) -> Result<GpuMask, Misfit> {
        self.check_host(group)?;
        let mask = self.check_gpus(group, gpus)?;
        self.check_cell(group, mask)?;
        self.commit(group, mask);
        Ok(mask)
    }

    /// Takes a task of a group with acceptable free GPUs, of one model if possible, else of several, from the
    /// smallest cell with room. Returns them in the host's order.
    ///
    /// # Errors
    /// The first reason why the host cannot take it; then nothing is taken.
    pub fn choose(&mut self, group: &'a TaskGroup) -> Result<Vec<GpuUuid>, Misfit> {
        self.check_host(group)?;
        let mask = self.choose_gpus(group)?;
        self.commit(group, mask);
        Ok(mask
            .positions()
            .map(|position| self.host.gpus[position].uuid)
            .collect())
    }

    fn check_host(&mut self, group: &'a TaskGroup) -> Result<(), Misfit> {
        if self.host.health != HostHealth::Up {
            return Err(Misfit::HostHealth(self.host.health));
        }
        if self.host.block.is_some() {
            return Err(Misfit::HostBlocked);
        }
        let refused = self
            .requester
            .name_or_probation_misfit(self.host)
            .or_else(|| unequipped(group, self.host))
            .or_else(|| {
                self.requester
                    .exclusivity_misfit(self.state, self.host, self.freed)
            })
            .or_else(|| self.room.misfit(&group.resources, group.task_weight()));
        if let Some(misfit) = refused {
            return Err(misfit);
        }
        match group.tasks_per_host_max {
            Some(limit) if self.tasks_of(group) >= limit => Err(Misfit::TasksPerHost { limit }),
            _ => Ok(()),
        }
    }

    fn check_gpus(&self, group: &TaskGroup, gpus: &[GpuUuid]) -> Result<GpuMask, Misfit> {
        let need = group.resources.gpus;
        let given = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        if given != need {
            return Err(Misfit::GpuCount { need, given });
        }
        let mut mask = GpuMask::default();
        let mut following = self.host.gpus.iter().enumerate();
        for uuid in gpus {
            let (position, gpu) = following
                .find(|(_, gpu)| gpu.uuid == *uuid)
                .ok_or(Misfit::GpuUnknown(*uuid))?;
            if !self.is_free(position, gpu) {
                return Err(Misfit::GpuTaken(*uuid));
            }
            if !acceptable(group, gpu) {
                return Err(Misfit::GpuModel(*uuid));
            }
            if !is_named(group, *uuid) {
                return Err(Misfit::GpuNotNamed(*uuid));
            }
            mask = mask.or(GpuMask::one(position));
        }
        Ok(mask)
    }

    /// Checks that a task's GPUs share a cell inside the host if its group requires one.
    fn check_cell(&self, group: &TaskGroup, mask: GpuMask) -> Result<(), Misfit> {
        let Some(within) = group
            .layout
            .within
            .as_ref()
            .filter(|within| within.required)
        else {
            return Ok(());
        };
        let topology = &self.state.topology;
        let shared = topology.level(&within.level).is_some_and(|level| {
            let own = TaskScope::of(topology, level);
            self.cells().map_or(own == TaskScope::Host, |cells| {
                cells.tasks(own, mask, mask.count()) > 0
            })
        });
        if shared {
            Ok(())
        } else {
            Err(Misfit::NotWithin {
                level: within.level.clone(),
            })
        }
    }

    fn choose_gpus(&self, group: &TaskGroup) -> Result<GpuMask, Misfit> {
        let need = group.resources.gpus;
        if need == 0 {
            return Ok(GpuMask::default());
        }
        let positions = self.host.gpus.iter().enumerate();
        let free = positions
            .filter(|(position, gpu)| {
                self.is_free(*position, gpu) && acceptable(group, gpu) && is_named(group, gpu.uuid)
            })
            .fold(GpuMask::default(), |mask, (position, _)| {
                mask.or(GpuMask::one(position))
            });
        let short = Misfit::Gpus {
            need,
            free: free.count(),
        };
        let Some(cells) = self.cells() else {
            return Err(short);
        };
        let topology = &self.state.topology;
        let own = match &group.layout.within {
            Some(within) if within.required => {
                let level = topology.level(&within.level);
                level
                    .map(|level| TaskScope::of(topology, level))
                    .ok_or_else(|| Misfit::NotWithin {
                        level: within.level.clone(),
                    })?
            }
            _ => TaskScope::Host,
        };
        cells
            .models
            .iter()
            .find_map(|(_, of_model)| cells.choose(own, of_model.and(free), need))
            .or_else(|| cells.choose(own, free, need))
            .ok_or(short)
    }

    fn cells(&self) -> Option<&'a HostCells> {
        self.state
            .index
            .host_cells
            .get(&self.host.id)
            .map(AsRef::as_ref)
    }

    fn is_free(&self, position: usize, gpu: &Gpu) -> bool {
        !self.taken.has(position) && is_free(self.state, gpu, self.requester, self.freed)
    }

    fn commit(&mut self, group: &'a TaskGroup, gpus: GpuMask) {
        self.room.deduct(&group.resources, group.task_weight(), 1);
        self.taken = self.taken.or(gpus);
        if group.tasks_per_host_max.is_some() {
            let tasks = self.tasks_of(group) + 1;
            self.tasks_by_group
                .retain(|(name, _)| *name != group.name.as_str());
            self.tasks_by_group.push((&group.name, tasks));
        }
    }

    /// Returns the tasks of the group on the host: those of the job's other units, and those taken here.
    fn tasks_of(&mut self, group: &'a TaskGroup) -> u32 {
        let known = self
            .tasks_by_group
            .iter()
            .find(|(name, _)| *name == group.name.as_str());
        if let Some((_, tasks)) = known {
            return *tasks;
        }
        let tasks = tasks_of_group(self.state, self.requester.job, self.host.id, group);
        self.tasks_by_group.push((&group.name, tasks));
        tasks
    }
}

/// Whether a group may use this GPU.
fn is_named(group: &TaskGroup, gpu: GpuUuid) -> bool {
    group.layout.gpus.is_empty() || group.layout.gpus.contains(&gpu)
}

/// Whether a unit may have a GPU now.
fn is_free(state: &State, gpu: &Gpu, requester: Requester<'_>, freed: &Freed) -> bool {
    gpu.usable()
        && gpu.holder.as_ref().is_none_or(|holder| freed.holds(holder))
        && gpu.claim.is_none_or(|claimant| {
            freed.claims.contains(&claimant) || requester.may_use(state, claimant)
        })
}

/// Returns the resources of a host besides GPUs that a unit may use.
fn room(state: &State, host: &Host, requester: Requester<'_>, freed: &Freed) -> Room {
    let mut room = if freed.all_attempts {
        Room::whole(host)
    } else {
        Room::unheld(state, host)
    };
    if !freed.all_attempts {
        for unit in &freed.attempts {
            give_back(state, host, *unit, &mut room);
        }
    }
    for claim in &host.claims {
        let claimant = claim.unit_id();
        let is_free = freed.claims.contains(&claimant)
            || requester.may_use(state, claimant)
            || requester.claimed_before(state, host.id, claimant);
        if !is_free {
            room = room.less(claim.cpus_milli, claim.memory_mib);
        }
    }
    room
}

/// Counts what a unit's attempt holds on a host as free.
fn give_back(state: &State, host: &Host, unit: UnitId, room: &mut Room) {
    if !state.index.units_on_host.contains_key(&(host.id, unit)) {
        return;
    }
    let Some(Running { job, attempt, .. }) = Running::of(state, unit) else {
        return;
    };
    for run in attempt.tasks.iter().filter(|run| run.host == host.id) {
        if let Some((group, _)) = job.spec.group_of(run.task) {
            room.take_back(&group.resources, group.task_weight());
        }
    }
}
