//! What a host can give besides GPUs.

use muster_model::host::Host;
use muster_model::limits;
use muster_model::spec::Resources;

use crate::feasibility::Misfit;
use crate::state::State;

/// CPUs, memory and tasks that a host can still give. Less than nothing where more is claimed than there is yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room {
    /// Thousandths of CPUs.
    cpus_milli: i64,
    /// Memory in MiB.
    memory_mib: i64,
    /// Tasks, each counted as [`TaskGroup::places`](muster_model::spec::TaskGroup::places) says.
    tasks: u32,
}

impl Room {
    /// What nobody holds of a host, whoever claims it.
    pub fn unheld(state: &State, host: &Host) -> Self {
        let tasks = state.index.tasks.get(&host.id).map_or(0, |it| it.places);
        Self {
            cpus_milli: i64::from(host.cpus_milli_free()),
            memory_mib: signed(host.memory_mib_free()),
            tasks: tasks_max().saturating_sub(tasks),
        }
    }

    /// What a host has in all.
    pub fn whole(host: &Host) -> Self {
        Self {
            cpus_milli: i64::from(host.cpus_milli),
            memory_mib: signed(host.memory_mib),
            tasks: tasks_max(),
        }
    }

    /// Without so many CPUs and so much memory, which are claimed.
    pub fn less(self, cpus_milli: u32, memory_mib: u64) -> Self {
        Self {
            cpus_milli: self.cpus_milli - i64::from(cpus_milli),
            memory_mib: self.memory_mib.saturating_sub(signed(memory_mib)),
            tasks: self.tasks,
        }
    }

    /// With so many CPUs and so much memory, which are claimed no longer.
    pub fn more(self, cpus_milli: u32, memory_mib: u64) -> Self {
        Self {
            cpus_milli: self.cpus_milli + i64::from(cpus_milli),
            memory_mib: self.memory_mib.saturating_add(signed(memory_mib)),
            tasks: self.tasks,
        }
    }

    /// Thousandths of CPUs, and MiB of memory.
    pub fn free(&self) -> (u32, u64) {
        (
            u32::try_from(self.cpus_milli.max(0)).unwrap_or(u32::MAX),
            u64::try_from(self.memory_mib.max(0)).unwrap_or(u64::MAX),
        )
    }

    /// Tasks with these needs that fit as far as CPUs, memory and their number are concerned, if each counts as `places`.
    pub fn tasks(&self, need: &Resources, places: u32) -> u32 {
        let by_cpus = fitting(self.cpus_milli, i64::from(need.cpus_milli));
        let by_memory = fitting(self.memory_mib, signed(need.memory_mib));
        let by_places = self.tasks / places.max(1);
        by_places.min(by_cpus).min(by_memory)
    }

    /// What is missing for one task with these needs that counts as `places`.
    pub(crate) fn misfit(&self, need: &Resources, places: u32) -> Option<Misfit> {
        if self.tasks(need, places) > 0 {
            return None;
        }
        Some(if self.tasks < places {
            Misfit::Tasks
        } else if i64::from(need.cpus_milli) > self.cpus_milli.max(0) {
            Misfit::Cpus {
                need_milli: need.cpus_milli,
                free_milli: u32::try_from(self.cpus_milli.max(0)).unwrap_or(u32::MAX),
            }
        } else {
            Misfit::Memory {
                need_mib: need.memory_mib,
                free_mib: u64::try_from(self.memory_mib.max(0)).unwrap_or(u64::MAX),
            }
        })
    }

    /// Gives room for `count` tasks, each of which counts as `places`.
    pub fn give(&mut self, need: &Resources, places: u32, count: u32) {
        let count_signed = i64::from(count);
        self.cpus_milli -= i64::from(need.cpus_milli) * count_signed;
        self.memory_mib -= signed(need.memory_mib).saturating_mul(count_signed);
        self.tasks = self.tasks.saturating_sub(places.saturating_mul(count));
    }

    /// Takes the room of a task back, which counted as `places`.
    pub fn take_back(&mut self, need: &Resources, places: u32) {
        *self = self.more(need.cpus_milli, need.memory_mib);
        self.tasks = tasks_max().min(self.tasks.saturating_add(places));
    }

    /// The same room as far as `tasks` tasks can tell that need at most so much each: more counts for nothing.
    pub fn capped(self, cpus_milli: u64, memory_mib: u64, tasks: u32) -> Self {
        Self {
            cpus_milli: self.cpus_milli.min(signed(cpus_milli)),
            memory_mib: self.memory_mib.min(signed(memory_mib)),
            tasks: self.tasks.min(tasks),
        }
    }
}

fn tasks_max() -> u32 {
    u32::try_from(limits::TASKS_PER_HOST_MAX).unwrap_or(u32::MAX)
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn fitting(free: i64, need: i64) -> u32 {
    if need == 0 {
        return u32::MAX;
    }
    u32::try_from(free.max(0) / need).unwrap_or(u32::MAX)
}
