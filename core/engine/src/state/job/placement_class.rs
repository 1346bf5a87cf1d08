//! Placement class of a job: everything that decides where its units fit, so that a planning round searches
//! once per class instead of once per job.

use std::cmp::Ordering;
use std::sync::Arc;

use muster_model::ids::JobId;
use muster_model::spec::{JobSpec, TaskGroup};

use crate::state::Job;

/// Steps per doubling into which run times are rounded: bounds the number of classes, and a job counts as
/// running at most an eighth longer than its limit.
const RUN_TIME_STEPS_PER_DOUBLING: u64 = 8;

/// Everything that decides where a unit of a job fits. Two jobs of one class find the same room, or none.
///
/// It shares the specification of one of its jobs, so creating it is cheap; the ordering has no meaning
/// beyond equality.
#[derive(Clone, Debug)]
pub struct PlacementClass {
    spec: Arc<JobSpec>,
    /// Sum over the groups of the places that one task of each counts as on its host.
    places: u32,
    /// The job, if its own tasks affect the fit: an array with `tasks_per_host_max`.
    only: Option<JobId>,
    /// Time limit of an attempt, rounded up: work that ends in time may use what is reserved for others.
    run_time_ms: Option<u64>,
}

impl PlacementClass {
    /// Returns the placement class of a job.
    #[must_use]
    pub fn of(job: &Job) -> Self {
        let spec = &job.spec;
        let is_spread = |group: &TaskGroup| group.tasks_per_host_max.is_some();
        let by_itself = !spec.gang && spec.units() > 1 && spec.groups.iter().any(is_spread);
        Self {
            spec: Arc::clone(spec),
            places: spec.groups.iter().map(TaskGroup::task_weight).sum(),
            only: by_itself.then_some(job.id),
            run_time_ms: spec.scheduling.run_time_ms_max.map(rounded_up),
        }
    }

    /// Returns the time limit of an attempt, rounded up.
    #[must_use]
    pub const fn run_time_ms(&self) -> Option<u64> {
        self.run_time_ms
    }

    /// Whether all units of its jobs have the same requests.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.spec.gang || self.spec.groups.len() == 1
    }

    /// Whether jobs of the two classes may compete for the same GPUs (or both need none).
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        if !self.needs_gpus() || !other.needs_gpus() {
            return self.needs_gpus() == other.needs_gpus();
        }
        let accepted = |model: &String| asking(&other.spec).any(|group| accepts(group, model));
        asking(&self.spec).any(|group| {
            let models = &group.resources.gpu_models;
            models.is_empty()
                || models.iter().any(accepted)
                || asking(&other.spec).any(|other| other.resources.gpu_models.is_empty())
        })
    }

    /// Whether its jobs are opportunistic.
    #[must_use]
    pub fn is_opportunistic(&self) -> bool {
        self.spec.scheduling.opportunistic
    }

    /// Whether any of its tasks needs GPUs.
    #[must_use]
    pub fn needs_gpus(&self) -> bool {
        asking(&self.spec).next().is_some()
    }

    /// Compares what decides the fit, ignoring run times: classes that fit in the same places are equal.
    #[must_use]
    pub fn place_order(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.spec, &other.spec) {
            return self.only.cmp(&other.only);
        }
        let (ours, theirs) = (&*self.spec, &*other.spec);
        (ours.gang, ours.groups.len())
            .cmp(&(theirs.gang, theirs.groups.len()))
            .then_with(|| self.only.cmp(&other.only))
            .then_with(|| self.places.cmp(&other.places))
            .then_with(|| {
                let pairs = ours.groups.iter().zip(&theirs.groups);
                let mut orders = pairs.map(|(our, their)| group_order(our, their, ours.gang));
                orders
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            })
            .then_with(|| self.group_places(other))
            .then_with(|| constraints(ours).cmp(&constraints(theirs)))
    }

    /// Compares the places per group of two classes with equal totals. Almost always each task counts as one.
    fn group_places(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (&self.spec.groups, &other.spec.groups);
        if usize::try_from(self.places) == Ok(ours.len()) {
            return Ordering::Equal;
        }
        let ours = ours.iter().map(TaskGroup::task_weight);
        ours.cmp(theirs.iter().map(TaskGroup::task_weight))
    }
}

impl PartialEq for PlacementClass {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PlacementClass {}

impl PartialOrd for PlacementClass {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PlacementClass {
    fn cmp(&self, other: &Self) -> Ordering {
        let places = self.place_order(other);
        places.then_with(|| self.run_time_ms.cmp(&other.run_time_ms))
    }
}

/// Compares numbers first: they differ most often and are cheapest.
fn group_order(ours: &TaskGroup, theirs: &TaskGroup, gang: bool) -> Ordering {
    let numbers = |group: &TaskGroup| {
        let asked = &group.resources;
        let count = if gang { group.count } else { 1 };
        let per_host = group.tasks_per_host_max;
        (
            asked.gpus,
            count,
            asked.cpus_milli,
            asked.memory_mib,
            per_host,
        )
    };
    numbers(ours)
        .cmp(&numbers(theirs))
        .then_with(|| ours.resources.gpu_models.cmp(&theirs.resources.gpu_models))
        .then_with(|| ours.layout.cmp(&theirs.layout))
        .then_with(|| {
            let needs_engine = |group: &TaskGroup| group.execution.container.is_some();
            needs_engine(ours).cmp(&needs_engine(theirs))
        })
}

/// Returns the placement constraints of the whole job.
fn constraints(spec: &JobSpec) -> impl Ord + '_ {
    let asked = &spec.scheduling;
    (
        (asked.opportunistic, asked.packing, &asked.within),
        (&asked.hosts, &asked.hosts_excluded, &asked.pinned_cell),
        spec.may_be_lost(),
    )
}

fn asking(spec: &JobSpec) -> impl Iterator<Item = &TaskGroup> {
    let groups = spec.groups.iter();
    groups.filter(|group| group.resources.gpus > 0)
}

fn accepts(group: &TaskGroup, model: &str) -> bool {
    group.resources.accepts_model(model)
}

/// Rounds up to the next step.
const fn rounded_up(span_ms: u64) -> u64 {
    let highest = 1 << (63 - (span_ms | 1).leading_zeros());
    let step: u64 = highest / RUN_TIME_STEPS_PER_DOUBLING;
    if step <= 1 {
        return span_ms;
    }
    span_ms.div_ceil(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_are_rounded_up_by_an_eighth_at_most() {
        for span_ms in (0..2_000).chain([86_400_000, 604_800_001, 31_536_000_000]) {
            let rounded = rounded_up(span_ms);
            assert!(rounded >= span_ms, "{span_ms} became {rounded}");
            assert!(
                rounded - span_ms <= span_ms / 8,
                "{span_ms} became {rounded}"
            );
            assert_eq!(rounded_up(rounded), rounded);
        }
    }
}
