//! Watches the GPUs on a thread of its own, because a driver's call can hang for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_core::command::{GpuDescription, GpuHealth};
use muster_core::ids::GpuUuid;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{GpuBackend, GpuError, HealthChange, Injector, faulted};
use crate::clock::LeaseClock;
use crate::limits::INBOX_MAX;

/// Longest wait within one call to the backend.
const OBSERVE: Duration = Duration::from_secs(1);
/// Pause after an error of the backend as a whole.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// Silence of the backend after which its GPUs count as unfit: four sweeps of a real one.
const SILENCE_MS_MAX: u64 = 120_000;

/// The GPUs of this host and the changes in their health.
pub(crate) struct GpuMonitor {
    inventory: Vec<GpuDescription>,
    injector: Option<Injector>,
    changes: Receiver<HealthChange>,
    clock: LeaseClock,
    /// When the backend last answered.
    answered_ms: Arc<AtomicU64>,
    silent: bool,
}

/// Why a fault was not injected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InjectError {
    #[error("the GPUs of this host are real: faults are injected into simulated ones only")]
    Real,
    #[error("this host has no GPU {0}")]
    Unknown(GpuUuid),
    #[error("too many injected faults wait")]
    Busy,
}

impl GpuMonitor {
    /// Starts watching.
    pub(crate) fn start(backend: Box<dyn GpuBackend>) -> Result<Self, GpuError> {
        let (sender, changes) = channel(INBOX_MAX);
        let clock = LeaseClock::start();
        let answered_ms = Arc::new(AtomicU64::new(clock.now().0));
        let monitor = Self {
            inventory: backend.inventory().to_vec(),
            injector: backend.injector(),
            changes,
            clock,
            answered_ms: Arc::clone(&answered_ms),
            silent: false,
        };
        std::thread::Builder::new()
            .name("gpus".to_owned())
            .spawn(move || watch(backend, &sender, clock, &answered_ms))
            .map_err(GpuError::Thread)?;
        Ok(monitor)
    }

    /// The GPUs in index order.
    pub(crate) fn inventory(&self) -> &[GpuDescription] {
        &self.inventory
    }

    /// The next change; never returns if there will be none.
    pub(crate) async fn changed(&mut self) -> HealthChange {
        match self.changes.recv().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }

    /// What to say of all GPUs because the backend fell silent or speaks again; nothing if neither.
    pub(crate) fn check_silence(&mut self) -> Vec<HealthChange> {
        let silence_ms = self
            .clock
            .now()
            .0
            .saturating_sub(self.answered_ms.load(Ordering::Relaxed));
        let silent = silence_ms > SILENCE_MS_MAX;
        if silent == self.silent {
            return Vec::new();
        }
        self.silent = silent;
        let health = if silent {
            faulted(
                "no-data",
                format!("the driver has not answered for {silence_ms} ms"),
            )
        } else {
            GpuHealth::Healthy
        };
        let all = self.inventory.iter();
        all.map(|gpu| (gpu.uuid, health.clone())).collect()
    }

    /// Makes a simulated GPU show a health from now on.
    pub(crate) fn inject(&self, gpu: GpuUuid, health: GpuHealth) -> Result<(), InjectError> {
        let injector = self.injector.as_ref().ok_or(InjectError::Real)?;
        let known: BTreeSet<GpuUuid> = self.inventory.iter().map(|gpu| gpu.uuid).collect();
        if !known.contains(&gpu) {
            return Err(InjectError::Unknown(gpu));
        }
        injector
            .try_send((gpu, health))
            .map_err(|_| InjectError::Busy)
    }
}

fn watch(
    mut backend: Box<dyn GpuBackend>,
    changes: &Sender<HealthChange>,
    clock: LeaseClock,
    answered_ms: &AtomicU64,
) {
    while !changes.is_closed() {
        match backend.observe(OBSERVE) {
            Ok(found) => {
                answered_ms.store(clock.now().0, Ordering::Relaxed);
                for change in found {
                    // Closed: the agent ends, and so do we.
                    drop(changes.blocking_send(change));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the GPUs' health is not known now");
                std::thread::park_timeout(ERROR_PAUSE);
            }
        }
    }
}
