//! Allocation of free resources to tasks within a round.

use muster_engine::feasibility::Requester;
use muster_model::command::TaskPlacement;
use muster_model::host::Host;
use muster_model::ids::{GpuUuid, HostId, TaskIndex};
use muster_model::topology::GpuMask;

use crate::capacity::{Capacity, Need};

impl Capacity<'_> {
    /// Allocates room for `count` tasks on one host, which must have it; returns the GPUs of each task.
    pub(crate) fn take(&mut self, host: HostId, need: Need<'_>, count: u32) -> Vec<GpuMask> {
        let Some(host) = self.state.host(host) else {
            return Vec::new();
        };
        let mut left = self.left_of(host);
        let before = left.free;
        let gpus = need.group.resources.gpus;
        let mut free = self.free_on(host, need.class);
        free = need.named_of(host.id, free);
        let mut chosen = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let mask = self
                .cells(host.id)
                .and_then(|cells| cells.choose(need.own, free, gpus))
                .unwrap_or_default();
            free = free.without(mask);
            left.free = left.free.without(mask);
            left.taken = left.taken.or(mask);
            chosen.push(mask);
        }
        left.room.deduct(&need.group.resources, need.places, count);
        left.enter(need.requester);
        self.left.insert(host.id, left);
        if need.group.tasks_per_host_max.is_some() {
            *self.spread.entry(need.spread_key(host.id)).or_default() += count;
        }
        self.reorder(host, before, left.free);
        chosen
    }

    /// Allocates what a unit received in a fork of this capacity, and releases what it claimed and does not
    /// need.
    pub(crate) fn commit(&mut self, requester: Requester<'_>, tasks: &[TaskPlacement]) {
        self.free_claim(requester.unit_id());
        for task in tasks {
            let host = self.state.host(task.host);
            let group = requester.job.spec.group_of(task.task);
            if let (Some(host), Some((group, _))) = (host, group) {
                let mut left = self.left_of(host);
                let before = left.free;
                let mask = positions(host, &task.gpus);
                left.free = left.free.without(mask);
                left.taken = left.taken.or(mask);
                left.room.deduct(&group.resources, group.task_weight(), 1);
                left.enter(requester);
                self.left.insert(host.id, left);
                if group.tasks_per_host_max.is_some() {
                    let position = position_of(requester, task.task);
                    let key = (requester.job.id, position, host.id);
                    *self.spread.entry(key).or_default() += 1;
                }
                self.reorder(host, before, left.free);
            }
        }
    }

    /// Moves a host to its new position in the order of each of its classes.
    pub(super) fn reorder(&mut self, host: &Host, before: GpuMask, now: GpuMask) {
        let Some(cells) = self.cells(host.id) else {
            return;
        };
        if before == now || !self.accepts(host) {
            return;
        }
        for (class, of_class) in cells.models.iter() {
            let entry = |free: GpuMask| (free.and(*of_class).count(), host.id);
            let (old, new) = (entry(before), entry(now));
            if old == new {
                continue;
            }
            self.places
                .change(&cells.above, class, Some(old.0), Some(new.0));
            let hosts = self.free.entry(class.clone()).or_default();
            hosts.remove(&old);
            hosts.insert(new);
            for ((narrowed_class, ..), hosts) in &mut self.narrowed {
                if narrowed_class == class && hosts.remove(&old).is_some() {
                    hosts.insert(new);
                }
            }
        }
    }
}

/// UUIDs of a host's GPUs.
pub(crate) fn uuids(host: &Host, gpus: GpuMask) -> Vec<GpuUuid> {
    gpus.positions()
        .map(|position| host.gpus[position].uuid)
        .collect()
}

/// Mask of the positions of a host's GPUs.
pub fn positions(host: &Host, gpus: &[GpuUuid]) -> GpuMask {
    let all = host.gpus.iter().enumerate();
    all.filter(|(_, gpu)| gpus.contains(&gpu.uuid))
        .fold(GpuMask::default(), |mask, (position, _)| {
            mask.or(GpuMask::one(position))
        })
}

/// Position of a task's group in its job.
fn position_of(requester: Requester<'_>, task: TaskIndex) -> usize {
    let mut end = 0;
    let groups = requester.job.spec.groups.iter();
    groups
        .take_while(|group| {
            end += group.count;
            end <= task.get()
        })
        .count()
}
