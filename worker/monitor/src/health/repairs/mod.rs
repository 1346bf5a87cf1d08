//! Executor of the repairs and checks that the leader orders, each with a time limit.

mod active;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_health::checks::CheckEnd;
use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::health::{Component, DeviceAction, Order, raw_evidence, with_detail};
use muster_model::heartbeat::WorkDone;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use muster_supervisor::lease::clock::LeaseClock;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::active::{Checker, shipped_beside_this};
use crate::gpu::Injector;
use crate::health::program::{ProgramResult, run};
use crate::health::sampling::adapters;
use crate::health::{HealthConfig, KnownFaults, Observation, Sample, mark_reboot, services};
use crate::limits::{
    HEALTH_DIAGNOSTIC_MAX, HEALTH_LONG_DIAGNOSTIC_MAX, HEALTH_REBOOT_MAX, HEALTH_RESET_MAX,
    HEALTH_RESTART_MAX,
};
use crate::metrics;
use crate::reports::{MonitorReport, ReportSender};

/// The rule about GPUs that fail their check while their host passes.
const ACTIVE_CHECK: &str = "active_check";
/// Its metric.
const FAILED: &str = "failed";
/// Placeholder for the unit in the restart command.
const UNIT: &str = "{unit}";
/// NVIDIA's own diagnostics.
const DIAGNOSTICS: &str = "dcgmi";
/// Level that also checks memory and bandwidth, in two minutes: DCGM's own after a failed job, and ours
/// before a GPU is used again.
const LEVEL: &str = "2";
/// Level that adds a stress test, a quarter of an hour: after repeated failures.
const THOROUGH_LEVEL: &str = "3";
/// Word in its output if a test failed.
const DIAGNOSTICS_FAIL: &str = "Fail";
/// Word in its output if its service does not run: then it has no result, neither good nor bad.
const DIAGNOSTICS_ABSENT: &str = "connect";

/// The GPUs that are repaired and checked.
pub(super) struct Gpus {
    pub(super) described: Vec<GpuDescription>,
    pub(super) is_simulated: bool,
    pub(super) injector: Injector,
    /// Their current health.
    pub(super) shown: watch::Receiver<BTreeMap<GpuUuid, GpuHealth>>,
    /// Known faults.
    pub(super) known_faults: KnownFaults,
}

/// Executes orders.
#[derive(Clone)]
pub(super) struct RepairExecutor(Arc<Shared>);

struct Shared {
    config: HealthConfig,
    checker: Checker,
    gpus: Gpus,
    clock: LeaseClock,
    reboot_mark: PathBuf,
    /// Time of this agent's last repair of each GPU.
    repaired: Mutex<BTreeMap<GpuUuid, MonotonicMs>>,
    seen: mpsc::Sender<Observation>,
    reports: ReportSender,
}

/// Parameters of a check.
#[derive(Clone, Copy, Debug)]
struct CheckParameters {
    began: MonotonicMs,
    /// Whether it may take longer to be thorough.
    is_thorough: bool,
}

/// Result of an order: success, and the evidence.
type Outcome = (bool, String);

impl RepairExecutor {
    pub(super) fn new(
        config: HealthConfig,
        gpus: Gpus,
        clock: LeaseClock,
        reboot_mark: PathBuf,
        seen: mpsc::Sender<Observation>,
        reports: ReportSender,
    ) -> Self {
        let checker = Checker::of(&config, gpus.is_simulated, &shipped_beside_this());
        Self(Arc::new(Shared {
            config,
            checker,
            gpus,
            clock,
            reboot_mark,
            repaired: Mutex::default(),
            seen,
            reports,
        }))
    }

    /// Executes orders concurrently until the sender is dropped.
    pub(super) async fn run(self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            let executor = self.clone();
            tokio::spawn(async move { executor.carry_out(order).await });
        }
    }

    async fn carry_out(&self, order: Order) {
        let component = order.component.to_string();
        let action = order.action;
        tracing::info!(component, %action, "starting a repair or check");
        let (passed, evidence) = match action {
            DeviceAction::Check => self.check(&order).await,
            DeviceAction::Reset | DeviceAction::ResetIdle => self.reset(&order.component).await,
            DeviceAction::Reboot => self.reboot().await,
            DeviceAction::RestartService => self.restart(&order.rule).await,
            other => (false, format!("a worker cannot execute `{other}`")),
        };
        tracing::info!(component, %action, passed, evidence, "a repair or check ended");
        metrics::health_work(action.name(), passed);
        let done = WorkDone {
            order,
            passed,
            evidence: raw_evidence(&evidence),
        };
        // Closed: the agent is ending, and the next one gets the order again.
        drop(self.0.reports.send(MonitorReport::OrderDone(done)).await);
    }

    /// The GPUs of a component; for a host, all of them.
    fn gpus_of(&self, component: &Component) -> Result<Vec<&GpuDescription>, String> {
        let all = &self.0.gpus.described;
        match component {
            Component::Gpu(uuid) => match all.iter().find(|gpu| gpu.uuid == *uuid) {
                Some(gpu) => Ok(vec![gpu]),
                None => Err(format!("this host does not offer {uuid}")),
            },
            Component::Host(_) => Ok(all.iter().collect()),
            Component::Nic { .. } | Component::Rack(_) => {
                Err(format!("a worker cannot do that with {component}"))
            }
        }
    }

    async fn check(&self, order: &Order) -> Outcome {
        let component = &order.component;
        let course = CheckParameters {
            began: self.0.clock.now(),
            is_thorough: order.is_thorough,
        };
        if let Some(rule) = self.0.gpus.known_faults.faulty_rule(component) {
            return (false, format!("rule {rule} is still violated"));
        }
        if let Component::Nic { name, .. } = component {
            return match adapters::is_up(&self.0.config.host_root, name) {
                Some(true) => (true, "the port is up".to_owned()),
                Some(false) => (false, "the port is down".to_owned()),
                None => (false, "there is no such port".to_owned()),
            };
        }
        let gpus = match self.gpus_of(component) {
            Ok(gpus) => gpus,
            Err(error) => return (false, error),
        };
        match component {
            Component::Host(_) => self.check_host(&gpus, course).await,
            _ => self.check_gpus(&gpus, course).await,
        }
    }

    /// A host passes if one of its GPUs does, or if it has none: GPUs that fail get findings of their own.
    async fn check_host(&self, gpus: &[&GpuDescription], course: CheckParameters) -> Outcome {
        let all = self.check_gpus(gpus, course).await;
        if all.0 || gpus.len() <= 1 {
            return all;
        }
        let (mut well, mut bad) = (0, Vec::new());
        for gpu in gpus {
            match self.check_gpus(&[gpu], course).await {
                (true, _) => well += 1,
                (false, evidence) => bad.push((gpu.uuid, evidence)),
            }
        }
        let count = gpus.len();
        let failures: Vec<&str> = bad.iter().map(|(_, evidence)| evidence.as_str()).collect();
        let evidence = format!("{well} of {count} GPUs pass; {}", failures.join("; "));
        if well == 0 {
            return (false, evidence);
        }
        for (gpu, _) in bad {
            self.report(ACTIVE_CHECK, FAILED, gpu, 1).await;
        }
        (true, evidence)
    }

    /// Reports the result for a GPU as a new event each time, even if it equals the last one.
    async fn report(&self, rule: &str, metric: &str, gpu: GpuUuid, found: i64) {
        let samples = [0, found].map(|value| {
            let of_gpu = Component::Gpu(gpu);
            Sample::new(rule, of_gpu, &[(metric, value)])
        });
        // Closed: the agent is ending, and the next one checks again.
        drop(self.0.seen.send(Observation::Samples(samples.into())).await);
    }

    /// GPUs pass if all of them do.
    async fn check_gpus(&self, gpus: &[&GpuDescription], course: CheckParameters) -> Outcome {
        if let Some(bad) = self.unfit(gpus) {
            return (false, bad);
        }
        let mut texts = Vec::new();
        if !self.0.gpus.is_simulated && !gpus.is_empty() {
            match self.diagnose(gpus, course).await {
                (true, evidence) => texts.push(evidence),
                failed => return failed,
            }
        }
        for gpu in gpus {
            match self.active_check(gpu, gpus, course).await {
                Some((true, evidence)) => texts.push(evidence),
                Some(failed) => return failed,
                None => {}
            }
        }
        if texts.is_empty() {
            texts.push("all GPUs report healthy".to_owned());
        }
        (true, texts.join("; "))
    }

    /// The fault of one of the GPUs, if any.
    fn unfit(&self, gpus: &[&GpuDescription]) -> Option<String> {
        let shown = self.0.gpus.shown.borrow();
        gpus.iter().find_map(|gpu| match shown.get(&gpu.uuid) {
            Some(GpuHealth::Faulted { signal, detail }) => {
                let shown = with_detail(signal, detail);
                Some(format!("GPU {} reports {shown}", gpu.index))
            }
            Some(GpuHealth::Healthy) => None,
            None => Some(format!("the health of GPU {} is unknown", gpu.index)),
        })
    }

    /// Runs NVIDIA's diagnostics if they are installed; otherwise passes if no new XID came.
    async fn diagnose(&self, gpus: &[&GpuDescription], course: CheckParameters) -> Outcome {
        let (command, limit) = diagnostics(gpus, course);
        let ran = run(&command, limit).await;
        let is_absent = ran.end == CheckEnd::NotStarted
            || !ran.succeeded() && ran.output.contains(DIAGNOSTICS_ABSENT);
        if !is_absent {
            let passed = ran.succeeded() && !ran.output.contains(DIAGNOSTICS_FAIL);
            return (passed, ran.evidence(DIAGNOSTICS));
        }
        let repaired = self
            .0
            .repaired
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new = gpus.iter().find(|gpu| {
            let since = repaired.get(&gpu.uuid).copied().unwrap_or(course.began);
            self.0
                .gpus
                .known_faults
                .xid_of(gpu.uuid)
                .is_some_and(|at| at > since)
        });
        match new {
            Some(gpu) => (false, format!("GPU {} had an XID again", gpu.index)),
            None => (
                true,
                "NVML answers and no XID came since (dcgmi is not installed)".to_owned(),
            ),
        }
    }

    async fn reset(&self, component: &Component) -> Outcome {
        let gpus = match self.gpus_of(component) {
            Ok(gpus) => gpus,
            Err(error) => return (false, error),
        };
        let mut texts = Vec::new();
        for gpu in gpus {
            let (passed, evidence) = self.reset_gpu(gpu).await;
            if !passed {
                return (false, evidence);
            }
            texts.push(evidence);
            self.note_repair(gpu.uuid);
            // Earlier faults are void after the reset; if one persists, the next sweep reports it.
            drop(
                self.0
                    .gpus
                    .injector
                    .try_send((gpu.uuid, GpuHealth::Healthy)),
            );
            let repaired = Observation::Repaired(Component::Gpu(gpu.uuid));
            drop(self.0.seen.send(repaired).await);
        }
        (true, texts.join("; "))
    }

    fn note_repair(&self, gpu: GpuUuid) {
        let now = self.0.clock.now();
        let repaired = self.0.repaired.lock();
        repaired
            .unwrap_or_else(PoisonError::into_inner)
            .insert(gpu, now);
    }

    async fn reset_gpu(&self, gpu: &GpuDescription) -> Outcome {
        if self.0.gpus.is_simulated {
            return (true, format!("simulated GPU {} was reset", gpu.index));
        }
        let command = self.of_gpu(&self.0.config.reset_command, gpu);
        let Some(program) = command.first() else {
            let way_out = "no reset command: set `health.reset_command`";
            return (false, way_out.to_owned());
        };
        let ran = run(&command, HEALTH_RESET_MAX).await;
        (ran.succeeded(), ran.evidence(program))
    }

    /// Reboots the host. Success shows when the host has booted, so only a failure is reported.
    async fn reboot(&self) -> Outcome {
        let command = &self.0.config.reboot_command;
        let Some(program) = command.first() else {
            let way_out = "no reboot command: set `health.reboot_command`";
            return (false, way_out.to_owned());
        };
        if let Err(error) = mark_reboot(&self.0.reboot_mark) {
            tracing::warn!(%error, "writing the reboot mark failed: the reboot will count as unexpected");
        }
        let ran: ProgramResult = run(command, HEALTH_REBOOT_MAX).await;
        if !ran.succeeded() {
            drop(std::fs::remove_file(&self.0.reboot_mark));
            return (false, ran.evidence(program));
        }
        sleep(HEALTH_REBOOT_MAX).await;
        (
            false,
            format!("the host still runs {HEALTH_REBOOT_MAX:?} after `{program}`"),
        )
    }

    /// Restarts the services of a rule that are not running, if the site permits it.
    async fn restart(&self, rule: &str) -> Outcome {
        let idle = match services::failed_units(rule).await {
            Ok(idle) => idle,
            Err(why) => return (false, why),
        };
        if idle.is_empty() {
            return (true, "all of its services run again".to_owned());
        }
        self.restart_units(&idle).await
    }

    async fn restart_units(&self, units: &[String]) -> Outcome {
        let config = &self.0.config;
        let mut restarted = Vec::new();
        for unit in units {
            if !config.restart_units.contains(unit) {
                let way_out = "add it to `health.restart_units` to permit a restart";
                return (false, format!("{unit} is not running; {way_out}"));
            }
            let arguments = config.restart_command.iter();
            let command: Vec<String> = arguments
                .map(|argument| argument.replace(UNIT, unit))
                .collect();
            let Some(program) = command.first() else {
                let way_out = "no restart command: set `health.restart_command`";
                return (false, way_out.to_owned());
            };
            let ran = run(&command, HEALTH_RESTART_MAX).await;
            if !ran.succeeded() {
                return (false, format!("{unit}: {}", ran.evidence(program)));
            }
            restarted.push(format!("{unit} was restarted"));
        }
        (true, restarted.join(", "))
    }

    /// Fills in a command about a GPU: `{gpu}` is its index, `{uuid}` its UUID.
    fn of_gpu(&self, command: &[String], gpu: &GpuDescription) -> Vec<String> {
        let fill = |argument: &String| {
            let argument = argument.replace("{gpu}", &gpu.index.to_string());
            argument.replace("{uuid}", &gpu.uuid.to_string())
        };
        command.iter().map(fill).collect()
    }
}

/// The diagnostics command for GPUs, and its time limit.
fn diagnostics(gpus: &[&GpuDescription], course: CheckParameters) -> ([String; 6], Duration) {
    let (level, limit) = if course.is_thorough {
        (THOROUGH_LEVEL, HEALTH_LONG_DIAGNOSTIC_MAX)
    } else {
        (LEVEL, HEALTH_DIAGNOSTIC_MAX)
    };
    let indices: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    let list = indices.join(",");
    let command = [DIAGNOSTICS, "diag", "-r", level, "-i", &list].map(str::to_owned);
    (command, limit)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests;
