//! Diagnosis of a unit that does not fit: the placement constraint without which it would fit now.
//!
//! Each constraint is lifted in turn and the unit is placed without it, using the same search. Jobs without
//! constraints cost nothing extra.

use std::sync::Arc;

use muster_engine::feasibility::{Freed, HostTrial, Misfit};
use muster_engine::state::{HostClass, Job};
use muster_model::command::TaskPlacement;
use muster_model::host::Host;
use muster_model::ids::{JobId, TaskIndex, UnitIndex};
use muster_model::spec::{JobSpec, Packing, TaskGroup, Within};
use muster_model::topology::{HostCells, Level, Topology};

use crate::Blocker;
use crate::blocker::{RoomShortage, TopologyShortage, UnfitTarget};
use crate::capacity::Capacity;
use crate::change::Change;
use crate::unit::{self, Lack, Shortage};

/// Hosts examined for the most room on one host: beyond it another host may have more.
const HOSTS_LOOKED_AT_MAX: usize = 64;

/// Maximum number of jobs, hosts and GPUs that a blocker lists.
const LISTED_MAX: usize = 4;

/// A unit that lacks room.
#[derive(Clone, Copy)]
pub(super) struct Diagnosis<'a, 'c> {
    pub(super) capacity: &'a Capacity<'c>,
    pub(super) job: &'a Job,
    pub(super) unit: UnitIndex,
    pub(super) shortage: &'a Shortage,
}

impl Diagnosis<'_, '_> {
    /// The blocker.
    pub(super) fn blocker(self) -> Blocker {
        let lifted = self.conditions();
        let Shortage {
            need_gpus,
            free_gpus,
            fits_tasks,
            need_tasks,
            ..
        } = *self.shortage;
        if self.shortage.lack == Lack::SearchBound {
            return Blocker::SearchBound {
                need_gpus,
                free_gpus,
            };
        }
        let alone = lifted.iter().find_map(|changes| {
            let tasks = self.placement_with(changes)?;
            Some(self.blocker_for(changes, &tasks))
        });
        let together = || {
            let all: Vec<Change> = lifted.iter().flatten().cloned().collect();
            let first = lifted.first().filter(|_| lifted.len() > 1)?;
            let tasks = self.placement_with(&all)?;
            Some(self.blocker_for(first, &tasks))
        };
        let by_hosts = || self.without_engine().or_else(|| self.too_soon_blocked());
        let found = alone.or_else(by_hosts).or_else(together);
        found.unwrap_or(Blocker::Resources {
            need_gpus,
            free_gpus,
            fits_tasks,
            need_tasks,
        })
    }

    /// The job's constraints that may be responsible, each as the changes that lift it. If too few GPUs are
    /// free in total, only GPUs of other models can help.
    fn conditions(self) -> Vec<Vec<Change>> {
        let spec = &self.job.spec;
        let scheduling = &spec.scheduling;
        let mut conditions = Vec::new();
        if !self.shortage.lacks_gpus {
            let levels = self.levels().into_iter().map(|(group, level)| {
                vec![Change::Within {
                    group,
                    level,
                    required: false,
                }]
            });
            conditions.extend(levels);
            let names_gpus = |group: &TaskGroup| !group.layout.gpus.is_empty();
            if !scheduling.hosts.is_empty() || spec.groups.iter().any(names_gpus) {
                conditions.push(vec![Change::AnyPlace]);
            }
            if !scheduling.hosts_excluded.is_empty() {
                conditions.push(vec![Change::Include {
                    hosts: scheduling.hosts_excluded.clone(),
                }]);
            }
            let limited = spec
                .groups
                .iter()
                .filter(|group| group.tasks_per_host_max.is_some());
            let unlimited = limited.map(|group| Change::TasksPerHost {
                group: group.name.clone(),
                tasks: None,
            });
            conditions.push(unlimited.collect());
            if scheduling.packing == Packing::Exclusive {
                conditions.push(vec![Change::ShareHosts]);
            }
            conditions.push(vec![Change::Less {
                cpus_milli: 0,
                memory_mib: 0,
            }]);
        }
        let asks_for_models = |group: &TaskGroup| !group.resources.gpu_models.is_empty();
        if spec.groups.iter().any(asks_for_models) {
            conditions.push(vec![Change::AcceptModels {
                models: self.capacity.models().map(ToString::to_string).collect(),
            }]);
        }
        conditions.retain(|changes| !changes.is_empty());
        conditions
    }

    /// Levels that the job requires, of the gang and of its groups.
    fn levels(self) -> Vec<(Option<String>, String)> {
        let spec = &self.job.spec;
        let required = |within: &Option<Within>| {
            let within = within.as_ref().filter(|within| within.required)?;
            Some(within.level.clone())
        };
        let of_gang = required(&spec.scheduling.within)
            .filter(|_| spec.gang)
            .map(|level| (None, level));
        let groups = spec.groups.iter();
        let of_groups = groups.filter_map(|group| {
            let level = required(&group.layout.within)?;
            Some((Some(group.name.clone()), level))
        });
        of_gang.into_iter().chain(of_groups).collect()
    }

    /// Placement of the unit with some changes.
    fn placement_with(self, changes: &[Change]) -> Option<Vec<TaskPlacement>> {
        let (first, others) = changes.split_first()?;
        let changed = others
            .iter()
            .fold(first.of(self.job), |job, change| change.of(&job));
        let placed = unit::place(&mut self.capacity.clone(), &changed, self.unit);
        placed.ok().map(|placed| placed.tasks)
    }

    /// The blocker for a constraint, given the placement of the unit without it.
    fn blocker_for(self, changes: &[Change], tasks: &[TaskPlacement]) -> Blocker {
        let Shortage {
            need_gpus,
            free_gpus,
            fits_tasks,
            need_tasks,
            ..
        } = *self.shortage;
        match changes.first() {
            Some(Change::Within { group, level, .. }) => {
                Blocker::Topology(Box::new(self.topology(group.clone(), level)))
            }
            Some(Change::AnyPlace) => Blocker::Named {
                places: self.named_places(),
            },
            Some(Change::Include { hosts }) => Blocker::Excluded {
                hosts: self.hosts_among(hosts, tasks),
            },
            Some(Change::TasksPerHost { group, .. }) => Blocker::TasksPerHost {
                group: group.clone(),
                limit: self.limit_of(group),
                fits_tasks,
                need_tasks,
            },
            Some(Change::ShareHosts) => Blocker::ExclusiveHosts {
                jobs: self.others_on(tasks),
                fits_tasks,
                need_tasks,
            },
            Some(Change::AcceptModels { .. }) => Blocker::Model {
                asked: self.models_asked(),
                others: self.models_among(tasks),
                need_gpus,
                free_gpus,
            },
            _ => Blocker::Room(Box::new(self.room())),
        }
    }

    fn topology(self, group: Option<String>, level: &str) -> TopologyShortage {
        let topology = &self.capacity.state().topology;
        let sharing = group.as_ref().map(|name| {
            let mut groups = self.job.spec.groups.iter();
            let group = groups.find(|group| group.name == *name);
            group.map_or(0, |group| gpus_sharing(self.job, group, topology))
        });
        let best = topology
            .level(level)
            .and_then(|level| self.fullest_cell(level));
        TopologyShortage {
            level: level.to_owned(),
            group,
            need_gpus: sharing.unwrap_or(self.shortage.need_gpus),
            best_free_gpus: best.as_ref().map_or(0, |(free, _)| *free),
            best: best.map(|(_, name)| name),
            free_gpus: self.shortage.free_gpus,
            fits_tasks: self.shortage.fits_tasks,
            need_tasks: self.shortage.need_tasks,
        }
    }

    /// Name and free GPUs of the cell of a level with the most free GPUs of an acceptable model.
    fn fullest_cell(self, level: Level) -> Option<(u64, String)> {
        let topology = &self.capacity.state().topology;
        let classes = self.classes();
        if level < topology.host_level() {
            let cells = classes
                .iter()
                .filter_map(|class| self.capacity.places().fullest(level, class));
            let (free, path) = cells.max()?;
            return Some((free, path.to_string()));
        }
        let hosts = classes.iter().flat_map(|class| {
            let hosts = self.capacity.hosts(class);
            let fullest: Vec<_> = hosts.iter().rev().copied().collect();
            fullest
                .into_iter()
                .take(HOSTS_LOOKED_AT_MAX)
                .map(move |(free, host)| (free, host, class))
        });
        let cells = hosts.filter_map(|(free, host, class)| {
            let record = self.capacity.state().host(host)?;
            if level == topology.host_level() {
                return Some((u64::from(free), record.name.to_string()));
            }
            let cells = self.capacity.cells(host)?;
            let (free, at) = self.fullest_inside(record, class, cells, level)?;
            Some((u64::from(free), format!("{}:{at}", record.name)))
        });
        cells.max_by_key(|(free, _)| *free)
    }

    /// Most GPUs free in one cell inside a host, and the position of the cell's first GPU.
    fn fullest_inside(
        self,
        host: &Host,
        class: &HostClass,
        cells: &HostCells,
        level: Level,
    ) -> Option<(u32, usize)> {
        let free = self.capacity.free_on(host, class);
        let inside = cells.on_level(level).filter_map(|cell| {
            let first = cell.gpus.positions().next()?;
            Some((cell.gpus.and(free).count(), first))
        });
        inside.max_by_key(|(free, _)| *free)
    }

    /// Acceptable GPU models of hosts that accept work.
    fn classes(self) -> Vec<HostClass> {
        let mut groups = self.job.spec.groups.iter();
        let asking: Vec<&TaskGroup> = groups
            .by_ref()
            .filter(|group| group.resources.gpus > 0)
            .collect();
        let models = self.capacity.models();
        models
            .filter(|model| {
                let mut asking = asking.iter();
                asking.any(|group| group.resources.accepts_model(model))
            })
            .cloned()
            .collect()
    }

    /// Hosts with room but without a container engine, if the missing engine is what blocks the unit.
    fn without_engine(self) -> Option<Blocker> {
        let mut spec = JobSpec::clone(&self.job.spec);
        let containers = spec.groups.iter_mut().map(|group| &mut group.execution);
        let taken = containers.filter_map(|execution| execution.container.take());
        if taken.count() == 0 {
            return None;
        }
        let as_processes = Job {
            spec: Arc::new(spec),
            ..self.job.clone()
        };
        self.rejecting_hosts(&as_processes, |host| {
            (!host.has_container_engine()).then_some(Misfit::NoContainerEngine)
        })
    }

    /// Hosts with room but with a planned block too soon, if these blocks are what blocks the unit.
    fn too_soon_blocked(self) -> Option<Blocker> {
        if self.capacity.state().index.planned.is_empty() {
            return None;
        }
        let mut spec = JobSpec::clone(&self.job.spec);
        // A job with no run time ends before any planned block.
        spec.scheduling.run_time_ms_max = Some(0);
        let at_once = Job {
            spec: Arc::new(spec),
            ..self.job.clone()
        };
        let requester = self.capacity.requester(self.job, self.unit);
        self.rejecting_hosts(&at_once, |host| requester.maintenance_misfit(host))
    }

    /// The hosts that reject the unit, among those on which it would be placed with the changed job.
    fn rejecting_hosts(
        self,
        as_if: &Job,
        why: impl Fn(&Host) -> Option<Misfit>,
    ) -> Option<Blocker> {
        let placed = unit::place(&mut self.capacity.clone(), as_if, self.unit).ok()?;
        let mut hosts: Vec<&Host> = placed
            .tasks
            .iter()
            .filter_map(|task| self.capacity.state().host(task.host))
            .collect();
        hosts.sort_by_key(|host| host.id);
        hosts.dedup_by_key(|host| host.id);
        let refusing = hosts.into_iter().filter_map(|host| {
            let why = why(host)?.to_string();
            let name = host.name.to_string();
            Some(UnfitTarget { name, reason: why })
        });
        let places: Vec<UnfitTarget> = refusing.take(LISTED_MAX).collect();
        (!places.is_empty()).then_some(Blocker::Named { places })
    }

    /// Hosts and GPUs that the job names, with the reason why each does not fit.
    fn named_places(self) -> Vec<UnfitTarget> {
        let state = self.capacity.state();
        let spec = &self.job.spec;
        let named_gpus = spec.groups.iter().flat_map(|group| &group.layout.gpus);
        let gpus = named_gpus.take(LISTED_MAX).filter_map(|uuid| {
            let known = state.gpu(*uuid);
            let why = match known {
                None => "there is no such GPU".to_owned(),
                Some((host, gpu)) => match &gpu.holder {
                    Some(holder) => format!("job {} holds it", holder.job),
                    None if !gpu.usable() => "it is blocked or faulty".to_owned(),
                    None if !host.accepts_work() => "its host is blocked or unreachable".to_owned(),
                    None => match gpu.claim {
                        Some(claimant) => format!("it is reserved for job {}", claimant.job),
                        None => return None,
                    },
                },
            };
            let name = known.map_or_else(
                || uuid.to_string(),
                |(host, gpu)| format!("{}:{}", host.name, gpu.index),
            );
            Some(UnfitTarget { name, reason: why })
        });
        let hosts = spec.scheduling.hosts.iter().filter_map(|name| {
            let why = match state.host_by_name(name) {
                None => "there is no such host".to_owned(),
                Some(host) => self.misfit(host)?,
            };
            let name = name.clone();
            Some(UnfitTarget { name, reason: why })
        });
        gpus.chain(hosts).take(LISTED_MAX).collect()
    }

    /// Reason why a host fits no task of the unit; `None` if it fits one.
    fn misfit(self, host: &Host) -> Option<String> {
        let group = first_group(self.job, self.unit)?;
        let requester = self.capacity.requester(self.job, self.unit);
        let freed = Freed::default();
        let mut ledger = HostTrial::open(self.capacity.state(), host, requester, &freed);
        ledger.choose(group).err().map(|misfit| misfit.to_string())
    }

    fn hosts_among(self, names: &[String], tasks: &[TaskPlacement]) -> Vec<String> {
        let used = tasks
            .iter()
            .filter_map(|task| self.capacity.state().host(task.host));
        let mut found: Vec<String> = used.map(|host| host.name.to_string()).collect();
        found.retain(|name| names.contains(name));
        found.sort();
        found.dedup();
        found.truncate(LISTED_MAX);
        found
    }

    fn limit_of(self, group: &str) -> u32 {
        let mut groups = self.job.spec.groups.iter();
        let group = groups.find(|known| known.name == group);
        group
            .and_then(|group| group.tasks_per_host_max)
            .unwrap_or(u32::MAX)
    }

    /// Other jobs on the hosts of some tasks, or with a claim there.
    fn others_on(self, tasks: &[TaskPlacement]) -> Vec<JobId> {
        let state = self.capacity.state();
        let mut jobs: Vec<JobId> = Vec::new();
        for task in tasks {
            let there = state.index.units_on(task.host);
            jobs.extend(there.map(|unit| unit.job));
            let claims = state.host(task.host).map(|host| host.claims.iter());
            jobs.extend(claims.into_iter().flatten().map(|claim| claim.job));
        }
        jobs.retain(|job| *job != self.job.id);
        jobs.sort();
        jobs.dedup();
        jobs.truncate(LISTED_MAX);
        jobs
    }

    fn models_asked(self) -> Vec<String> {
        let groups = self.job.spec.groups.iter();
        let mut models: Vec<String> = groups
            .flat_map(|group| group.resources.gpu_models.iter().cloned())
            .collect();
        models.sort();
        models.dedup();
        models
    }

    /// Models of the GPUs of some tasks that the job does not accept.
    fn models_among(self, tasks: &[TaskPlacement]) -> Vec<String> {
        let asked = self.models_asked();
        let used = tasks.iter().filter_map(|task| {
            let (_, gpu) = self.capacity.state().gpu(*task.gpus.first()?)?;
            Some(gpu.model.to_string())
        });
        let mut models: Vec<String> = used.filter(|model| !asked.contains(model)).collect();
        models.sort();
        models.dedup();
        models
    }

    fn room(self) -> RoomShortage {
        let less = |cpus_milli, memory_mib| {
            let change = Change::Less {
                cpus_milli,
                memory_mib,
            };
            self.placement_with(&[change]).is_some()
        };
        let groups = self.job.spec.groups.iter();
        let largest = match self.job.spec.gang {
            true => groups.max_by_key(|group| group.resources.gpus),
            false => first_group(self.job, self.unit),
        };
        let asked = largest.map(|group| &group.resources);
        let gpus = asked.map_or(0, |asked| asked.gpus);
        let (free_cpus_milli_max, free_memory_mib_max) = self.most_room(gpus);
        RoomShortage {
            lacks_cpus: less(0, u64::MAX),
            lacks_memory: less(u32::MAX, 0),
            need_cpus_milli: asked.map_or(0, |asked| asked.cpus_milli),
            free_cpus_milli_max,
            need_memory_mib: asked.map_or(0, |asked| asked.memory_mib),
            free_memory_mib_max,
            fits_tasks: self.shortage.fits_tasks,
            need_tasks: self.shortage.need_tasks,
        }
    }

    /// The most CPUs and the most memory free on a host with `gpus` free GPUs.
    fn most_room(self, gpus: u32) -> (u32, u64) {
        let classes = match gpus {
            0 => vec![HostClass::from("")],
            _ => self.classes(),
        };
        let mut most = (0, 0);
        for class in &classes {
            let hosts = self.capacity.hosts(class);
            let fitting = hosts.range((gpus, muster_model::ids::HostId(0))..);
            for (_, host) in fitting.take(HOSTS_LOOKED_AT_MAX) {
                if let Some(host) = self.capacity.state().host(*host) {
                    let (cpus_milli, memory_mib) = self.capacity.room_of(host).free();
                    most = (most.0.max(cpus_milli), most.1.max(memory_mib));
                }
            }
        }
        most
    }
}

/// GPUs of a group that must be in one cell: those of a subgroup, or of one task if the level is inside
/// hosts.
fn gpus_sharing(job: &Job, group: &TaskGroup, topology: &Topology) -> u64 {
    let each = u64::from(group.resources.gpus);
    let within = group.layout.within.as_ref();
    let level = within.and_then(|within| topology.level(&within.level));
    if !job.spec.gang || level > Some(topology.host_level()) {
        return each;
    }
    let tasks = group.layout.within_tasks.unwrap_or(group.count);
    each * u64::from(tasks.min(group.count))
}

/// The group of a unit's first task.
pub(super) fn first_group(job: &Job, unit: UnitIndex) -> Option<&TaskGroup> {
    let first = TaskIndex(job.tasks_of(unit).start);
    job.spec.group_of(first).map(|(group, _)| group)
}
