//! Health of a host and its GPUs as observed by the simulated agent, and the health actions ordered by the
//! leader.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_control::agent::Input;
use muster_model::command::GpuHealth;
use muster_model::health::{Component, DeviceAction, Finding, Order, Severity};
use muster_model::heartbeat::{Heartbeat, WorkDone};
use muster_model::ids::{GpuUuid, HostId};
use muster_model::time::TimeMs;
use tokio::time::Instant;

use crate::sim::faults::coverage::Situation;
use crate::sim::host::driver::AgentDriver;
use crate::sim::host::lock;
use crate::sim::mutant::Mutant;

/// Heartbeats between two readings of the host's sensors.
const LOOK_BEATS: u64 = 2;
/// Duration of a repair or a check.
pub(super) const HEALTH_WORK: Duration = Duration::from_secs(3);

impl AgentDriver {
    /// Completes due repairs and checks: a reset works, a check passes if the component is healthy, and a
    /// reboot reports nothing.
    pub(super) async fn work_on_health(&mut self) -> bool {
        let now = Instant::now();
        let (over, left) = std::mem::take(&mut self.health_work)
            .into_iter()
            .partition(|(_, ends)| *ends <= now);
        self.health_work = left;
        let mut changed = false;
        let over: Vec<(Order, Instant)> = over;
        for (order, _) in over {
            if order.action == DeviceAction::Reboot {
                self.host.reboot();
                continue;
            }
            if order.action == DeviceAction::RestartService {
                self.watch.restarted(&order.rule);
            }
            let passed = order.action != DeviceAction::Check || self.is_healthy(&order.component);
            self.host.reached(match (order.action, passed) {
                (DeviceAction::Check, true) => Situation::CheckPassed,
                (DeviceAction::Check, false) => Situation::CheckFailed,
                _ => Situation::Repaired,
            });
            let evidence = "simulated".to_owned();
            let done = WorkDone {
                order,
                passed,
                evidence,
            };
            changed |= self.step(Input::HealthWorkDone(done)).await;
        }
        changed
    }

    fn is_healthy(&self, component: &Component) -> bool {
        if self.watch.is_faulty(component) {
            return false;
        }
        let gpus = lock(&self.host.gpus);
        let is_well = |(gpu, health): (&GpuUuid, &GpuHealth)| {
            let is_meant = match component {
                Component::Gpu(of) => of == gpu,
                Component::Host(_) => true,
                Component::Nic { .. } | Component::Rack(_) => false,
            };
            !is_meant || *health == GpuHealth::Healthy
        };
        gpus.iter().all(is_well)
    }

    /// Reports findings to the agent.
    pub(super) async fn found(&mut self, found: Vec<Finding>) -> bool {
        self.watch.report(&found);
        self.step(Input::Findings(found)).await
    }

    /// Reads the host's sensors at intervals.
    pub(super) async fn look_at_host(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next_look {
            return false;
        }
        let period_ms = LOOK_BEATS * self.host.settings.timings.heartbeat_ms;
        self.next_look = now + Duration::from_millis(period_ms);
        let found = self.watch.look();
        self.found(found).await
    }

    pub(super) async fn look_at_gpus(&mut self) -> bool {
        let mut seen = lock(&self.host.gpus).clone();
        let frees_hung = self.host.settings.mutant == Some(Mutant::FreesHungGpus);
        let held: BTreeSet<GpuUuid> = self.host.supervisors.held_gpus().into_iter().collect();
        for gpu in held.iter().filter(|_| !frees_hung) {
            let health = seen.entry(*gpu).or_insert(GpuHealth::Healthy);
            if *health == GpuHealth::Healthy {
                *health = stuck();
            }
        }
        let mut changed = false;
        for (gpu, shown) in seen {
            if self.known_gpus.get(&gpu) != Some(&shown) {
                self.known_gpus.insert(gpu, shown.clone());
                changed |= self.found(findings(gpu, &shown)).await;
            }
            // Findings judged by rules do not make a GPU unfit by themselves.
            let health = match xid_of(&shown) {
                Some(_) if held.contains(&gpu) && !frees_hung => stuck(),
                Some(_) => GpuHealth::Healthy,
                None => shown,
            };
            changed |= self.step(Input::GpuHealth { gpu, health }).await;
        }
        changed
    }
}

/// Findings of the rules for a GPU's fault; its end is not a finding, because an XID's block ends with a
/// check.
fn findings(gpu: GpuUuid, health: &GpuHealth) -> Vec<Finding> {
    let Some((code, detail)) = xid_of(health) else {
        return Vec::new();
    };
    vec![Finding {
        sequence: 0,
        rule: "xid".to_owned(),
        component: Component::Gpu(gpu),
        severity: Severity::Fatal,
        metric: "xid".to_owned(),
        measured: i64::from(code),
        code: Some(code),
        cluster: None,
        evidence: detail.to_owned(),
        at: TimeMs(0),
    }]
}

/// Sets the cluster's number of this host, as the real agent does.
pub(super) fn name_host(heartbeat: &mut Heartbeat, id: HostId) {
    let findings = heartbeat.status.iter_mut().flat_map(|it| &mut it.findings);
    for finding in findings {
        match &mut finding.component {
            Component::Host(host) | Component::Nic { host, .. } => *host = id,
            Component::Gpu(_) | Component::Rack(_) => {}
        }
    }
}

/// The XID shown by a GPU, with its detail.
fn xid_of(health: &GpuHealth) -> Option<(u32, &str)> {
    let GpuHealth::Faulted { signal, detail } = health else {
        return None;
    };
    Some((signal.strip_prefix("xid-")?.parse().ok()?, detail.as_str()))
}

fn stuck() -> GpuHealth {
    GpuHealth::Faulted {
        signal: GpuHealth::TASK_STUCK.to_owned(),
        detail: "a task that cannot be killed".to_owned(),
    }
}
