//! Pending reasons as sentences for users.

use std::fmt;

use muster_model::ids::{JobId, TaskIndex};
use muster_model::spec::Dependency;

use crate::{Blocker, CellsShortage, LimitKind, LimitReached, RoomShortage, TopologyShortage};

const MS_PER_SECOND: u64 = 1_000;

/// A sentence for users, with `it` as the subject.
impl fmt::Display for Blocker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackOff { .. } => formatter.write_str("it waits for the end of its back-off"),
            Self::Cancelling => formatter.write_str("it is being cancelled"),
            Self::Suspended { author, reason } => fmt_suspended(author, reason, formatter),
            Self::Dependencies { open, total } => fmt_dependencies(open, *total, formatter),
            Self::Vacancy { task, detail, .. } => fmt_vacancy(*task, detail, formatter),
            Self::TasksAtOnce { max } => write!(
                formatter,
                "{max} of its tasks are running, its limit at a time (tasks_at_once_max)"
            ),
            Self::NoSuchHost { need } => {
                write!(formatter, "no host could hold a task: it needs {need}")
            }
            Self::ExceedsCluster {
                need_gpus,
                have_gpus,
            } => write!(
                formatter,
                "it needs {need_gpus} GPUs, and acceptable hosts have {have_gpus} in all"
            ),
            Self::Resources {
                need_gpus,
                free_gpus,
                fits_tasks,
                need_tasks,
            } => write!(
                formatter,
                "it needs {need_gpus} GPUs, {free_gpus} are free; {fits_tasks} of {need_tasks} tasks fit now"
            ),
            Self::Room(room) => room.fmt(formatter),
            Self::Topology(topology) => topology.fmt(formatter),
            Self::TasksPerHost { .. }
            | Self::ExclusiveHosts { .. }
            | Self::Named { .. }
            | Self::Excluded { .. }
            | Self::Model { .. } => self.fmt_condition(formatter),
            Self::Cells(cells) => cells.fmt(formatter),
            Self::ReservedByOthers { jobs, .. } => write!(
                formatter,
                "the room that is free is reserved for {}",
                named_jobs(jobs)
            ),
            Self::SearchBound {
                need_gpus,
                free_gpus,
            } => write!(
                formatter,
                "the search for room reached its bound: it needs {need_gpus} GPUs, {free_gpus} are free"
            ),
            Self::Limit(limit) => limit.fmt(formatter),
            Self::Reserved { victims: 0, .. } => formatter.write_str(
                "resources are reserved for it; it starts when the attempts that hold them have ended",
            ),
            Self::Reserved { victims, .. } => write!(
                formatter,
                "it starts when {victims} attempts that were stopped for it have ended"
            ),
            Self::Moving { .. } => self.fmt_moving(formatter),
            Self::BehindHead { ahead } => {
                write!(
                    formatter,
                    "job {ahead} is ahead of it and waits for the same hosts"
                )
            }
        }
    }
}

fn fmt_vacancy(task: TaskIndex, detail: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        formatter,
        "its gang continues without task {task} ({detail}): it waits for room for a new member and restarts \
         as a whole if there is none in time"
    )
}

fn fmt_suspended(author: &str, reason: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(formatter, "it was suspended by {author}")?;
    if reason.is_empty() {
        return Ok(());
    }
    write!(formatter, ": {reason}")
}

/// Unfinished dependencies.
fn fmt_dependencies(
    open: &[Dependency],
    total: u64,
    formatter: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    formatter.write_str("it waits for the end of ")?;
    open.iter().enumerate().try_for_each(|(position, other)| {
        let before = if position == 0 { "job" } else { ", job" };
        write!(formatter, "{before} {} ({})", other.job, other.when.name())
    })?;
    match total.saturating_sub(open.len() as u64) {
        0 => Ok(()),
        more => write!(formatter, " and {more} others"),
    }
}

impl Blocker {
    /// Moves that make room.
    fn fmt_moving(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moving {
                moves,
                cost_gpu_ms,
                gain_gpu_ms,
                ..
            } => write!(
                formatter,
                "{moves} units are being moved to make contiguous room for it: this loses {} GPU-seconds and \
                 saves it {} GPU-seconds of waiting",
                cost_gpu_ms / MS_PER_SECOND,
                gain_gpu_ms / MS_PER_SECOND
            ),
            other => write!(formatter, "{other}"),
        }
    }

    /// Placement constraints of the job.
    fn fmt_condition(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TasksPerHost {
                limit,
                fits_tasks,
                need_tasks,
                group,
            } => write!(
                formatter,
                "at most {limit} tasks of group {group} may share a host: {fits_tasks} of {need_tasks} tasks \
                 fit now"
            ),
            Self::ExclusiveHosts {
                jobs,
                fits_tasks,
                need_tasks,
            } => write!(
                formatter,
                "it requires exclusive hosts, and other jobs run on them ({}): {fits_tasks} of {need_tasks} tasks \
                 fit now",
                named_jobs(jobs)
            ),
            Self::Named { places } => {
                formatter.write_str("none of the hosts or GPUs that it names fits")?;
                places.iter().enumerate().try_for_each(|(position, place)| {
                    let before = if position == 0 { ": " } else { "; " };
                    write!(formatter, "{before}{}: {}", place.name, place.reason)
                })
            }
            Self::Excluded { hosts } => write!(
                formatter,
                "there is room only on hosts that it excludes: {}",
                hosts.join(", ")
            ),
            Self::Model {
                asked,
                others,
                need_gpus,
                free_gpus,
            } => write!(
                formatter,
                "it needs {need_gpus} GPUs of model {}, {free_gpus} are free; it would fit on {}",
                asked.join(" or "),
                others.join(" and ")
            ),
            _ => formatter.write_str("a placement constraint of the job blocks it"),
        }
    }
}

fn named_jobs(jobs: &[JobId]) -> String {
    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    match names.as_slice() {
        [] => "other jobs".to_owned(),
        [one] => format!("job {one}"),
        several => format!("jobs {}", several.join(", ")),
    }
}

impl fmt::Display for RoomShortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_one = self.lacks_cpus || self.lacks_memory;
        formatter.write_str("there are GPUs, but not enough ")?;
        if self.lacks_cpus || !is_one {
            write!(
                formatter,
                "CPUs on their hosts (each task needs {}, at most {} are free there)",
                cpus(self.need_cpus_milli),
                cpus(self.free_cpus_milli_max)
            )?;
        }
        if !is_one {
            formatter.write_str(" and ")?;
        }
        if !self.lacks_cpus {
            write!(
                formatter,
                "memory on their hosts (each task needs {} MiB, at most {} are free there)",
                self.need_memory_mib, self.free_memory_mib_max
            )?;
        }
        write!(
            formatter,
            ": {} of {} tasks fit now",
            self.fits_tasks, self.need_tasks
        )?;
        let is_there = self.need_cpus_milli <= self.free_cpus_milli_max
            && self.need_memory_mib <= self.free_memory_mib_max;
        if is_there {
            formatter.write_str(
                "; or those hosts already run the maximum number of tasks (TASKS_PER_HOST_MAX; tasks with \
                 long commands or environments count as several)",
            )?;
        }
        Ok(())
    }
}

/// CPUs as text for users.
pub(super) fn cpus(milli: u32) -> String {
    match (milli / 1_000, milli % 1_000) {
        (whole, 0) => whole.to_string(),
        (whole, thousandths) => format!("{whole}.{thousandths:03}"),
    }
}

impl fmt::Display for TopologyShortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            level,
            need_gpus,
            best_free_gpus,
            free_gpus,
            ..
        } = self;
        write!(formatter, "{need_gpus} GPUs have to lie within one {level}")?;
        if let Some(group) = &self.group {
            write!(formatter, " (group {group})")?;
        }
        match &self.best {
            Some(best) if best_free_gpus < need_gpus => write!(
                formatter,
                "; the best, {best}, has {best_free_gpus} free and lacks {}",
                need_gpus - best_free_gpus
            )?,
            Some(best) => write!(
                formatter,
                "; the best, {best}, has {best_free_gpus} free, but not in the shape that the tasks need"
            )?,
            None => write!(formatter, "; no {level} has any of them")?,
        }
        write!(formatter, " ({free_gpus} are free in all)")
    }
}

impl fmt::Display for CellsShortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            need_gpus,
            left_gpus,
            ..
        } = self;
        write!(
            formatter,
            "virtual cluster {queue} has no cells for it: it needs {need_gpus} GPUs, {left_gpus} are left of the \
             guarantee"
        )?;
        for (position, kind) in self.kinds.iter().enumerate() {
            let before = if position == 0 { " (" } else { "; " };
            write!(
                formatter,
                "{before}{} of {} cells of kind {} bound",
                kind.bound, kind.guaranteed, kind.kind
            )?;
        }
        if !self.kinds.is_empty() {
            formatter.write_str(")")?;
        }
        match self.outside_free_gpus {
            Some(free) => write!(
                formatter,
                "; {free} GPUs free elsewhere are not enough either"
            ),
            None => formatter.write_str("; it does not borrow"),
        }
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            resource,
            used,
            asked,
            would_be,
            limit,
            ..
        } = self;
        let kind = match self.kind {
            LimitKind::Queue => "limit",
            LimitKind::User => "user_limit",
            LimitKind::Guarantee => "guarantee (it does not borrow)",
        };
        if let Some(user) = &self.user {
            write!(formatter, "user {user} in ")?;
        }
        write!(
            formatter,
            "queue {queue} would have {would_be} {resource} ({used} + {asked}), its {kind} is {limit}"
        )?;
        if asked > limit {
            formatter.write_str(": the request alone exceeds it, so waiting does not help")?;
        }
        Ok(())
    }
}
