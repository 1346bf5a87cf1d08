//! Resources of a host besides GPUs.

use muster_model::host::Host;
use muster_model::limits;
use muster_model::spec::Resources;

use crate::feasibility::Misfit;
use crate::state::State;

/// CPUs, memory and tasks that a host can still take. Negative where more is claimed than exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room {
    /// Thousandths of CPUs.
    cpus_milli: i64,
    /// Memory in MiB.
    memory_mib: i64,
    /// Tasks, each counted by its [`TaskGroup::places`](muster_model::spec::TaskGroup::places).
    tasks: u32,
}

impl Room {
    /// Returns the resources of a host that are not held, including claimed ones.
    pub fn unheld(state: &State, host: &Host) -> Self {
        let tasks = state.index.tasks.get(&host.id).map_or(0, |it| it.places);
        Self {
            cpus_milli: i64::from(host.cpus_milli_free()),
            memory_mib: signed(host.memory_mib_free()),
            tasks: tasks_max().saturating_sub(tasks),
        }
    }

    /// Returns the total resources of a host.
    pub fn whole(host: &Host) -> Self {
        Self {
            cpus_milli: i64::from(host.cpus_milli),
            memory_mib: signed(host.memory_mib),
            tasks: tasks_max(),
        }
    }

    /// Subtracts claimed CPUs and memory.
    pub fn less(self, cpus_milli: u32, memory_mib: u64) -> Self {
        Self {
            cpus_milli: self.cpus_milli - i64::from(cpus_milli),
            memory_mib: self.memory_mib.saturating_sub(signed(memory_mib)),
            tasks: self.tasks,
        }
    }

    /// Adds CPUs and memory that are no longer claimed.
    pub fn more(self, cpus_milli: u32, memory_mib: u64) -> Self {
        Self {
            cpus_milli: self.cpus_milli + i64::from(cpus_milli),
            memory_mib: self.memory_mib.saturating_add(signed(memory_mib)),
            tasks: self.tasks,
        }
    }

    /// Returns thousandths of CPUs, and MiB of memory.
    pub fn free(&self) -> (u32, u64) {
        (
            u32::try_from(self.cpus_milli.max(0)).unwrap_or(u32::MAX),
            u64::try_from(self.memory_mib.max(0)).unwrap_or(u64::MAX),
        )
    }

    /// Returns the number of task slots that are free.
    #[must_use]
    pub const fn free_slots(&self) -> u32 {
        self.tasks
    }

    /// Returns the number of tasks with these needs that fit by CPUs, memory and number, if each counts as
    /// `places`.
    pub fn tasks(&self, need: &Resources, places: u32) -> u32 {
        let by_cpus = fitting(self.cpus_milli, i64::from(need.cpus_milli));
        let by_memory = fitting(self.memory_mib, signed(need.memory_mib));
        let by_places = self.tasks / places.max(1);
        by_places.min(by_cpus).min(by_memory)
    }

    /// Returns what is missing for one task with these needs that counts as `places`.
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

    /// Allocates `count` tasks, each of which counts as `places`.
    pub fn deduct(&mut self, need: &Resources, places: u32, count: u32) {
        let count_signed = i64::from(count);
        self.cpus_milli -= i64::from(need.cpus_milli) * count_signed;
        self.memory_mib -= signed(need.memory_mib).saturating_mul(count_signed);
        self.tasks = self.tasks.saturating_sub(places.saturating_mul(count));
    }

    /// Returns the resources of a task that counted as `places`.
    pub fn take_back(&mut self, need: &Resources, places: u32) {
        *self = self.more(need.cpus_milli, need.memory_mib);
        self.tasks = tasks_max().min(self.tasks.saturating_add(places));
    }

    /// Caps the resources at the need of `tasks` tasks of at most this size, so that equivalent hosts compare
    /// equal.
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
