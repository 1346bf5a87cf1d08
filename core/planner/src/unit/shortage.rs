//! Shortage: the reason why a unit does not fit now.

use muster_engine::state::HostClass;

use crate::capacity::Capacity;
use crate::unit::greedy::PartialFit;
use crate::unit::request::{Part, UnitRequest};

/// Reason why a unit does not fit now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// GPUs that the unit needs.
    pub(crate) need_gpus: u64,
    /// GPUs free on acceptable hosts.
    pub(crate) free_gpus: u64,
    /// Tasks of the unit that could be placed now.
    pub(crate) fits_tasks: u64,
    /// Tasks that the unit has.
    pub(crate) need_tasks: u64,
    /// True if there are too few GPUs, false if CPUs or memory are short.
    pub(crate) lacks_gpus: bool,
    /// What is short.
    pub(crate) lack: Lack,
}

/// What is short, as far as the search shows; the responsible placement constraint is found by lifting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// GPUs of the acceptable models, in total or in large enough pieces.
    Gpus,
    /// Another resource on the hosts with free GPUs.
    Other,
    /// The topology has no such level.
    UnknownLevel,
    /// Unknown: the search for room reached its bound.
    SearchBound,
}

impl Lack {
    const fn of(lacks_gpus: bool) -> Self {
        match lacks_gpus {
            true => Self::Gpus,
            false => Self::Other,
        }
    }
}

/// The shortage of a single task.
pub(super) fn of_task(capacity: &Capacity<'_>, part: &Part<'_>) -> Shortage {
    let gpus = part.group.resources.gpus;
    let slots = |class: &HostClass| capacity.slots(class, gpus);
    let lacks_gpus = gpus > 0 && part.classes.iter().all(|class| slots(class) == 0);
    Shortage {
        need_gpus: u64::from(gpus),
        free_gpus: gpus_free(capacity, &part.classes),
        fits_tasks: 0,
        need_tasks: 1,
        lacks_gpus,
        lack: Lack::of(lacks_gpus),
    }
}

/// The shortage of a gang.
pub(super) fn of_gang(
    capacity: &Capacity<'_>,
    request: &UnitRequest<'_>,
    short: &PartialFit,
) -> Shortage {
    let asking = || {
        request
            .parts
            .iter()
            .filter(|part| part.group.resources.gpus > 0)
    };
    let largest = asking()
        .map(|part| part.group.resources.gpus)
        .max()
        .unwrap_or(0);
    let of_largest: u64 = asking()
        .filter(|part| part.group.resources.gpus == largest)
        .map(|part| u64::from(part.count_min))
        .sum();
    let mut classes: Vec<HostClass> = asking().flat_map(|part| part.classes.clone()).collect();
    classes.sort();
    classes.dedup();
    let need_gpus = request.gpus();
    let enough: u64 = request
        .parts
        .iter()
        .map(|part| u64::from(part.count_min) * u64::from(part.group.resources.gpus))
        .sum();
    let slots: u64 = classes
        .iter()
        .map(|class| capacity.slots(class, largest))
        .sum();
    let free_gpus = gpus_free(capacity, &classes);
    let lacks_gpus = need_gpus > 0 && (free_gpus < enough || slots < of_largest);
    let lack = match (short.unknown_level, short.over_bound) {
        (true, _) => Lack::UnknownLevel,
        (false, true) => Lack::SearchBound,
        (false, false) => Lack::of(lacks_gpus),
    };
    Shortage {
        need_gpus,
        free_gpus,
        fits_tasks: short.fits_tasks,
        need_tasks: request.tasks(),
        lacks_gpus,
        lack,
    }
}

fn gpus_free(capacity: &Capacity<'_>, classes: &[HostClass]) -> u64 {
    classes.iter().map(|class| capacity.gpus_free(class)).sum()
}
