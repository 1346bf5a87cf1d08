//! Gang placement: all tasks of a unit or none, each group on GPUs of one model.
//!
//! The ways to place the gang are tried in order of preference: with all its preferences, with those that
//! can be satisfied, with the requirements only. Each way is tried greedily ([`greedy`]) and, where that
//! may miss room, by an exact search ([`exact`]).

use std::collections::BTreeSet;

use muster_engine::state::HostClass;
use muster_model::command::TaskPlacement;
use muster_model::ids::HostId;
use muster_model::topology::{GpuMask, Level};

use crate::capacity::{Capacity, Masks};
use crate::unit::exact::{self, SearchResult};
use crate::unit::greedy::{self, PartialFit};
use crate::unit::request::{Part, Shared, UnitRequest};
use crate::unit::{Placed, Shortage, shortage};

/// Maximum number of assignments of models to groups: those with one model for all groups come first.
const MODEL_CHOICES_MAX: usize = 64;

/// Degree to which a gang's preferences are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Preferences {
    /// All preferences are required.
    Required,
    /// Preferences are satisfied where possible.
    Tried,
    /// Preferences are ignored.
    Ignored,
}

/// A way to place a gang.
pub(super) struct GangVariant<'w> {
    /// The model of each part.
    pub(super) classes: &'w [HostClass],
    /// Tasks of each part.
    pub(super) counts: &'w [u32],
    pub(super) preferences: Preferences,
}

pub(super) fn place(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
) -> Result<Placed, Shortage> {
    let most: Vec<u32> = request.parts.iter().map(|part| part.count).collect();
    let fewest: Vec<u32> = request.parts.iter().map(|part| part.count_min).collect();
    let short = match place_count(capacity, request, &most) {
        Ok(tasks) => return Ok(Placed { tasks }),
        Err(short) => short,
    };
    if most == fewest {
        return Err(shortage::of_gang(capacity, request, &short));
    }
    let mut trial = capacity.clone();
    let mut tasks = place_count(&mut trial, request, &fewest)
        .map_err(|short| shortage::of_gang(capacity, request, &short))?;
    // If n tasks fit, fewer fit as well: the maximum is found by bisection between a number that fits and
    // one that does not.
    let (mut fits, mut fits_not) = (0, spare_max(request));
    while fits_not - fits > 1 {
        let middle = fits + (fits_not - fits) / 2;
        let counts: Vec<u32> = request
            .parts
            .iter()
            .map(|part| part.count.min(part.count_min.saturating_add(middle)))
            .collect();
        let mut larger = capacity.clone();
        match place_count(&mut larger, request, &counts) {
            Ok(more) => {
                fits = middle;
                tasks = more;
                trial = larger;
            }
            Err(_) => fits_not = middle,
        }
    }
    *capacity = trial;
    Ok(Placed { tasks })
}

/// The largest number of tasks that a part requests beyond its minimum.
fn spare_max(request: &UnitRequest<'_>) -> u32 {
    let spare = request.parts.iter().map(|part| part.count - part.count_min);
    spare.max().unwrap_or(0)
}

/// Places the given number of tasks of each part, or returns the shortage and takes nothing.
fn place_count(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    counts: &[u32],
) -> Result<Vec<TaskPlacement>, PartialFit> {
    let mut nearest: Option<PartialFit> = None;
    let choices = model_choices(request);
    for preferences in preferences(request) {
        for classes in &choices {
            let way = GangVariant {
                classes,
                counts,
                preferences: *preferences,
            };
            match place_way(capacity, request, &way) {
                Ok(tasks) => return Ok(tasks),
                Err(short) => nearest = Some(nearest.map_or(short, |known| known.nearer(short))),
            }
        }
    }
    Err(nearest.unwrap_or_default())
}

/// Order in which preferences are given up.
fn preferences(request: &UnitRequest<'_>) -> &'static [Preferences] {
    let prefers = |shared: &Option<Shared>| shared.is_some_and(|shared| !shared.required);
    let any = prefers(&request.shared)
        || request
            .parts
            .iter()
            .any(|part| prefers(&part.shared) || part.own != part.own_preferred);
    if any {
        &[
            Preferences::Required,
            Preferences::Tried,
            Preferences::Ignored,
        ]
    } else {
        &[Preferences::Ignored]
    }
}

/// Models for the parts: the same one for all first, in the order in which the first group names them.
fn model_choices(request: &UnitRequest<'_>) -> Vec<Vec<HostClass>> {
    let mut choices: Vec<Vec<HostClass>> = vec![Vec::new()];
    for part in &request.parts {
        let extended = choices.iter().flat_map(|choice| {
            let chosen = part.classes.iter().map(|class| {
                let mut longer = choice.clone();
                longer.push(class.clone());
                longer
            });
            chosen.collect::<Vec<_>>()
        });
        let mut fewest_models_first: Vec<Vec<HostClass>> = extended.collect();
        fewest_models_first.sort_by_cached_key(|choice| models_of(choice).len());
        fewest_models_first.truncate(MODEL_CHOICES_MAX);
        choices = fewest_models_first;
    }
    choices
}

fn models_of(choice: &[HostClass]) -> BTreeSet<&HostClass> {
    choice.iter().filter(|class| !class.is_empty()).collect()
}

fn place_way(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
) -> Result<Vec<TaskPlacement>, PartialFit> {
    let shared = request
        .shared
        .filter(|shared| shared.required || way.preferences == Preferences::Required);
    let Some(shared) = shared else {
        let mut trial = capacity.clone();
        let tasks = place_anywhere(&mut trial, request, way)?;
        *capacity = trial;
        return Ok(tasks);
    };
    let Some(level) = shared.level else {
        return Err(PartialFit::unknown_level());
    };
    let mut nearest = PartialFit::no_cell(level);
    for masks in regions(capacity, request, way, level) {
        let mut region = capacity.within(masks);
        match place_anywhere(&mut region, request, way) {
            Ok(tasks) => {
                capacity.commit(request.requester, &tasks);
                return Ok(tasks);
            }
            Err(short) => {
                nearest = nearest.nearer(PartialFit {
                    level: Some(level),
                    ..short
                })
            }
        }
    }
    Err(nearest)
}

/// Places the parts greedily, and by an exact search where the greedy one may miss room.
fn place_anywhere(
    capacity: &mut Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
) -> Result<Vec<TaskPlacement>, PartialFit> {
    let mut trial = capacity.clone();
    let short = match greedy::place(&mut trial, request, way) {
        Ok(tasks) => {
            *capacity = trial;
            return Ok(tasks);
        }
        Err(short) => short,
    };
    if short.certain || way.preferences != Preferences::Ignored {
        return Err(short);
    }
    match exact::search(capacity, request, way) {
        SearchResult::Room(tasks) => {
            capacity.commit(request.requester, &tasks);
            Ok(tasks)
        }
        SearchResult::Nothing => Err(short),
        SearchResult::OverBound => Err(PartialFit {
            over_bound: true,
            ..short
        }),
    }
}

/// The cells of a level that may have room for all parts, fullest first.
fn regions(
    capacity: &Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
    level: Level,
) -> Vec<Masks> {
    let topology = &capacity.state().topology;
    let host_level = topology.host_level();
    if level < host_level {
        return cells_with_room(capacity, request, way, level);
    }
    let hosts = hosts_with_room(capacity, request, way);
    if level == host_level {
        let whole = |host| Masks::from([(host, GpuMask(u128::MAX))]);
        return hosts.into_iter().map(whole).collect();
    }
    let of_host = hosts.into_iter().flat_map(|host| {
        let cells = capacity.cells(host);
        let inside = cells
            .into_iter()
            .flat_map(move |cells| cells.on_level(level));
        let gpus = cells
            .filter(|_| level == topology.gpu_level())
            .into_iter()
            .flat_map(|cells| cells.of_model("").positions().map(GpuMask::one));
        let masks = inside.map(|cell| cell.gpus).chain(gpus);
        masks.map(move |mask| Masks::from([(host, mask)]))
    });
    of_host.collect()
}

fn cells_with_room(
    capacity: &Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
    level: Level,
) -> Vec<Masks> {
    let places = capacity.places();
    let (class, gpus) = largest_share(request, way);
    let paths: Vec<_> = match class {
        Some(class) => places.with_free(level, class, gpus).collect(),
        None => places.of_level(level).collect(),
    };
    let roomy = paths.into_iter().filter(|path| {
        (0..request.parts.len()).all(|position| {
            let (part, count) = (&request.parts[position], way.counts[position]);
            let need = part.need(request.requester, &way.classes[position], part.own);
            greedy::has_room(capacity, need, places.hosts(path), count)
        })
    });
    roomy
        .map(|path| {
            let hosts = places.hosts(path);
            hosts.map(|host| (host, GpuMask(u128::MAX))).collect()
        })
        .collect()
}

/// The model of which the parts request the most GPUs, with that number.
fn largest_share<'w>(
    request: &UnitRequest<'_>,
    way: &GangVariant<'w>,
) -> (Option<&'w HostClass>, u64) {
    let gpus_of = |class: &HostClass| -> u64 {
        let parts = request.parts.iter().zip(way.counts).zip(way.classes);
        parts
            .filter(|(_, own)| *own == class)
            .map(|((part, count), _)| u64::from(*count) * u64::from(part.group.resources.gpus))
            .sum()
    };
    let models = way.classes.iter().filter(|class| !class.is_empty());
    let largest = models.map(|class| (gpus_of(class), class)).max();
    largest.map_or((None, 0), |(gpus, class)| (Some(class), gpus))
}

/// Hosts that may have room for all parts, fullest first.
fn hosts_with_room(
    capacity: &Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
) -> Vec<HostId> {
    let (class, gpus) = largest_share(request, way);
    let any = HostClass::from("");
    let hosts = capacity.hosts(class.unwrap_or(&any));
    let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
    let parts = |host: HostId| {
        (0..request.parts.len()).all(|position| {
            let (part, count) = (&request.parts[position], way.counts[position]);
            let need = part.need(request.requester, &way.classes[position], part.own);
            greedy::has_room(capacity, need, std::iter::once(host), count)
        })
    };
    let roomy = hosts.range((gpus, HostId(0))..).map(|(_, host)| *host);
    roomy.filter(|host| parts(*host)).collect()
}

/// Tasks of a part by subgroups that share a cell: first task within the part, and number of tasks.
pub(super) fn subgroups(part: &Part<'_>, count: u32) -> impl Iterator<Item = (u32, u32)> {
    let size = part.subgroup;
    let starts = (0..count).step_by(size as usize);
    starts.map(move |first| (first, size.min(count - first)))
}
