//! Placement of a replacement member of a running gang: where its group allows it, near the others, by best
//! fit.

use muster_engine::feasibility::{Requester, check_member};
use muster_engine::state::{Attempt, HostClass, Job, State, TaskRun, Vacancy};
use muster_model::command::TaskPlacement;
use muster_model::ids::{HostId, UnitIndex};
use muster_model::spec::TaskGroup;
use muster_model::topology::{GpuMask, TaskScope};

use crate::capacity::{Capacity, Masks, uuids};
use crate::unit::request::{Part, Shared, UnitRequest};

/// Allocates room for the new member of a vacancy, preferably away from where the previous member was lost;
/// `None` if there is none.
pub(crate) fn place_member(
    capacity: &mut Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
    attempt: &Attempt,
    vacancy: &Vacancy,
) -> Option<TaskPlacement> {
    let requester = capacity.requester(job, unit);
    let sought = MemberSearch::of(capacity, requester, attempt, vacancy)?;
    let found = sought
        .elsewhere(capacity)
        .or_else(|| sought.anywhere(capacity))?;
    check_member(capacity.state(), requester, attempt, &found).ok()?;
    capacity.commit(requester, std::slice::from_ref(&found));
    Some(found)
}

/// Requirements of the place for one member.
struct MemberSearch<'a> {
    requester: Requester<'a>,
    attempt: &'a Attempt,
    vacancy: &'a Vacancy,
    part: Part<'a>,
    /// The cell that all members share.
    shared: Option<Shared>,
    spreads: bool,
}

impl<'a> MemberSearch<'a> {
    fn of(
        capacity: &Capacity<'_>,
        requester: Requester<'a>,
        attempt: &'a Attempt,
        vacancy: &'a Vacancy,
    ) -> Option<Self> {
        let request = UnitRequest::of(capacity, requester);
        let (spreads, shared) = (request.spreads(), request.shared);
        let task = vacancy.run.task.get();
        let holds = |part: &Part<'_>| {
            let tasks = part.first_task..part.first_task + part.group.count;
            tasks.contains(&task)
        };
        let mut part = request.parts.into_iter().find(holds)?;
        if let Some(model) = model_of(capacity.state(), requester.job, attempt, part.group) {
            part.classes.retain(|class| *class == model);
        }
        Some(Self {
            requester,
            attempt,
            vacancy,
            part,
            shared,
            spreads,
        })
    }

    /// Avoids the place where the previous member could not start or was lost: the cause may persist.
    fn elsewhere(&self, capacity: &Capacity<'_>) -> Option<TaskPlacement> {
        let mut fork = capacity.without_hosts(std::iter::once(self.vacancy.run.host));
        self.find(&mut fork)
    }

    fn anywhere(&self, capacity: &Capacity<'_>) -> Option<TaskPlacement> {
        self.find(&mut capacity.clone())
    }

    /// Tries with all of the gang's preferences, then with its requirements only.
    fn find(&self, capacity: &mut Capacity<'_>) -> Option<TaskPlacement> {
        let preferred = self.find_in(capacity, true);
        preferred.or_else(|| self.find_in(capacity, false))
    }

    fn find_in(&self, capacity: &Capacity<'_>, preferred: bool) -> Option<TaskPlacement> {
        let mut region = match self.cells(capacity.state()) {
            Some(masks) => capacity.within(masks),
            None => capacity.clone(),
        };
        let of_gang: Vec<&TaskRun> = self.attempt.tasks.iter().collect();
        let own = match preferred {
            true => self.part.own_preferred,
            false => self.part.own,
        };
        for (shared, peers) in [(self.shared, of_gang), (self.part.shared, self.subgroup())] {
            let counts = |shared: &Shared| shared.required || preferred;
            if let Some(shared) = shared.filter(counts)
                && let Some(peer) = peers.first()
            {
                region = region.within(around(region.state(), shared, peer)?);
            }
        }
        self.best_fit(&mut region, own)
    }

    /// The GPUs of the virtual cluster's cells that the gang holds; `None` if it holds none, or the member
    /// needs no GPU.
    fn cells(&self, state: &State) -> Option<Masks> {
        if self.vacancy.run.gpus.is_empty() {
            return None;
        }
        let cells = self.attempt.allocation_basis.cells()?;
        let tree = state.index.allocation.tree();
        let mut masks = Masks::new();
        for (host, gpus) in cells.iter().flat_map(|cell| tree.gpus(cell)) {
            let mask = masks.entry(host).or_default();
            *mask = mask.or(gpus);
        }
        Some(masks)
    }

    /// The members that must share a cell with the missing one.
    fn subgroup(&self) -> Vec<&'a TaskRun> {
        let (first, size) = (self.part.first_task, self.part.subgroup);
        let end = first + self.part.group.count;
        let number = |run: &TaskRun| (run.task.get() - first) / size;
        let own = number(&self.vacancy.run);
        let of_group = |run: &&TaskRun| (first..end).contains(&run.task.get());
        self.attempt
            .tasks
            .iter()
            .filter(of_group)
            .filter(|run| number(run) == own)
            .collect()
    }

    fn best_fit(&self, capacity: &mut Capacity<'_>, own: TaskScope) -> Option<TaskPlacement> {
        let classes = self.part.classes.iter().enumerate();
        let best: Option<(u32, usize, HostId)> = classes
            .filter_map(|(preference, class)| {
                let need = self.part.need(self.requester, class, own);
                let (free, host) = match self.spreads {
                    true => capacity.emptiest_fit(need)?,
                    false => capacity.best_fit(need)?,
                };
                let order = if self.spreads { u32::MAX - free } else { free };
                Some((order, preference, host))
            })
            .min();
        let (_, preference, host) = best?;
        let need = self
            .part
            .need(self.requester, &self.part.classes[preference], own);
        let gpus = capacity.take(host, need, 1);
        Some(TaskPlacement {
            task: self.vacancy.run.task,
            host,
            gpus: uuids(
                capacity.state().host(host)?,
                gpus.first().copied().unwrap_or_default(),
            ),
        })
    }
}

/// The GPU model of a group, if other members of it hold some.
fn model_of(state: &State, job: &Job, attempt: &Attempt, group: &TaskGroup) -> Option<HostClass> {
    let is_own = |run: &&TaskRun| {
        let of_run = job.spec.group_of(run.task);
        of_run.is_some_and(|(known, _)| known.name == group.name)
    };
    attempt.tasks.iter().filter(is_own).find_map(|run| {
        let uuid = run.gpus.first()?;
        let gpus = &state.host(run.host)?.gpus;
        let gpu = gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
        Some(gpu.model.clone())
    })
}

/// The hosts of a member's cell at a level; `None` if it is in no such cell. For levels inside hosts it is
/// the host: the usable GPUs are determined once a host is found.
fn around(state: &State, shared: Shared, peer: &TaskRun) -> Option<Masks> {
    let level = shared.level?;
    let whole = |host: HostId| (host, GpuMask(u128::MAX));
    if level >= state.topology.host_level() {
        return Some(Masks::from([whole(peer.host)]));
    }
    let cells = state.index.host_cells.get(&peer.host)?;
    let path = cells.above.get(usize::from(level.0))?;
    Some(state.index.cells.hosts(path).map(whole).collect())
}
