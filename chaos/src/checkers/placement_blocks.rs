//! Checker for I28 from outside: nothing is placed on components that health or an admin took out of
//! placement, and no more hosts are in repair at a time than the repair limits allow.
//!
//! Based on the events of the log that block and unblock components, independent of the engine's
//! feasibility index.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::state::{State, TaskRun};
use muster_model::command::BlockTarget;
use muster_model::event::EventKind;
use muster_model::health::{Component, Hold, Phase};
use muster_model::ids::{AttemptEpoch, GpuUuid, HostId, JobId, UnitId};

/// Blocked components, and placements on them.
#[derive(Clone, Debug, Default)]
pub struct PlacementBlocks {
    hosts: BTreeSet<HostId>,
    gpus: BTreeSet<GpuUuid>,
    /// Holds by rules on hosts, on the host itself or an adapter, after the last entry.
    restrictions: BTreeMap<HostId, Hold>,
    placements: u64,
    /// Number of placements made while some component was blocked.
    avoided: u64,
    found: Vec<Misplaced>,
}

/// A placement or repair that health or an admin did not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// A task was placed on a host that was out of placement.
    #[error("job {job} is placed on host {host}, which is out of placement")]
    OnHost {
        /// The job.
        job: JobId,
        /// The host.
        host: HostId,
    },
    /// A task was placed on a GPU that was out of placement.
    #[error("job {job} is placed on {gpu}, which is out of placement")]
    OnGpu {
        /// The job.
        job: JobId,
        /// The GPU.
        gpu: GpuUuid,
    },
    /// A task was placed on a host although a rule held it back.
    #[error("job {job} is placed on host {host} although a rule holds {hold} off it")]
    HeldOff {
        /// The job.
        job: JobId,
        /// The host.
        host: HostId,
        /// Work that the rule holds off the host.
        hold: Hold,
    },
    /// More hosts are in repair than the limit allows.
    #[error("{repaired} of {hosts} hosts are in repair; the limit is {limit}")]
    Repairs {
        /// Hosts in repair.
        repaired: usize,
        /// Number of hosts.
        hosts: usize,
        /// Limit on hosts in repair.
        limit: usize,
    },
    /// After all repairs and all findings are in, a rule still holds or suspects a component without a
    /// finding.
    #[error("rule {rule} still holds {component} without a finding")]
    StaleHold {
        /// Name of the rule.
        rule: String,
        /// The held component.
        component: Component,
    },
}

impl PlacementBlocks {
    /// Processes an event; `state` is the state after the event's entry.
    pub fn happened(&mut self, kind: &EventKind, state: &State) {
        match kind {
            EventKind::Blocked { target, .. } => self.close(target, state, true),
            // Findings made meanwhile may have blocked it again.
            EventKind::Unblocked { target, .. } => {
                let component = component_of(target, state);
                let is_closed = component.is_some_and(|it| is_closed(state, &it));
                self.close(target, state, is_closed);
            }
            EventKind::HealthChanged { component, to, .. } => match component {
                Component::Host(host) => set(&mut self.hosts, *host, !to.accepts_work()),
                Component::Gpu(gpu) => set(&mut self.gpus, *gpu, !to.accepts_work()),
                Component::Nic { .. } | Component::Rack(_) => {}
            },
            EventKind::AttemptPlaced {
                job, unit, epoch, ..
            } => {
                let id = UnitId {
                    job: *job,
                    unit: *unit,
                };
                let of = tasks(state, id, *epoch);
                of.into_iter().for_each(|run| self.placed(*job, run, state));
            }
            EventKind::MemberSwapped {
                job,
                unit,
                epoch,
                task,
                ..
            } => {
                let id = UnitId {
                    job: *job,
                    unit: *unit,
                };
                let of = tasks(state, id, *epoch).into_iter();
                of.filter(|run| run.task == *task)
                    .for_each(|run| self.placed(*job, run, state));
            }
            _ => {}
        }
    }

    /// Ends an entry: stores the blocks and holds against which the next entry is checked.
    pub fn read(&mut self, state: &State) {
        self.restrictions.clear();
        for (component, condition) in state.health.conditions() {
            let Some(held) = condition.held() else {
                continue;
            };
            if let Component::Host(host) | Component::Nic { host, .. } = component {
                let known = self.restrictions.entry(*host).or_insert(held.what);
                *known = held.what.max(*known);
            }
        }
        self.check_repairs(state);
    }

    /// All replicas are lost and a new group continues from this state of theirs: its blocks apply.
    pub fn goes_back(&mut self, state: &State) {
        self.hosts.clear();
        self.gpus.clear();
        for host in state.hosts.values() {
            let is_out = is_closed(state, &Component::Host(host.id));
            set(&mut self.hosts, host.id, is_out);
            for gpu in &host.gpus {
                let is_out = is_closed(state, &Component::Gpu(gpu.uuid));
                set(&mut self.gpus, gpu.uuid, is_out);
            }
        }
        self.read(state);
    }

    /// Number of placed tasks.
    #[must_use]
    pub const fn placements(&self) -> u64 {
        self.placements
    }

    /// Number of tasks placed while some other component was blocked.
    #[must_use]
    pub const fn avoided(&self) -> u64 {
        self.avoided
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn found(&self) -> &[Misplaced] {
        &self.found
    }

    fn close(&mut self, target: &BlockTarget, state: &State, is_closed: bool) {
        match component_of(target, state) {
            Some(Component::Host(host)) => set(&mut self.hosts, host, is_closed),
            Some(Component::Gpu(gpu)) => set(&mut self.gpus, gpu, is_closed),
            _ => {}
        }
    }

    fn placed(&mut self, job: JobId, run: &TaskRun, state: &State) {
        self.placements += 1;
        let is_any_closed = !(self.hosts.is_empty() && self.gpus.is_empty());
        self.avoided += u64::from(is_any_closed);
        let host = run.host;
        if self.hosts.contains(&host) {
            self.found.push(Misplaced::OnHost { job, host });
        }
        let closed = run.gpus.iter().filter(|gpu| self.gpus.contains(gpu));
        let closed = closed.map(|gpu| Misplaced::OnGpu { job, gpu: *gpu });
        self.found.extend(closed);
        let is_gang = state.job(job).is_some_and(|job| job.spec.gang);
        // A hold that the same entry sets or lifts may apply before or after the placement.
        let still = { state.health.conditions() }
            .filter(|(of, _)| match of {
                Component::Host(at) | Component::Nic { host: at, .. } => *at == host,
                Component::Gpu(_) | Component::Rack(_) => false,
            })
            .filter_map(|(_, condition)| condition.held().map(|held| held.what))
            .max();
        let restrictions = self.restrictions.get(&host).copied().min(still);
        if let Some(restrictions) = restrictions.filter(|what| is_gang || *what == Hold::Everything)
        {
            self.found.push(Misplaced::HeldOff {
                job,
                host,
                hold: restrictions,
            });
        }
    }

    /// Checks the repair limit; all hosts of a simulated world are in one pool.
    fn check_repairs(&mut self, state: &State) {
        let conditions = state.health.conditions();
        let repaired = conditions
            .filter(|(of, it)| matches!(of, Component::Host(_)) && it.phase == Phase::Repairing)
            .count();
        if repaired <= 1 {
            return;
        }
        let hosts = state.hosts.len();
        let permille = state.health.rails().limits().repairs_permille as usize;
        let limit = (hosts * permille / 1_000).max(1);
        let found = Misplaced::Repairs {
            repaired,
            hosts,
            limit,
        };
        if repaired > limit && self.found.last() != Some(&found) {
            self.found.push(found);
        }
    }
}

/// The component of a block; `None` if the host is unknown.
fn component_of(target: &BlockTarget, state: &State) -> Option<Component> {
    match target {
        BlockTarget::Host(name) => state.host_by_name(name).map(|it| Component::Host(it.id)),
        BlockTarget::Gpu(gpu) => Some(Component::Gpu(*gpu)),
    }
}

/// Whether health or an admin took a component out of placement. Holds by rules are tracked separately,
/// since they end without an unblock event.
fn is_closed(state: &State, component: &Component) -> bool {
    !state.health.phase(component).accepts_work()
}

fn set<T: Ord>(all: &mut BTreeSet<T>, one: T, is_in: bool) {
    if is_in {
        all.insert(one);
    } else {
        all.remove(&one);
    }
}

/// The tasks of an attempt, if the state still has it.
fn tasks(state: &State, id: UnitId, epoch: AttemptEpoch) -> Vec<&TaskRun> {
    let attempt = state.attempt(id).filter(|attempt| attempt.epoch == epoch);
    attempt.map_or_else(Vec::new, |attempt| attempt.tasks.iter().collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};
    use muster_model::command::{Command, HealthCommand};
    use muster_model::health::{Finding, Severity};
    use muster_model::time::TimeMs;

    use super::*;

    fn changed(component: Component, to: Phase) -> EventKind {
        EventKind::HealthChanged {
            component,
            host: HostId(0),
            host_name: String::new(),
            from: Phase::Healthy,
            to,
            rule: "raid".to_owned(),
            evidence: String::new(),
        }
    }

    #[test]
    fn a_placement_where_something_is_closed_is_noticed() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let job = cluster.submit(single("misplaced", 1, 1));
        assert_eq!(cluster.place_all(job), 1);
        let state = &cluster.state;
        let mut kinds = Vec::new();
        for (_, events) in state.events.iter() {
            kinds.extend(events.iter().map(|event| event.kind.clone()));
        }
        let run = { &state.job(job).unwrap().units }.values().next().unwrap();
        let run = &run.attempt.as_deref().unwrap().tasks[0];
        let after = |before: Vec<EventKind>| {
            let mut closed = PlacementBlocks::default();
            for kind in before.iter().chain(&kinds) {
                closed.happened(kind, state);
            }
            assert_eq!(closed.placements(), 1);
            closed.found().to_vec()
        };
        let (host, gpu) = (run.host, run.gpus[0]);
        let of_host = |to| changed(Component::Host(host), to);
        assert_eq!(after(Vec::new()), []);
        let on_host = Misplaced::OnHost { job, host };
        assert_eq!(after(vec![of_host(Phase::Draining)]), [on_host]);
        let again = vec![of_host(Phase::Blocked), of_host(Phase::Probation)];
        assert_eq!(after(again), []);
        // A checker that continues from an earlier state adopts its blocks.
        let mut closed = PlacementBlocks::default();
        closed.happened(&of_host(Phase::Blocked), state);
        closed.goes_back(state);
        kinds.iter().for_each(|kind| closed.happened(kind, state));
        assert_eq!(closed.found(), []);
        let on_gpu = Misplaced::OnGpu { job, gpu };
        let of_gpu = changed(Component::Gpu(gpu), Phase::Checking);
        assert_eq!(after(vec![of_gpu]), [on_gpu]);
    }

    /// State of a one-host cluster in which a rule holds off all work.
    fn held_off() -> State {
        let mut cluster = Cluster::with_hosts(1, 2);
        let host = cluster.state.hosts.values().next().unwrap();
        let finding = Finding {
            sequence: 1,
            rule: "runtime".to_owned(),
            component: Component::Host(host.id),
            severity: Severity::Fatal,
            metric: "failed".to_owned(),
            measured: 1,
            code: None,
            cluster: None,
            evidence: "failed is 1".to_owned(),
            at: TimeMs(0),
        };
        let report = HealthCommand::Report {
            leader: cluster.leader(),
            host: host.id,
            incarnation: host.incarnation,
            findings: vec![finding],
        };
        cluster.apply(&Command::Health(report)).result.unwrap();
        cluster.state
    }

    #[test]
    fn a_hold_of_a_rule_ends_without_an_unblock_event() {
        let held = held_off();
        let host = held.hosts.values().next().unwrap();
        let block = host.block.clone().unwrap();
        let target = || BlockTarget::Host(host.name.to_string());
        let author = "expiry".to_owned();
        let over = [
            EventKind::Blocked {
                target: target(),
                block,
            },
            EventKind::Unblocked {
                target: target(),
                author,
            },
        ];
        let mut closed = PlacementBlocks::default();
        over.iter().for_each(|kind| closed.happened(kind, &held));
        assert!(closed.hosts.is_empty());
        closed.goes_back(&held);
        assert!(closed.hosts.is_empty());
        assert_eq!(closed.restrictions.get(&host.id), Some(&Hold::Everything));
    }
}
