//! The engine of simulations, with its unhandled events and the hosts of a trace.

use std::collections::VecDeque;
use std::sync::Arc;

use muster_engine::state::State;
use muster_harness::{EngineError, Observe, Step};
use muster_model::command::{Command, GpuDescription, HostCommand, HostRegistration};
use muster_model::event::EventKind;
use muster_model::ids::{GpuUuid, ReplicaId, RequestId};
use muster_model::time::TimeMs;
use muster_model::topology::ReportedTopology;

use crate::trace::{Cluster, TraceHost};

/// CPUs (in thousandths) of a host if the source does not say: more than any job requests.
const CPUS_MILLI_DEFAULT: u32 = u32::MAX;
/// Memory in MiB of a host if the source does not say.
const MEMORY_MIB_DEFAULT: u64 = 1 << 40;
/// The engine of a simulation, which collects its events.
pub(crate) type Engine = muster_harness::Engine<PendingEvents>;

/// Events not yet handled, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents(VecDeque<EventKind>);

impl PendingEvents {
    pub(crate) fn pop(&mut self) -> Option<EventKind> {
        self.0.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Observe for PendingEvents {
    fn observe(&mut self, step: Step<'_>) {
        self.0.extend(step.events().map(|event| event.kind.clone()));
    }
}

/// A cluster with a leader and all its hosts at instant 0; host ids count from 1 in the cluster's order.
pub(super) fn with_hosts(cluster: &Cluster) -> Result<Engine, EngineError> {
    let mut engine = Engine::at(State::default(), TimeMs(0), PendingEvents::default());
    engine.carry_out(&Command::LeadershipStarted {
        replica: ReplicaId(1),
    })?;
    for (number, host) in (1u32..).zip(&cluster.hosts) {
        engine.carry_out(&Command::Host(HostCommand::RegisterHost {
            leader: engine.leader(),
            registration: Arc::new(registration(number, host)),
        }))?;
    }
    Ok(engine)
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
        cpus_milli: host.cpus_milli.unwrap_or(CPUS_MILLI_DEFAULT),
        memory_mib: host.memory_mib.unwrap_or(MEMORY_MIB_DEFAULT),
        labels: labels.collect(),
        reported: ReportedTopology::default(),
    }
}
