//! A cluster for tests: an engine that audits after every command, and shorthands for its commands.

use std::sync::Arc;

use muster_engine::apply::Applied;
use muster_engine::audit::audit;
use muster_engine::feasibility::{Freed, HostTrial, Requester};
use muster_engine::state::{Answer, Attempt, State};
use muster_model::command::{
    AllocationBasis, Command, ConfigCommand, EXIT_RUN_AGAIN, Exit, GpuHealth, HostCommand,
    HostRegistration, Placement, TaskOutcome, TaskPlacement, TaskReport,
};
use muster_model::ids::{HostId, JobId, ReplicaId, TaskIndex, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::quota::QueueTree;
use muster_model::spec::JobSpec;
use muster_model::testing::exit_with;

use crate::BEGIN;
use crate::engine::{Engine, Observe, Step};
use crate::reports::terminated;

/// Longer than any effect of an old attempt, in milliseconds.
const HOUR_MS: u64 = 3_600_000;

/// Audits the state after every command and panics on a finding.
#[derive(Clone, Copy, Debug)]
pub struct Auditor {
    /// Whether it audits; disable it in benchmarks.
    pub enabled: bool,
}

impl Observe for Auditor {
    fn observe(&mut self, step: Step<'_>) {
        if !self.enabled {
            return;
        }
        let findings = audit(step.state);
        let (command, revision) = (step.command, step.applied.revision);
        assert!(
            findings.is_empty(),
            "after {command:?} at revision {revision}: {findings:#?}"
        );
    }
}

/// A cluster with a leader, for tests.
pub type Cluster = Engine<Auditor>;

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// A cluster without hosts, led by replica 1.
    #[must_use]
    pub fn new() -> Self {
        let mut cluster = Self::at(State::default(), BEGIN, Auditor { enabled: true });
        cluster.apply(&Command::LeadershipStarted {
            replica: ReplicaId(1),
        });
        cluster
    }

    /// A cluster of `hosts` hosts with `gpus` GPUs each; their numbers and ids count from 1.
    #[must_use]
    pub fn with_hosts(hosts: u32, gpus: u32) -> Self {
        let mut cluster = Self::new();
        cluster.observer.enabled = false;
        for number in 1..=hosts {
            cluster.register(crate::host(number, gpus));
        }
        cluster.observer.enabled = true;
        cluster
    }

    /// Registers a host.
    pub fn register(&mut self, registration: HostRegistration) -> Applied {
        self.apply(&Command::Host(HostCommand::RegisterHost {
            leader: self.leader(),
            registration: Arc::new(registration),
        }))
    }

    /// Replaces the tree of queues.
    ///
    /// # Panics
    /// If it is refused.
    pub fn configure(&mut self, tree: QueueTree) {
        let command = Command::Config(ConfigCommand::ConfigureQueues {
            request: self.next_request(),
            author: "grace".to_owned(),
            tree: Arc::new(tree),
        });
        let applied = self.apply(&command);
        assert!(applied.result.is_ok(), "{:?}", applied.result);
    }

    /// Submits a job.
    ///
    /// # Panics
    /// If it is refused.
    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        let command = Command::SubmitJob {
            request: self.next_request(),
            spec: Arc::new(spec),
        };
        match self.apply(&command).result {
            Ok(Answer::Job(job)) => job,
            other => panic!("the job was not accepted: {other:?}"),
        }
    }

    /// Returns a first-fit placement of a unit over the hosts in order of their ids, if there is room.
    #[must_use]
    pub fn first_fit(&self, id: JobId, unit: UnitIndex) -> Option<Command> {
        let job = self.state.job(id)?;
        let mut hosts = self.state.hosts.values();
        let requester = Requester::at(job, unit, self.now);
        let freed = Freed::default();
        let mut ledger = HostTrial::open(&self.state, hosts.next()?, requester, &freed);
        let mut at = *self.state.hosts.keys().next()?;
        let mut tasks = Vec::new();
        for task in job.tasks_of(unit).map(TaskIndex) {
            let (group, _) = job.spec.group_of(task)?;
            let gpus = loop {
                match ledger.choose(group) {
                    Ok(gpus) => break gpus,
                    Err(_) => {
                        let host = hosts.next()?;
                        ledger = HostTrial::open(&self.state, host, requester, &freed);
                        at = host.id;
                    }
                }
            };
            tasks.push(TaskPlacement {
                task,
                host: at,
                gpus,
            });
        }
        Some(Command::Place(Placement {
            leader: self.leader(),
            job: id,
            unit,
            tasks: Arc::from(tasks),
            basis: ordinary_basis(&job.spec),
            barrier: false,
        }))
    }

    /// Places every waiting unit of a job by first fit; returns the number placed.
    pub fn place_all(&mut self, job: JobId) -> usize {
        let waiting: Vec<UnitIndex> = self
            .state
            .job(job)
            .map_or_else(Vec::new, |job| job.waiting_units().collect());
        let mut placed = 0;
        for unit in waiting {
            let command = self.first_fit(job, unit);
            placed +=
                usize::from(command.is_some_and(|command| self.apply(&command).result.is_ok()));
        }
        placed
    }

    /// Returns a unit's current attempt.
    #[must_use]
    pub fn attempt(&self, job: JobId, unit: UnitIndex) -> Option<&Attempt> {
        self.state.job(job)?.unit(unit)?.attempt.as_deref()
    }

    /// Reports the outcome of a task of a unit's current attempt (of attempt 0, if there is none).
    pub fn report(&mut self, job: JobId, task: TaskIndex, outcome: TaskOutcome) -> Applied {
        let gang = self.state.job(job).is_some_and(|job| job.spec.gang);
        let unit = UnitIndex(if gang { 0 } else { task.get() });
        let attempt = self.attempt(job, unit);
        let epoch = attempt.map(|attempt| attempt.epoch_of(task));
        self.apply(&Command::ReportTask(TaskReport {
            leader: self.leader(),
            job,
            unit,
            epoch: epoch.unwrap_or_default(),
            task,
            outcome,
        }))
    }

    /// Reports a task's exit.
    pub fn exit(&mut self, job: JobId, task: u32, exit: Exit) -> Applied {
        self.report(job, TaskIndex(task), TaskOutcome::Exited(exit))
    }

    /// Starts every assigned task of a job.
    pub fn start_all(&mut self, job: JobId) {
        for task in self.tasks_in(job, &[UnitPhase::Placed]) {
            self.report(job, task, TaskOutcome::Started);
        }
    }

    /// Ends every task of a job with exit code 0.
    pub fn finish_all(&mut self, job: JobId) {
        for task in self.tasks_in(job, &[UnitPhase::Placed, UnitPhase::Running]) {
            self.exit(job, task.get(), exit_with(0));
        }
    }

    /// Ends a job of one task and leaves its GPU unfit for `signal`; the job has run elsewhere for an hour
    /// since.
    ///
    /// # Panics
    /// If it has no GPU, or there is no other one for it.
    pub fn leave_unfit(&mut self, job: JobId, signal: &str) {
        let attempt = self.attempt(job, UnitIndex(0)).expect("the job runs");
        let (host, gpu) = (attempt.tasks[0].host, attempt.tasks[0].gpus[0]);
        self.exit(job, 0, exit_with(EXIT_RUN_AGAIN));
        let unfit = Command::Host(HostCommand::SetGpuHealth {
            leader: self.leader(),
            host,
            gpu,
            health: GpuHealth::Faulted {
                signal: signal.to_owned(),
                detail: String::new(),
            },
        });
        self.apply(&unfit).result.expect("the host has the GPU");
        self.wait(HOUR_MS);
        assert_eq!(self.place_all(job), 1, "there is another GPU");
        self.start_all(job);
        self.wait(HOUR_MS);
    }

    /// Ends every task of a job that is being stopped, by the stop signal.
    pub fn stop_all(&mut self, job: JobId) {
        for task in self.tasks_in(job, &[UnitPhase::Stopping]) {
            self.exit(job, task.get(), terminated());
        }
    }

    fn tasks_in(&self, job: JobId, phases: &[UnitPhase]) -> Vec<TaskIndex> {
        self.state.job(job).map_or_else(Vec::new, |job| {
            job.units
                .values()
                .filter(|unit| phases.contains(&unit.phase))
                .filter_map(|unit| unit.attempt.as_deref())
                .flat_map(|attempt| attempt.tasks.iter().map(|run| run.task))
                .collect()
        })
    }

    /// Returns the hosts that a unit's current attempt runs on.
    #[must_use]
    pub fn hosts_of(&self, job: JobId, unit: UnitIndex) -> Vec<HostId> {
        self.attempt(job, unit)
            .map_or_else(Vec::new, Attempt::hosts)
    }
}

/// Returns the allocation basis of work outside virtual clusters.
fn ordinary_basis(spec: &JobSpec) -> AllocationBasis {
    if spec.scheduling.opportunistic {
        AllocationBasis::Opportunistic
    } else {
        AllocationBasis::Share
    }
}
