//! Gauges read from the state at each scrape.

use std::collections::BTreeMap;

use metrics::{counter, gauge};
use muster_engine::state::State;
use muster_model::command::{GpuHealth, HostHealth};
use muster_model::health::{ComponentKind, Hold, Phase};
use muster_model::host::{Gpu, Host};
use muster_model::lifecycle::JobPhase;

use crate::metrics::names;
use crate::metrics::object_series::source;

/// Milliseconds per second.
const MS_PER_SECOND: u64 = 1_000;

/// Counts of jobs, hosts and GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateCounts {
    /// Jobs in the order of [`PHASES`].
    pub(crate) jobs: [u64; 6],
    /// Hosts that are up, suspect, lost.
    pub(crate) hosts: [u64; 3],
    /// Hosts that are blocked.
    pub(crate) hosts_blocked: u64,
    /// Hosts for which a block is planned.
    pub(crate) hosts_planned: u64,
    /// GPUs blocked by themselves or by their host: by a rule, by an admin.
    pub(crate) gpus_blocked: [u64; 2],
    /// GPUs in the order of [`GPU_STATES`].
    pub(crate) gpus: [u64; 5],
}

/// Phases of jobs with their labels.
pub(crate) const PHASES: [(JobPhase, &str); 6] = [
    (JobPhase::Queued, "queued"),
    (JobPhase::Running, "running"),
    (JobPhase::Cancelling, "cancelling"),
    (JobPhase::Succeeded, "succeeded"),
    (JobPhase::Failed, "failed"),
    (JobPhase::Cancelled, "cancelled"),
];
const HOST_HEALTHS: [(HostHealth, &str); 3] = [
    (HostHealth::Up, "up"),
    (HostHealth::Suspect, "suspect"),
    (HostHealth::Lost, "lost"),
];
/// States of GPUs; a GPU counts in the first that fits, in the order held, unreachable, faulted, blocked,
/// free.
pub(crate) const GPU_STATES: [&str; 5] = ["held", "unreachable", "faulted", "blocked", "free"];

/// Sources of blocks.
const SOURCES: [&str; 2] = ["auto", "admin"];

impl StateCounts {
    /// Counts the objects of a state.
    pub(crate) fn of(state: &State) -> Self {
        let mut counts = Self::default();
        for job in state.jobs.values() {
            if let Some(position) = PHASES.iter().position(|(phase, _)| *phase == job.phase) {
                counts.jobs[position] += 1;
            }
        }
        for host in state.hosts.values() {
            if let Some(position) = HOST_HEALTHS
                .iter()
                .position(|(health, _)| *health == host.health)
            {
                counts.hosts[position] += 1;
            }
            counts.hosts_blocked += u64::from(host.block.is_some());
            counts.hosts_planned += u64::from(host.planned.is_some());
            for gpu in &host.gpus {
                counts.gpus[state_of(host, gpu)] += 1;
                let block = gpu.block.as_ref().or(host.block.as_ref());
                if let Some((name, _)) = block.map(source) {
                    let position = SOURCES.iter().position(|it| *it == name);
                    counts.gpus_blocked[position.unwrap_or_default()] += 1;
                }
            }
        }
        counts
    }
}

fn state_of(host: &Host, gpu: &Gpu) -> usize {
    if gpu.holder.is_some() {
        0
    } else if host.health != HostHealth::Up {
        1
    } else if gpu.health != GpuHealth::Healthy {
        2
    } else if gpu.block.is_some() || host.block.is_some() {
        3
    } else {
        4
    }
}

/// Sets the gauges of health; combinations of kind and phase without components are 0.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a floating-point number"
)]
fn health(state: &State) {
    let mut counts: BTreeMap<(ComponentKind, Phase), u64> = BTreeMap::new();
    let mut strikes: BTreeMap<ComponentKind, u32> = BTreeMap::new();
    let mut holds: BTreeMap<Hold, u32> = BTreeMap::new();
    for (component, condition) in state.health.conditions() {
        let kind = component.kind();
        for held in &condition.holds {
            *holds.entry(held.what).or_default() += 1;
        }
        *counts.entry((kind, condition.phase)).or_default() += 1;
        *strikes.entry(kind).or_default() += condition.strikes_at(state.time);
    }
    for kind in [ComponentKind::Gpu, ComponentKind::Nic, ComponentKind::Host] {
        for phase in Phase::ALL {
            let count = counts.get(&(kind, *phase)).copied().unwrap_or_default();
            let labels = [("kind", kind.name()), ("phase", phase.name())];
            gauge!(names::COMPONENTS, &labels).set(count as f64);
        }
        let strikes = strikes.get(&kind).copied().unwrap_or_default();
        gauge!(names::STRIKES, "kind" => kind.name()).set(f64::from(strikes));
    }
    for what in Hold::ALL {
        let count = holds.get(what).copied().unwrap_or_default();
        gauge!(names::HOLDS, "what" => what.name()).set(f64::from(count));
    }
}

/// Sets the gauges of the state.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a floating-point number"
)]
pub(crate) fn sample(state: &State) {
    let counts = StateCounts::of(state);
    for ((_, phase), count) in PHASES.iter().zip(counts.jobs) {
        gauge!(names::JOBS, "phase" => *phase).set(count as f64);
    }
    for ((_, health), count) in HOST_HEALTHS.iter().zip(counts.hosts) {
        gauge!(names::HOSTS, "health" => *health).set(count as f64);
    }
    for (name, count) in GPU_STATES.iter().zip(counts.gpus) {
        gauge!(names::GPUS, "state" => *name).set(count as f64);
    }
    gauge!(names::JOBS_SUSPENDED).set(state.index.suspended.len() as f64);
    for (_, cause, loss) in state.ledger.causes() {
        let kinds = [
            ("queue", loss.queue_gpu_ms),
            ("restart", loss.restart_gpu_ms),
            ("work", loss.work_gpu_ms),
        ];
        for (kind, gpu_ms) in kinds {
            counter!(names::LOST_GPU_SECONDS_TOTAL, "cause" => cause, "kind" => kind)
                .absolute(gpu_ms / MS_PER_SECOND);
        }
    }
    counter!(names::KEPT_GPU_SECONDS_TOTAL).absolute(state.ledger.kept_gpu_ms / MS_PER_SECOND);
    counter!(names::PAUSED_GPU_SECONDS_TOTAL).absolute(state.ledger.paused_gpu_ms / MS_PER_SECOND);
    gauge!(names::HOST_FAILURE_SECONDS)
        .set((state.reliability.mean_time_ms(1) / MS_PER_SECOND) as f64);
    health(state);
    for (source, count) in SOURCES.iter().zip(counts.gpus_blocked) {
        gauge!(names::GPUS_BLOCKED, "source" => *source).set(count as f64);
    }
    gauge!(names::HOSTS_BLOCKED).set(counts.hosts_blocked as f64);
    gauge!(names::HOSTS_PLANNED).set(counts.hosts_planned as f64);
    gauge!(names::REVISION).set(state.revision.get() as f64);
    gauge!(names::EVENTS_KEPT).set(state.events.len() as f64);
    gauge!(names::REQUESTS_KEPT).set(state.requests.len() as f64);
}
