//! Whether a host can take a task: the one answer that both the planner and `apply` go by.
//!
//! A [`Ledger`] is opened on a host for one unit and takes task after task; nothing is changed in the
//! state. The planner lets it choose GPUs, `apply` hands it those that were chosen.

use std::fmt;

use crate::command::HostHealth;
use crate::ids::{GpuUuid, HostId, TaskIndex, UnitIndex};
use crate::limits;
use crate::spec::{Resources, TaskGroup};
use crate::state::{Gpu, Host, Job, State};

/// Why a host cannot take a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Its heartbeats are missing.
    HostHealth(HostHealth),
    /// It is out of placement.
    HostBlocked,
    /// It has too few free CPUs.
    Cpus {
        /// Thousandths of CPUs asked for.
        need_milli: u32,
        /// Thousandths of CPUs free.
        free_milli: u32,
    },
    /// It has too little free memory.
    Memory {
        /// MiB asked for.
        need_mib: u64,
        /// MiB free.
        free_mib: u64,
    },
    /// It has too few free GPUs of an acceptable model.
    Gpus {
        /// GPUs asked for.
        need: u32,
        /// GPUs free.
        free: u32,
    },
    /// The number of GPUs given is not the number asked for.
    GpuCount {
        /// GPUs asked for.
        need: u32,
        /// GPUs given.
        given: u32,
    },
    /// The GPU is not one of the host's, or is not in the host's order.
    GpuUnknown(GpuUuid),
    /// The GPU is held, blocked or unfit.
    GpuTaken(GpuUuid),
    /// The GPU's model is not acceptable to the task.
    GpuModel(GpuUuid),
    /// As many tasks as a host may have are on it already.
    Tasks,
    /// As many tasks of the group as may be are on the host already.
    TasksPerHost {
        /// The most that may be (`tasks_per_host_max`).
        limit: u32,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostHealth(health) => write!(formatter, "it is {health:?}"),
            Self::HostBlocked => formatter.write_str("it is blocked"),
            Self::Cpus {
                need_milli,
                free_milli,
            } => write!(
                formatter,
                "{need_milli} thousandths of CPUs asked for, {free_milli} free"
            ),
            Self::Memory { need_mib, free_mib } => {
                write!(
                    formatter,
                    "{need_mib} MiB of memory asked for, {free_mib} free"
                )
            }
            Self::Gpus { need, free } => {
                write!(formatter, "{need} GPUs asked for, {free} acceptable free")
            }
            Self::GpuCount { need, given } => {
                write!(formatter, "{need} GPUs asked for, {given} given")
            }
            Self::GpuUnknown(gpu) => write!(formatter, "{gpu} is not there or out of order"),
            Self::GpuTaken(gpu) => write!(formatter, "{gpu} is held, blocked or unfit"),
            Self::GpuModel(gpu) => write!(formatter, "{gpu} is of a model that is not acceptable"),
            Self::Tasks => write!(
                formatter,
                "it has {} tasks already (TASKS_PER_HOST_MAX)",
                limits::TASKS_PER_HOST_MAX
            ),
            Self::TasksPerHost { limit } => write!(
                formatter,
                "it has {limit} tasks of the group already (tasks_per_host_max)"
            ),
        }
    }
}

/// What a host can still give besides GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Thousandths of CPUs.
    cpus_milli: u32,
    /// Memory in MiB.
    memory_mib: u64,
    /// Tasks.
    tasks: u32,
}

impl Room {
    /// What the state leaves of a host.
    pub(crate) fn of(state: &State, host: &Host) -> Self {
        let tasks_max = u32::try_from(limits::TASKS_PER_HOST_MAX).unwrap_or(u32::MAX);
        let tasks = state.index.tasks.get(&host.id).copied().unwrap_or(0);
        Self {
            cpus_milli: host.cpus_milli_free(),
            memory_mib: host.memory_mib_free(),
            tasks: tasks_max.saturating_sub(tasks),
        }
    }

    /// Tasks with these needs that fit as far as CPUs, memory and their number are concerned.
    pub(crate) fn tasks(&self, need: &Resources) -> u32 {
        let by_cpus = self.cpus_milli.checked_div(need.cpus_milli);
        let by_memory = self
            .memory_mib
            .checked_div(need.memory_mib)
            .map(|tasks| u32::try_from(tasks).unwrap_or(u32::MAX));
        let by_needs = by_cpus
            .unwrap_or(u32::MAX)
            .min(by_memory.unwrap_or(u32::MAX));
        self.tasks.min(by_needs)
    }

    /// What is missing for one task with these needs.
    fn misfit(&self, need: &Resources) -> Option<Misfit> {
        if self.tasks(need) > 0 {
            return None;
        }
        Some(if self.tasks == 0 {
            Misfit::Tasks
        } else if need.cpus_milli > self.cpus_milli {
            Misfit::Cpus {
                need_milli: need.cpus_milli,
                free_milli: self.cpus_milli,
            }
        } else {
            Misfit::Memory {
                need_mib: need.memory_mib,
                free_mib: self.memory_mib,
            }
        })
    }

    /// Gives room for `count` tasks, which must fit.
    pub(crate) fn give(&mut self, need: &Resources, count: u32) {
        self.cpus_milli -= need.cpus_milli * count;
        self.memory_mib -= need.memory_mib * u64::from(count);
        self.tasks -= count;
    }
}

/// What is left of a host while one unit is put on it.
#[derive(Clone, Debug)]
pub struct Ledger<'a> {
    host: &'a Host,
    state: &'a State,
    job: &'a Job,
    room: Room,
    gpus_taken: Vec<GpuUuid>,
    /// Tasks on the host by group, for the groups with a limit.
    tasks_by_group: Vec<(&'a str, u32)>,
}

impl<'a> Ledger<'a> {
    /// Opens the ledger of a host for a unit of a job.
    #[must_use]
    pub fn open(state: &'a State, host: &'a Host, job: &'a Job) -> Self {
        Self {
            host,
            state,
            job,
            room: Room::of(state, host),
            gpus_taken: Vec::new(),
            tasks_by_group: Vec::new(),
        }
    }

    /// Takes a task of a group with these GPUs.
    ///
    /// # Errors
    /// The first reason why the host cannot take it; then nothing is taken.
    pub fn take(&mut self, group: &'a TaskGroup, gpus: &[GpuUuid]) -> Result<(), Misfit> {
        self.check_host(group)?;
        self.check_gpus(group, gpus)?;
        self.commit(group, gpus);
        Ok(())
    }

    /// Takes a task of a group with the first acceptable free GPUs of one model if possible, of several
    /// otherwise; returns them in the host's order.
    ///
    /// # Errors
    /// The first reason why the host cannot take it; then nothing is taken.
    pub fn choose(&mut self, group: &'a TaskGroup) -> Result<Vec<GpuUuid>, Misfit> {
        self.check_host(group)?;
        let gpus = self.choose_gpus(group)?;
        self.commit(group, &gpus);
        Ok(gpus)
    }

    fn check_host(&mut self, group: &'a TaskGroup) -> Result<(), Misfit> {
        if self.host.health != HostHealth::Up {
            return Err(Misfit::HostHealth(self.host.health));
        }
        if self.host.block.is_some() {
            return Err(Misfit::HostBlocked);
        }
        if let Some(misfit) = self.room.misfit(&group.resources) {
            return Err(misfit);
        }
        match group.tasks_per_host_max {
            Some(limit) if self.tasks_of(group) >= limit => Err(Misfit::TasksPerHost { limit }),
            _ => Ok(()),
        }
    }

    fn check_gpus(&self, group: &TaskGroup, gpus: &[GpuUuid]) -> Result<(), Misfit> {
        let need = group.resources.gpus;
        let given = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        if given != need {
            return Err(Misfit::GpuCount { need, given });
        }
        let mut following = self.host.gpus.iter();
        for uuid in gpus {
            let gpu = following
                .find(|gpu| gpu.uuid == *uuid)
                .ok_or(Misfit::GpuUnknown(*uuid))?;
            if !self.is_free(gpu) {
                return Err(Misfit::GpuTaken(*uuid));
            }
            if !acceptable(group, gpu) {
                return Err(Misfit::GpuModel(*uuid));
            }
        }
        Ok(())
    }

    fn choose_gpus(&self, group: &TaskGroup) -> Result<Vec<GpuUuid>, Misfit> {
        let need = group.resources.gpus as usize;
        if need == 0 {
            return Ok(Vec::new());
        }
        let free: Vec<&Gpu> = self
            .host
            .gpus
            .iter()
            .filter(|gpu| self.is_free(gpu) && acceptable(group, gpu))
            .collect();
        if free.len() < need {
            return Err(Misfit::Gpus {
                need: group.resources.gpus,
                free: u32::try_from(free.len()).unwrap_or(u32::MAX),
            });
        }
        let of_model = |model: &str| {
            free.iter()
                .filter(|gpu| gpu.model.as_ref() == model)
                .take(need)
                .map(|gpu| gpu.uuid)
                .collect::<Vec<_>>()
        };
        let uniform = free
            .iter()
            .map(|gpu| of_model(&gpu.model))
            .find(|chosen| chosen.len() == need);
        Ok(uniform.unwrap_or_else(|| free.iter().take(need).map(|gpu| gpu.uuid).collect()))
    }

    fn is_free(&self, gpu: &Gpu) -> bool {
        gpu.is_free() && !self.gpus_taken.contains(&gpu.uuid)
    }

    fn commit(&mut self, group: &'a TaskGroup, gpus: &[GpuUuid]) {
        self.room.give(&group.resources, 1);
        self.gpus_taken.extend_from_slice(gpus);
        if group.tasks_per_host_max.is_some() {
            let tasks = self.tasks_of(group) + 1;
            self.tasks_by_group
                .retain(|(name, _)| *name != group.name.as_str());
            self.tasks_by_group.push((&group.name, tasks));
        }
    }

    /// Tasks of the group on the host: those of the job's other units, and those taken here.
    fn tasks_of(&mut self, group: &'a TaskGroup) -> u32 {
        let known = self
            .tasks_by_group
            .iter()
            .find(|(name, _)| *name == group.name.as_str());
        if let Some((_, tasks)) = known {
            return *tasks;
        }
        let tasks = tasks_of_group(self.state, self.job, self.host.id, group);
        self.tasks_by_group.push((&group.name, tasks));
        tasks
    }
}

/// Whether a GPU's model is one that the group accepts.
#[must_use]
pub fn acceptable(group: &TaskGroup, gpu: &Gpu) -> bool {
    group.resources.accepts_model(&gpu.model)
}

/// Tasks of one group of a job that hold resources on a host.
pub(crate) fn tasks_of_group(state: &State, job: &Job, host: HostId, group: &TaskGroup) -> u32 {
    let first = (host, job.id, UnitIndex(0));
    let last = (host, job.id, UnitIndex(u32::MAX));
    let units = state.index.on_host.range(first..=last);
    let count = units
        .filter_map(|((_, _, unit), _)| job.unit(*unit)?.attempt.as_deref())
        .flat_map(|attempt| &attempt.tasks)
        .filter(|run| run.host == host && belongs(job, run.task, group))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn belongs(job: &Job, task: TaskIndex, group: &TaskGroup) -> bool {
    job.spec
        .group_of(task)
        .is_some_and(|(of_task, _)| of_task.name == group.name)
}
