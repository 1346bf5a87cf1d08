//! A cluster led by the real decisions in virtual time: heartbeats and timers by the reactor, placements by the
//! planner. Its workers start and stop tasks at once, and repair and check as ordered.

use std::collections::BTreeMap;

use muster_control::reactor::{HeartbeatRecord, Input, Reactor};
use muster_model::command::{
    Command, ConfigCommand, Exit, HealthCommand, JobDefaults, SignalSender, TaskOutcome,
};
use muster_model::health::{Component, Order, WorkStep};
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::{GpuUuid, HostId, ReplicaId, Revision};
use muster_model::time::{MonotonicMs, TimeMs};
use muster_model::timings::Timings;

use crate::cluster::Cluster;
use crate::reports;

/// Duration of a repair or a check.
const WORK_MS: u64 = 60_000;

/// Result of repairs and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// They pass.
    Passes,
    /// They fail.
    Fails,
    /// They never end.
    Hangs,
}

/// A cluster with its leader, and the repairs and checks in progress.
#[derive(Debug)]
pub struct LedCluster {
    /// The cluster.
    pub cluster: Cluster,
    /// Result of repairs and checks that end from now on.
    pub outcome: WorkOutcome,
    reactor: Reactor,
    began: TimeMs,
    /// When the reactor asks for the next tick.
    wake_at: Option<MonotonicMs>,
    /// Times at which repairs and checks end, by component and time of the order.
    works: BTreeMap<(Component, TimeMs), TimeMs>,
}

impl Default for LedCluster {
    fn default() -> Self {
        Self::new()
    }
}

impl LedCluster {
    /// A cluster without hosts, with the default settings of jobs.
    #[must_use]
    pub fn new() -> Self {
        let mut cluster = Cluster::new();
        cluster.apply(&Command::Config(ConfigCommand::SetJobDefaults {
            leader: cluster.leader(),
            defaults: JobDefaults::default(),
        }));
        let (leader, timings) = (cluster.leader(), Timings::default());
        Self {
            reactor: Reactor::new(leader, timings, MonotonicMs(0), BTreeMap::new()),
            began: cluster.now,
            cluster,
            outcome: WorkOutcome::Passes,
            wake_at: None,
            works: BTreeMap::new(),
        }
    }

    /// Returns the time since the beginning, which is the monotonic time of all its machines.
    #[must_use]
    pub const fn uptime(&self) -> MonotonicMs {
        MonotonicMs(self.cluster.now.since(self.began))
    }

    /// Returns the time of the leader's next action or the next end of a repair or check, which may be past.
    #[must_use]
    pub fn next_at(&self) -> Option<TimeMs> {
        let wake = self.wake_at.map(|at| self.began.after(at.0));
        let ends = self.works.values().copied();
        let ends = ends.filter(|_| self.outcome != WorkOutcome::Hangs);
        ends.chain(wake).min()
    }

    /// Delivers a host's heartbeat, whose worker has the newest desired state.
    pub fn heartbeat(&mut self, host: HostId, sequence: u64) {
        let heartbeat = Heartbeat {
            sequence,
            acknowledged: sequence.saturating_sub(1),
            leader: self.cluster.leader(),
            desired_revision: self.cluster.state.revision,
            status: None,
        };
        let now = self.uptime();
        let input = Input::Heartbeat { host, heartbeat };
        let reaction = self.reactor.step(&self.cluster.state, input, now);
        self.apply_all(&reaction.commands);
    }

    /// The leader acts on the time and plans a round. What `apply` refuses is proposed again if it is still
    /// wanted.
    pub fn lead(&mut self) {
        let (time, now) = (self.cluster.now, self.uptime());
        let input = Input::Tick { time };
        let reaction = self.reactor.step(&self.cluster.state, input, now);
        self.wake_at = reaction.wake_at;
        self.apply_all(&reaction.commands);
        let plan = self.cluster.plan();
        self.apply_all(&plan.steps);
    }

    /// A new leader begins, which starts with the replicated heartbeat times (ADR 0002).
    pub fn replace_leader(&mut self) {
        let known = self.reactor.contacts().map(|(host, contact)| {
            let desired_revision = Revision::default();
            let contact = HeartbeatRecord {
                desired_revision,
                ..*contact
            };
            (host, contact)
        });
        let known: BTreeMap<HostId, HeartbeatRecord> = known.collect();
        self.cluster.apply(&Command::LeadershipStarted {
            replica: ReplicaId(2),
        });
        let (leader, now) = (self.cluster.leader(), self.uptime());
        self.reactor = Reactor::new(leader, Timings::default(), now, known);
        self.wake_at = None;
    }

    /// The workers of these hosts start tasks that are placed and end tasks that are stopped.
    pub fn run_tasks(&mut self, hosts: impl IntoIterator<Item = HostId>) {
        let state = &self.cluster.state;
        let reports = hosts.into_iter().flat_map(|host| {
            reports::of_host(state, host, |attempt, run| {
                if attempt.stop.is_none() {
                    return reports::started(run);
                }
                Some(TaskOutcome::Exited(Exit {
                    sender: Some(SignalSender::Supervisor),
                    ..reports::terminated()
                }))
            })
        });
        let reports: Vec<Command> = reports.collect();
        self.apply_all(&reports);
    }

    /// A host's worker begins the repairs and checks that the leader orders.
    pub fn take_orders(&mut self, host: HostId, gpus: impl Iterator<Item = GpuUuid>) {
        let due = self.cluster.now.after(WORK_MS);
        let orders = self.cluster.state.health.orders(host, gpus);
        for Order {
            component, since, ..
        } in orders
        {
            self.works.entry((component, since)).or_insert(due);
        }
    }

    /// Workers report the repairs and checks that have ended.
    pub fn end_works(&mut self) {
        let step = match self.outcome {
            WorkOutcome::Passes => WorkStep::Passed,
            WorkOutcome::Fails => WorkStep::Failed,
            WorkOutcome::Hangs => return,
        };
        let now = self.cluster.now;
        let over = self.works.iter().filter(|(_, due)| **due <= now);
        let over: Vec<(Component, TimeMs)> = over.map(|(of, _)| of.clone()).collect();
        for work in over {
            let report = self.end_of(&work.0, work.1, step);
            if self.cluster.apply(&Command::Health(report)).result.is_ok() {
                self.works.remove(&work);
            } else if let Some(due) = self.works.get_mut(&work) {
                // Refused as too early: reported again with the next report.
                *due = now.after(WORK_MS);
            }
        }
    }

    /// The report that a repair or a check has ended.
    fn end_of(&self, component: &Component, since: TimeMs, step: WorkStep) -> HealthCommand {
        let leader = self.cluster.leader();
        let evidence = step.name().to_owned();
        match self.restart_of(component, since) {
            Some((host, rule)) => HealthCommand::Restarted {
                leader,
                host,
                rule,
                since,
                worked: step == WorkStep::Passed,
                evidence,
            },
            None => HealthCommand::Work {
                leader,
                component: component.clone(),
                step,
                since,
                evidence,
            },
        }
    }

    /// The rule whose services an order restarts.
    fn restart_of(&self, component: &Component, since: TimeMs) -> Option<(HostId, String)> {
        let Component::Host(host) = component else {
            return None;
        };
        let mut orders = self.cluster.state.health.orders(*host, std::iter::empty());
        let order = orders.find(|order| order.since == since && !order.rule.is_empty())?;
        Some((*host, order.rule))
    }

    fn apply_all(&mut self, commands: &[Command]) {
        for command in commands {
            self.cluster.apply(command);
        }
    }
}
