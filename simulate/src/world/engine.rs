//! Real engine behind a simulated clock: commands in, events out.

use std::collections::VecDeque;
use std::sync::Arc;

use muster_engine::apply::apply;
use muster_engine::audit::audit;
use muster_engine::state::{Answer, State};
use muster_model::command::{Command, GpuDescription, HostCommand, HostRegistration};
use muster_model::event::EventKind;
use muster_model::ids::{GpuUuid, LeadershipEpoch, ReplicaId, RequestId, RequestKey};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;
use muster_model::topology::LearntTree;

use crate::trace::{Cluster, TraceHost};
use crate::world::SimulateError;

/// CPUs (in thousandths) of a host if the source does not say: more than any job requests.
const CPUS_MILLI_UNSAID: u32 = u32::MAX;
/// Memory in MiB of a host if the source does not say.
const MEMORY_MIB_UNSAID: u64 = 1 << 40;
/// Maximum number of audit findings reported.
const FINDINGS_TOLD_MAX: usize = 5;
/// Prune commands at one instant; each removes up to `PRUNED_PER_COMMAND_MAX` objects.
const PRUNES_PER_INSTANT_MAX: usize = 16;

/// The state, its clock, and its events since they were last read.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) state: State,
    pub(crate) now: TimeMs,
    /// Events not yet handled, oldest first.
    pub(crate) news: VecDeque<EventKind>,
    pub(crate) commands: u64,
    pub(crate) audits: u64,
    requests: u64,
}

impl Engine {
    /// A cluster with a leader and all its hosts at instant 0; host ids count from 1 in the cluster's order.
    pub(crate) fn new(cluster: &Cluster) -> Result<Self, SimulateError> {
        let mut engine = Self {
            state: State::default(),
            now: TimeMs(0),
            news: VecDeque::new(),
            commands: 0,
            audits: 0,
            requests: 0,
        };
        engine.carry_out(&Command::LeaderBegan {
            replica: ReplicaId(1),
        })?;
        for (number, host) in (1u32..).zip(&cluster.hosts) {
            let registration = registration(number, host);
            engine.carry_out(&Command::Host(HostCommand::RegisterHost {
                leader: engine.leader(),
                registration: Arc::new(registration),
            }))?;
        }
        Ok(engine)
    }

    /// An engine that starts with the given state at an instant.
    pub(crate) fn at(state: State, now: TimeMs) -> Self {
        Self {
            now: now.max(state.time),
            state,
            news: VecDeque::new(),
            commands: 0,
            audits: 0,
            requests: 0,
        }
    }

    pub(crate) const fn leader(&self) -> LeadershipEpoch {
        self.state.leadership.epoch
    }

    /// A fresh request key.
    pub(crate) fn next_request(&mut self) -> RequestKey {
        self.requests += 1;
        RequestKey::of(RequestId(u128::from(self.requests)))
    }

    /// Applies a command now and reads the events that it causes.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<Answer, Rejection> {
        let before = self.state.revision;
        let applied = apply(&mut self.state, self.now, command);
        self.commands += 1;
        let told = self
            .state
            .events
            .after(before)
            .expect("events of the newest revision are never compacted");
        for (_, events) in told {
            self.news
                .extend(events.iter().map(|event| event.kind.clone()));
        }
        applied.result
    }

    /// Applies a command that must not be refused.
    pub(crate) fn carry_out(&mut self, command: &Command) -> Result<Answer, SimulateError> {
        let result = self.apply(command);
        result.map_err(|rejection| self.refused(command, rejection))
    }

    /// Error for a command that was refused but should have had an effect.
    pub(super) fn refused(&self, command: &Command, rejection: Rejection) -> SimulateError {
        SimulateError::Refused {
            at: self.now,
            command: format!("{command:?}"),
            rejection: Box::new(rejection),
        }
    }

    /// Prunes objects whose retention has passed, as a leader does.
    pub(crate) fn prune(&mut self) -> Result<(), SimulateError> {
        for _ in 0..PRUNES_PER_INSTANT_MAX {
            if !self.has_outlived() {
                break;
            }
            self.carry_out(&Command::Prune {
                leader: self.leader(),
            })?;
        }
        Ok(())
    }

    fn has_outlived(&self) -> bool {
        let answer = self.state.requests.oldest();
        let finished = self.state.index.finished.get_min();
        answer.is_some_and(|at| self.now.since(at) > limits::REQUEST_KEPT_MS)
            || finished.is_some_and(|(at, _)| self.now.since(*at) > limits::FINISHED_JOB_KEPT_MS)
    }

    /// Audits the whole state for broken invariants.
    pub(crate) fn audit(&mut self) -> Result<(), SimulateError> {
        self.audits += 1;
        let findings = audit(&self.state);
        if findings.is_empty() {
            return Ok(());
        }
        let told = findings.iter().take(FINDINGS_TOLD_MAX);
        Err(SimulateError::Unsound {
            at: self.now,
            findings: told.map(ToString::to_string).collect(),
        })
    }
}

/// UUID of the GPU with the given index on the host with the given number.
pub(super) fn gpu_uuid(host: u32, index: u32) -> GpuUuid {
    GpuUuid((u128::from(host) << u32::BITS) | u128::from(index))
}

/// A host as its agent would register it.
fn registration(number: u32, host: &TraceHost) -> HostRegistration {
    let places = [("rack", &host.rack), ("pod", &host.pod)];
    let labels = places.into_iter().filter_map(|(label, place)| {
        let place = place.clone()?;
        Some((label.to_owned(), place))
    });
    HostRegistration {
        name: host.name.clone(),
        address: host.name.clone(),
        worker_id: RequestId(u128::from(number)),
        incarnation: 1,
        boot_id: host.name.clone(),
        gpus: (0..host.gpus)
            .map(|index| GpuDescription {
                uuid: gpu_uuid(number, index),
                index,
                model: host.gpu_model.clone(),
                memory_mib: 0,
            })
            .collect(),
        cpus_milli: host.cpus_milli.unwrap_or(CPUS_MILLI_UNSAID),
        memory_mib: host.memory_mib.unwrap_or(MEMORY_MIB_UNSAID),
        labels: labels.collect(),
        learnt: LearntTree::default(),
    }
}
