//! Resource usage of queues and their users: derived from attempts and claims and maintained incrementally.

use std::sync::Arc;

use imbl::OrdMap;
use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::host::Host;
use muster_model::ids::{GpuUuid, HostId, TaskIndex};
use muster_model::quota::{Amounts, within};
use muster_model::spec::JobSpec;

use crate::state::Attempt;

/// Resource usage of a queue or user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Held by attempts, including stopping and opportunistic ones.
    pub held: Amounts,
    /// The part of `held` that opportunistic attempts hold: counts against limits, but not against
    /// guarantees.
    pub opportunistic: Amounts,
    /// The part of `held` that non-opportunistic attempts which are being stopped hold: about to be released.
    pub stopping: Amounts,
    /// Reserved by claims for waiting units, regardless of the current holder.
    pub claimed: Amounts,
}

/// Usage of a queue and its users, including the queues below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueUsage {
    /// Sum over all users.
    pub total: Usage,
    /// Usage by user; no entry is empty.
    pub users: OrdMap<Arc<str>, Usage>,
}

/// Usage by queue, including parent queues; no entry is empty.
pub type UsageByQueue = OrdMap<Arc<str>, Arc<QueueUsage>>;

/// Kind of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageKind {
    /// Held by an attempt on a guarantee, or on its queue's share.
    Firm,
    /// Like `Firm`, with the attempt being stopped.
    Stopping,
    /// Held by an opportunistic attempt.
    Opportunistic,
    /// Reserved by a claim.
    Claimed,
}

impl UsageKind {
    /// Returns the kind of usage of an attempt.
    pub const fn held_by(attempt: &Attempt) -> Self {
        match attempt.allocation_basis {
            AllocationBasis::Opportunistic => Self::Opportunistic,
            AllocationBasis::Share | AllocationBasis::Cells(_) if attempt.stop.is_some() => {
                Self::Stopping
            }
            AllocationBasis::Share | AllocationBasis::Cells(_) => Self::Firm,
        }
    }
}

impl Usage {
    fn is_zero(&self) -> bool {
        self.held.is_zero() && self.claimed.is_zero()
    }

    fn change(&mut self, part: UsageKind, change: impl Fn(&mut Amounts)) {
        match part {
            UsageKind::Firm => change(&mut self.held),
            UsageKind::Stopping => {
                change(&mut self.held);
                change(&mut self.stopping);
            }
            UsageKind::Opportunistic => {
                change(&mut self.held);
                change(&mut self.opportunistic);
            }
            UsageKind::Claimed => change(&mut self.claimed),
        }
    }
}

/// Adds amounts to a job's queue, the queues around it and its user in each of them. An empty amount makes no
/// entry: it would be removed with the first of several empty holders.
pub fn add(usage: &mut UsageByQueue, spec: &JobSpec, part: UsageKind, amounts: &Amounts) {
    if amounts.is_zero() {
        return;
    }
    for name in within(&spec.queue) {
        if !usage.contains_key(name) {
            usage.insert(Arc::from(name), Arc::default());
        }
        let queue = usage.get_mut(name).map(Arc::make_mut);
        let queue = queue.expect("the entry was inserted above if it was missing");
        queue.total.change(part, |sum| sum.add(amounts));
        match queue.users.get_mut(spec.user.as_str()) {
            Some(user) => user.change(part, |sum| sum.add(amounts)),
            None => {
                let mut user = Usage::default();
                user.change(part, |sum| sum.add(amounts));
                queue.users.insert(Arc::from(spec.user.as_str()), user);
            }
        }
    }
}

/// Subtracts amounts that [`add`] added.
pub fn remove(usage: &mut UsageByQueue, spec: &JobSpec, part: UsageKind, amounts: &Amounts) {
    for name in within(&spec.queue) {
        let Some(queue) = usage.get_mut(name).map(Arc::make_mut) else {
            continue;
        };
        queue.total.change(part, |sum| sum.subtract(amounts));
        if let Some(user) = queue.users.get_mut(spec.user.as_str()) {
            user.change(part, |sum| sum.subtract(amounts));
            if user.is_zero() {
                queue.users.remove(spec.user.as_str());
            }
        }
        if queue.total.is_zero() {
            usage.remove(name);
        }
    }
}

/// Adds the needs of one task on a host, with its GPUs counted under their current models.
fn add_task(
    amounts: &mut Amounts,
    hosts: &OrdMap<HostId, Arc<Host>>,
    spec: &JobSpec,
    task: TaskIndex,
    host: HostId,
    gpus: &[GpuUuid],
) {
    if let Some((group, _)) = spec.group_of(task) {
        amounts.cpus_milli += u64::from(group.resources.cpus_milli);
        amounts.memory_mib += group.resources.memory_mib;
    }
    let host = hosts.get(&host);
    for uuid in gpus {
        let known = host.and_then(|host| host.gpus.iter().find(|gpu| gpu.uuid == *uuid));
        amounts.add_gpus(known.map_or("", |gpu| &gpu.model), 1);
    }
}

/// Returns what an attempt holds.
#[must_use]
pub fn amounts_held(
    hosts: &OrdMap<HostId, Arc<Host>>,
    spec: &JobSpec,
    attempt: &Attempt,
) -> Amounts {
    let mut amounts = Amounts::default();
    for run in &attempt.tasks {
        add_task(&mut amounts, hosts, spec, run.task, run.host, &run.gpus);
    }
    amounts
}

/// Returns what tasks take in their placements, or claim.
#[must_use]
pub fn amounts_of(
    hosts: &OrdMap<HostId, Arc<Host>>,
    spec: &JobSpec,
    tasks: &[TaskPlacement],
) -> Amounts {
    let mut amounts = Amounts::default();
    for task in tasks {
        add_task(&mut amounts, hosts, spec, task.task, task.host, &task.gpus);
    }
    amounts
}
