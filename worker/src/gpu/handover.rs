//! A GPU is given on only when nobody holds its memory any more.
//!
//! A process that died leaves its GPU's memory to the driver, which frees it a moment later, or never: of a process that
//! hangs in the kernel, or of one that is nobody's task. The next task would fail for want of memory, and its user would be
//! blamed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::ids::GpuUuid;
use tokio::time::{Instant, sleep};

use super::{GpuError, GpuHold};
use crate::inbox::{Incoming, Outbox};
use crate::limits::{GPU_MEMORY_FREE_MIB_MAX, GPU_MEMORY_POLL};

/// Says how much of a GPU's memory is in use. Calls may hang.
pub trait GpuMemory: Send + Sync {
    /// MiB in use, and by whom, for people.
    ///
    /// # Errors
    /// Why it is not known.
    fn used(&self, gpu: GpuUuid) -> Result<(u64, String), GpuError>;
}

/// Watches over GPUs that go from one task to the next.
#[derive(Clone)]
pub(crate) struct HandOver {
    memory: Arc<dyn GpuMemory>,
    patience: Duration,
    inbox: Outbox,
    /// GPUs that are called unfit and looked at until they are free.
    held: Arc<Mutex<BTreeSet<GpuUuid>>>,
}

impl std::fmt::Debug for HandOver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HandOver").finish_non_exhaustive()
    }
}

impl HandOver {
    /// Waits for so long at most for a GPU to be free, and says to the agent which are not.
    pub(crate) fn new(memory: Arc<dyn GpuMemory>, patience: Duration, inbox: Outbox) -> Self {
        Self {
            memory,
            patience,
            inbox,
            held: Arc::default(),
        }
    }

    /// Returns when nobody holds memory of these GPUs. Safe to be cancelled.
    ///
    /// # Errors
    /// Which one is still held when patience ends, and by whom. It is reported as unfit until it is free.
    pub(crate) async fn free(&self, gpus: &[GpuUuid]) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        for gpu in gpus {
            while let Some(held) = self.holds(*gpu).await {
                if Instant::now() >= until {
                    self.call_unfit(*gpu, held.clone()).await;
                    return Err(format!("GPU {gpu} is not free: {held}"));
                }
                tracing::info!(%gpu, held, "waiting for a GPU's memory to be free");
                sleep(GPU_MEMORY_POLL.min(self.patience / 4)).await;
            }
        }
        Ok(())
    }

    /// What somebody holds of a GPU's memory; none if it is free, or if nobody can say: then the driver's health tells.
    async fn holds(&self, gpu: GpuUuid) -> Option<String> {
        let memory = Arc::clone(&self.memory);
        match tokio::task::spawn_blocking(move || memory.used(gpu)).await {
            Ok(Ok((used_mib, _))) if used_mib < GPU_MEMORY_FREE_MIB_MAX => None,
            Ok(Ok((used_mib, by))) => Some(format!("{used_mib} MiB of its memory are in use {by}")),
            Ok(Err(error)) => {
                tracing::warn!(%gpu, %error, "how much of a GPU's memory is in use is not known");
                None
            }
            Err(error) => {
                tracing::error!(%gpu, %error, "looking at a GPU's memory failed");
                None
            }
        }
    }

    /// Reports a GPU as unfit, and as fit again once it is free.
    async fn call_unfit(&self, gpu: GpuUuid, held: String) {
        let is_news = self.held().insert(gpu);
        if !is_news {
            return;
        }
        tracing::error!(%gpu, held, "a GPU's memory is not given back: it is unfit until it is");
        self.say(gpu, Some(held)).await;
        let watch = self.clone();
        tokio::spawn(async move {
            while watch.holds(gpu).await.is_some() {
                sleep(GPU_MEMORY_POLL).await;
            }
            watch.held().remove(&gpu);
            watch.say(gpu, None).await;
        });
    }

    async fn say(&self, gpu: GpuUuid, held: Option<String>) {
        if self
            .inbox
            .send(Incoming::GpuHeld(gpu, held.map(GpuHold::Memory)))
            .await
            .is_err()
        {
            tracing::debug!("the agent is ending: the next one looks at the GPUs itself");
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeSet<GpuUuid>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test should panic"
)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::inbox::inbox;

    const GPU: GpuUuid = GpuUuid(7);
    const PATIENCE: Duration = Duration::from_secs(50);

    struct Memory(Arc<AtomicU64>);

    impl GpuMemory for Memory {
        fn used(&self, _gpu: GpuUuid) -> Result<(u64, String), GpuError> {
            Ok((
                self.0.load(Ordering::Relaxed),
                "by nobody's task".to_owned(),
            ))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_is_given_back_in_time_delays_and_harms_nobody() {
        let used = Arc::new(AtomicU64::new(GPU_MEMORY_FREE_MIB_MAX));
        let (outbox, mut reports) = inbox();
        let hand_over = HandOver::new(Arc::new(Memory(Arc::clone(&used))), PATIENCE, outbox);
        let waiting = tokio::spawn(async move { hand_over.free(&[GPU]).await });
        sleep(PATIENCE / 2).await;
        assert!(!waiting.is_finished());
        used.store(GPU_MEMORY_FREE_MIB_MAX - 1, Ordering::Relaxed);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert!(reports.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_is_not_given_back_makes_the_gpu_unfit_until_it_is() {
        let used = Arc::new(AtomicU64::new(2_048));
        let (outbox, mut reports) = inbox();
        let hand_over = HandOver::new(Arc::new(Memory(Arc::clone(&used))), PATIENCE, outbox);
        let began = Instant::now();
        let error = hand_over.free(&[GPU]).await.unwrap_err();
        assert!(
            error.contains("2048 MiB") && error.contains("by nobody's task"),
            "{error}"
        );
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < PATIENCE + 2 * GPU_MEMORY_POLL);
        let Some(Incoming::GpuHeld(GPU, Some(_))) = reports.recv().await else {
            panic!("it is not reported");
        };
        sleep(10 * GPU_MEMORY_POLL).await;
        assert!(reports.try_recv().is_err());
        used.store(0, Ordering::Relaxed);
        let Some(Incoming::GpuHeld(GPU, None)) = reports.recv().await else {
            panic!("it is not fit again");
        };
    }
}
