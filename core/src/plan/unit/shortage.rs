//! Why a unit does not fit now.

use crate::plan::capacity::Capacity;
use crate::plan::unit::ask::{Ask, Part};
use crate::plan::unit::greedy::Short;
use crate::state::HostClass;

/// Why a unit does not fit now.
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
    /// True if there are too few GPUs, false if CPUs or memory are what is missing.
    pub(crate) lacks_gpus: bool,
    /// What is short.
    pub(crate) lack: Lack,
}

/// What is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// GPUs of the acceptable models, in all or in pieces that are large enough.
    Gpus,
    /// CPUs or memory where the GPUs are.
    Room,
    /// The GPUs or hosts that the job names.
    Named,
    /// Hosts on which nobody else is.
    OwnHosts,
    /// A cell with enough of both: there would be room across several.
    Cell {
        /// Its level.
        level: String,
        /// The most GPUs of an acceptable model that are free in one of them.
        free_gpus_max: u64,
    },
    /// The topology has no such level.
    UnknownLevel,
    /// Nobody knows: the search for room ended at its bound.
    SearchBound,
}

/// Why a single task does not fit.
pub(super) fn of_task(capacity: &Capacity<'_>, ask: &Ask<'_>, part: &Part<'_>) -> Shortage {
    let gpus = part.group.resources.gpus;
    let slots = |class: &HostClass| capacity.slots(class, gpus);
    let lacks_gpus = part.classes.iter().all(|class| slots(class) == 0);
    Shortage {
        need_gpus: u64::from(gpus),
        free_gpus: gpus_free(capacity, &part.classes),
        fits_tasks: 0,
        need_tasks: 1,
        lacks_gpus,
        lack: lack(ask, lacks_gpus),
    }
}

/// Why a gang does not fit.
pub(super) fn of_gang(capacity: &Capacity<'_>, ask: &Ask<'_>, short: &Short) -> Shortage {
    let asking = || {
        ask.parts
            .iter()
            .filter(|part| part.group.resources.gpus > 0)
    };
    let largest = asking().map(|part| part.group.resources.gpus).max();
    let largest = largest.unwrap_or(0);
    let of_largest: u64 = asking()
        .filter(|part| part.group.resources.gpus == largest)
        .map(|part| u64::from(part.count_min))
        .sum();
    let mut classes: Vec<HostClass> = asking().flat_map(|part| part.classes.clone()).collect();
    classes.sort();
    classes.dedup();
    let need_gpus = ask.gpus();
    let enough: u64 = ask
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
    let lack = match short.level {
        _ if short.unknown_level => Lack::UnknownLevel,
        _ if short.over_bound => Lack::SearchBound,
        Some(level) if !lacks_gpus => Lack::Cell {
            level: capacity
                .state()
                .topology
                .name(level)
                .unwrap_or_default()
                .to_owned(),
            free_gpus_max: most_in_a_cell(capacity, level, &classes),
        },
        _ => lack(ask, lacks_gpus),
    };
    Shortage {
        need_gpus,
        free_gpus,
        fits_tasks: short.fits_tasks,
        need_tasks: ask.tasks(),
        lacks_gpus,
        lack,
    }
}

fn lack(ask: &Ask<'_>, lacks_gpus: bool) -> Lack {
    if ask.parts.iter().any(|part| part.few_hosts.is_some()) {
        Lack::Named
    } else if lacks_gpus {
        Lack::Gpus
    } else if ask.asker.is_exclusive() {
        Lack::OwnHosts
    } else {
        Lack::Room
    }
}

fn gpus_free(capacity: &Capacity<'_>, classes: &[HostClass]) -> u64 {
    classes.iter().map(|class| capacity.gpus_free(class)).sum()
}

fn most_in_a_cell(
    capacity: &Capacity<'_>,
    level: crate::topology::Level,
    classes: &[HostClass],
) -> u64 {
    let host_level = capacity.state().topology.host_level();
    let most = classes.iter().map(|class| {
        if level >= host_level {
            let hosts = capacity.hosts(class);
            return hosts.get_max().map_or(0, |(free, _)| u64::from(*free));
        }
        capacity.places().most_free(level, class)
    });
    most.max().unwrap_or(0)
}
