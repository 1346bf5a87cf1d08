//! Monitor of the GPUs on a separate thread, because a driver call can hang forever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::ids::GpuUuid;
use muster_supervisor::lease::clock::LeaseClock;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::gpu::{FaultStore, GpuBackend, GpuError, GpuHold, HealthChange, Injector, faulted};
use crate::health::makes_unfit;
use crate::limits::GPU_UPDATES_WAITING_MAX;

/// Longest wait within one call to the backend.
const OBSERVE: Duration = Duration::from_secs(1);
/// Pause after an error of the backend as a whole.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// Silence of the backend after which its GPUs count as unfit: four sweeps of a real backend.
const SILENCE_MS_MAX: u64 = 120_000;

/// An update about a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuUpdate {
    /// The health of a GPU changed.
    HealthChanged(GpuUuid, GpuHealth),
    /// The driver reported an XID of a GPU.
    Xid(GpuUuid, u32),
}

/// The GPUs of this host and the changes in their health.
pub struct GpuMonitor {
    inventory: Vec<GpuDescription>,
    injector: Injector,
    is_simulated: bool,
    changes: Receiver<GpuUpdate>,
    clock: LeaseClock,
    /// Time of the backend's last answer.
    answered_ms: Arc<AtomicU64>,
    /// Last health that the backend reported for every GPU: valid again after a silence.
    known: BTreeMap<GpuUuid, GpuHealth>,
    /// GPUs still in use by processes that should be gone: unfit while the backend finds no fault.
    held: BTreeMap<GpuUuid, GpuHealth>,
    silent: bool,
}

/// Reasons why a fault was not injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The GPUs are real.
    #[error("the GPUs of this host are real: they accept only `heal`, faults need simulated GPUs")]
    Real,
    /// The host has no such GPU.
    #[error("this host has no GPU {0}")]
    Unknown(GpuUuid),
    /// Too many injections are pending.
    #[error("the queue of injected faults is full")]
    Busy,
}

impl GpuMonitor {
    /// Starts the thread; a GPU with a stored fault starts with it.
    ///
    /// # Errors
    /// [`GpuError::Thread`].
    pub fn start(backend: Box<dyn GpuBackend>, memory: FaultStore) -> Result<Self, GpuError> {
        let (sender, changes) = channel(GPU_UPDATES_WAITING_MAX);
        let clock = LeaseClock::start();
        let answered_ms = Arc::new(AtomicU64::new(clock.now().0));
        let inventory = backend.inventory().to_vec();
        let known = inventory
            .iter()
            .map(|gpu| {
                let fault = memory.fault(gpu.uuid).cloned();
                (gpu.uuid, fault.unwrap_or(GpuHealth::Healthy))
            })
            .collect();
        let monitor = Self {
            inventory,
            known,
            held: BTreeMap::new(),
            injector: backend.injector(),
            is_simulated: backend.is_simulated(),
            changes,
            clock,
            answered_ms: Arc::clone(&answered_ms),
            silent: false,
        };
        std::thread::Builder::new()
            .name("gpus".to_owned())
            .spawn(move || watch(backend, memory, &sender, clock, &answered_ms))
            .map_err(GpuError::Thread)?;
        Ok(monitor)
    }

    /// The GPUs in index order.
    #[must_use]
    pub fn inventory(&self) -> &[GpuDescription] {
        &self.inventory
    }

    /// The health of every GPU as last reported by the backend, or as held.
    #[must_use]
    pub fn all(&self) -> Vec<HealthChange> {
        let known = self.known.iter();
        known
            .map(|(gpu, health)| self.shown(*gpu, health))
            .collect()
    }

    /// The next update; pending forever if there are no more. Cancel safe.
    pub async fn next_update(&mut self) -> GpuUpdate {
        while let Some(update) = self.changes.recv().await {
            let GpuUpdate::HealthChanged(gpu, health) = update else {
                return update;
            };
            self.known.insert(gpu, health.clone());
            // During a silence the GPUs report only that; afterwards all of this is reported.
            if !self.silent {
                let (gpu, health) = self.shown(gpu, &health);
                return GpuUpdate::HealthChanged(gpu, health);
            }
        }
        std::future::pending().await
    }

    /// The part of a GPU's health that makes it unfit regardless of the rules: certain faults of the
    /// device, and faults that no rule covers. Other faults are evaluated by the rules, which also decide
    /// on the consequences.
    #[must_use]
    pub fn unfit_by(&self, gpu: GpuUuid, shown: &GpuHealth) -> GpuHealth {
        let is_rules = matches!(shown, GpuHealth::Faulted { signal, .. } if !makes_unfit(signal));
        if !is_rules {
            return shown.clone();
        }
        let held = self.held.get(&gpu);
        held.cloned().unwrap_or(GpuHealth::Healthy)
    }

    /// Marks a GPU as held, or not any more; returns the health to report.
    pub fn hold(&mut self, gpu: GpuUuid, held: Option<GpuHold>) -> Option<HealthChange> {
        match held {
            Some(hold) => self.held.insert(gpu, hold.into()),
            None => self.held.remove(&gpu),
        };
        let health = self.known.get(&gpu).filter(|_| !self.silent)?;
        Some(self.shown(gpu, health))
    }

    fn shown(&self, gpu: GpuUuid, health: &GpuHealth) -> HealthChange {
        let held = self
            .held
            .get(&gpu)
            .filter(|_| *health == GpuHealth::Healthy);
        (gpu, held.unwrap_or(health).clone())
    }

    /// Health of all GPUs to report because the backend fell silent or answers again; empty if neither.
    pub fn check_silence(&mut self) -> Vec<HealthChange> {
        let answered_ms = self.answered_ms.load(Ordering::Relaxed);
        self.update_silence(self.clock.now().0.saturating_sub(answered_ms))
    }

    fn update_silence(&mut self, silence_ms: u64) -> Vec<HealthChange> {
        let silent = silence_ms > SILENCE_MS_MAX;
        if silent == self.silent {
            return Vec::new();
        }
        self.silent = silent;
        if !silent {
            return self.all();
        }
        let health = faulted(
            "no-data",
            format!("the driver has not answered for {silence_ms} ms"),
        );
        let gpus = self.known.keys();
        gpus.map(|gpu| (*gpu, health.clone())).collect()
    }

    /// Channel through which a GPU is declared repaired.
    #[must_use]
    pub fn injector(&self) -> Injector {
        self.injector.clone()
    }

    /// Whether the GPUs are simulated.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Makes a simulated GPU report a health from now on. A real one can only be declared repaired.
    ///
    /// # Errors
    /// The reason why it is not injected.
    pub fn inject(&self, gpu: GpuUuid, health: GpuHealth) -> Result<(), InjectError> {
        if !self.is_simulated && health != GpuHealth::Healthy {
            return Err(InjectError::Real);
        }
        if !self.known.contains_key(&gpu) {
            return Err(InjectError::Unknown(gpu));
        }
        self.injector
            .try_send((gpu, health))
            .map_err(|_| InjectError::Busy)
    }
}

fn watch(
    mut backend: Box<dyn GpuBackend>,
    mut memory: FaultStore,
    changes: &Sender<GpuUpdate>,
    clock: LeaseClock,
    answered_ms: &AtomicU64,
) {
    while !changes.is_closed() {
        match backend.observe(OBSERVE) {
            Ok(found) => {
                answered_ms.store(clock.now().0, Ordering::Relaxed);
                for (gpu, code) in backend.take_xids() {
                    // Closed: the agent is ending, and so does this thread.
                    drop(changes.blocking_send(GpuUpdate::Xid(gpu, code)));
                }
                for (gpu, health) in found {
                    drop(changes.blocking_send(GpuUpdate::HealthChanged(gpu, health.clone())));
                    memory.note(&(gpu, health));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the health of the GPUs cannot be read");
                std::thread::park_timeout(ERROR_PAUSE);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;
    use crate::gpu::{SimulatedBackend, Timeline};

    /// The next reported health.
    async fn changed(monitor: &mut GpuMonitor) -> HealthChange {
        loop {
            if let GpuUpdate::HealthChanged(gpu, health) = monitor.next_update().await {
                return (gpu, health);
            }
        }
    }

    fn memory(home: &tempfile::TempDir) -> FaultStore {
        FaultStore::open(home.path().join("faults"), "this boot")
    }

    #[tokio::test]
    async fn a_restarted_agent_still_knows_a_fault_reported_once() {
        let home = tempfile::tempdir().unwrap();
        let backend = |timeline| {
            let timeline = Timeline::parse(timeline).unwrap();
            Box::new(SimulatedBackend::new("host-1", 2, "H100", 81_920, timeline))
        };
        let mut monitor = GpuMonitor::start(backend("0,1,xid-79"), memory(&home)).unwrap();
        let fault = changed(&mut monitor).await;
        // It is reported first, then written.
        let written = tokio::time::timeout(Duration::from_secs(20), async {
            while memory(&home).fault(fault.0).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        written.await.unwrap();
        drop(monitor);
        let mut monitor = GpuMonitor::start(backend(""), memory(&home)).unwrap();
        assert!(monitor.all().contains(&fault));
        monitor.inject(fault.0, GpuHealth::Healthy).unwrap();
        assert_eq!(changed(&mut monitor).await, (fault.0, GpuHealth::Healthy));
    }

    #[tokio::test]
    async fn a_fault_persists_across_silence_of_the_driver() {
        let timeline = Timeline::parse("0,1,xid-79").unwrap();
        let backend = SimulatedBackend::new("host-1", 3, "H100", 81_920, timeline);
        let home = tempfile::tempdir().unwrap();
        let mut monitor = GpuMonitor::start(Box::new(backend), memory(&home)).unwrap();
        let fault = changed(&mut monitor).await;
        let silence = monitor.update_silence(SILENCE_MS_MAX + 1);
        assert_eq!(silence.len(), 3);
        for (_, health) in silence {
            assert!(
                matches!(&health, GpuHealth::Faulted { signal, .. } if signal == "no-data"),
                "{health:?}"
            );
        }
        assert_eq!(monitor.update_silence(SILENCE_MS_MAX + 2), vec![]);
        let restored = monitor.update_silence(0);
        assert!(restored.contains(&fault), "{restored:?}");
        let healthy = restored
            .iter()
            .filter(|(_, health)| *health == GpuHealth::Healthy);
        assert_eq!(healthy.count(), 2);
        assert_eq!(monitor.update_silence(0), vec![]);
    }

    #[tokio::test]
    async fn memory_that_is_held_shows_unless_a_fault_does_and_only_as_long() {
        let backend = SimulatedBackend::new("host-1", 2, "H100", 81_920, Timeline::default());
        let home = tempfile::tempdir().unwrap();
        let mut monitor = GpuMonitor::start(Box::new(backend), memory(&home)).unwrap();
        let gpu = monitor.inventory()[0].uuid;
        let held = (gpu, GpuHold::Memory("2048 MiB".to_owned()).into());
        assert_eq!(
            monitor.hold(gpu, Some(GpuHold::Memory("2048 MiB".to_owned()))),
            Some(held.clone())
        );
        assert!(monitor.all().contains(&held));
        let fault = (gpu, faulted("xid-79", "by a test"));
        monitor.inject(gpu, fault.1.clone()).unwrap();
        assert_eq!(changed(&mut monitor).await, fault);
        // The rules evaluate the fault; the held memory makes the GPU unfit regardless of them.
        assert_eq!(monitor.unfit_by(gpu, &fault.1), held.1);
        monitor.inject(gpu, GpuHealth::Healthy).unwrap();
        assert_eq!(changed(&mut monitor).await, held);
        assert_eq!(monitor.hold(gpu, None), Some((gpu, GpuHealth::Healthy)));
    }

    #[tokio::test]
    async fn only_signals_without_a_rule_or_of_definite_faults_make_a_gpu_unfit() {
        let backend = SimulatedBackend::new("host-1", 1, "H100", 81_920, Timeline::default());
        let home = tempfile::tempdir().unwrap();
        let monitor = GpuMonitor::start(Box::new(backend), memory(&home)).unwrap();
        let gpu = monitor.inventory()[0].uuid;
        for plain in ["gpu-lost", "no-data", "nvml-error", "task-stuck", "odd"] {
            let health = faulted(plain, "by a test");
            assert_eq!(monitor.unfit_by(gpu, &health), health);
        }
        for rules in [
            "xid-79",
            "xid-13",
            "ecc-uncorrectable",
            "reset-required",
            "inforom-corrupt",
            "driver-version-mismatch",
        ] {
            let health = monitor.unfit_by(gpu, &faulted(rules, "by a test"));
            assert_eq!(health, GpuHealth::Healthy, "{rules}");
        }
    }

    #[tokio::test]
    async fn changes_during_the_silence_are_reported_after_it() {
        let backend = SimulatedBackend::new("host-1", 2, "H100", 81_920, Timeline::default());
        let home = tempfile::tempdir().unwrap();
        let mut monitor = GpuMonitor::start(Box::new(backend), memory(&home)).unwrap();
        monitor.update_silence(SILENCE_MS_MAX + 1);
        let gpu = monitor.inventory()[0].uuid;
        let fault = (gpu, faulted("ecc-uncorrectable", "by a test"));
        monitor.inject(gpu, fault.1.clone()).unwrap();
        let shown = tokio::time::timeout(Duration::from_secs(20), async {
            while !monitor.all().contains(&fault) {
                // Hidden for now, so this never returns by itself.
                let pause = Duration::from_millis(5);
                drop(tokio::time::timeout(pause, monitor.next_update()).await);
            }
        });
        shown.await.unwrap();
        assert!(monitor.update_silence(0).contains(&fault));
    }
}
