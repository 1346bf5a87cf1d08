//! Handover of GPUs between tasks: a GPU is assigned again only when its memory is free.
//!
//! The driver frees the memory of a dead process a moment later, or never: if the process hangs in the
//! kernel, or belongs to no task. The next task would run out of memory, and the failure would be
//! attributed to its user.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_model::ids::GpuUuid;
use tokio::time::{Instant, sleep};

use crate::gpu::{GpuError, GpuHold, GpuUsage};
use crate::limits::{GPU_MEMORY_FREE_MIB_MAX, GPU_MEMORY_POLL};
use crate::reports::{MonitorReport, ReportSender};

/// Reads the used memory of a GPU. Calls may hang.
pub trait GpuMemory: Send + Sync {
    /// Used MiB and a description of the processes that use them.
    ///
    /// # Errors
    /// If the driver does not answer.
    fn used(&self, gpu: GpuUuid) -> Result<(u64, String), GpuError>;
}

/// Waits for GPUs that pass from one task to the next.
#[derive(Clone)]
pub struct Handover {
    memory: Arc<dyn GpuMemory>,
    wait_max: Duration,
    reports: ReportSender,
    /// Records how much memory was in use at the handover.
    uses: GpuUsage,
    /// GPUs that are reported unfit and polled until they are free.
    held: Arc<Mutex<BTreeSet<GpuUuid>>>,
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl Handover {
    /// Waits at most `wait_max` for a GPU to be free and reports to the agent those that are not.
    #[must_use]
    pub fn new(
        memory: Arc<dyn GpuMemory>,
        wait_max: Duration,
        reports: ReportSender,
        uses: GpuUsage,
    ) -> Self {
        Self {
            memory,
            wait_max,
            reports,
            uses,
            held: Arc::default(),
        }
    }

    /// Returns when the memory of these GPUs is free. Cancel safe.
    ///
    /// # Errors
    /// The GPU that is still in use after the timeout, and by which processes. It is reported unfit until
    /// it is free.
    pub async fn free(&self, gpus: &[GpuUuid]) -> Result<(), String> {
        let until = Instant::now() + self.wait_max;
        for gpu in gpus {
            loop {
                let used = self.used(*gpu).await;
                let Some(held) = used.as_ref().and_then(too_much) else {
                    self.uses
                        .task_started(*gpu, used.map(|(used_mib, _)| used_mib));
                    break;
                };
                if Instant::now() >= until {
                    self.report_unfit(*gpu, held.clone()).await;
                    return Err(format!("GPU {gpu} is not free: {held}"));
                }
                tracing::info!(%gpu, held, "waiting for a GPU's memory to be free");
                sleep(GPU_MEMORY_POLL.min(self.wait_max / 4)).await;
            }
        }
        Ok(())
    }

    /// Used MiB of a GPU and the processes that use them; none if unknown: then the driver's own health is
    /// reported.
    async fn used(&self, gpu: GpuUuid) -> Option<(u64, String)> {
        let memory = Arc::clone(&self.memory);
        match tokio::task::spawn_blocking(move || memory.used(gpu)).await {
            Ok(Ok(used)) => Some(used),
            Ok(Err(error)) => {
                tracing::warn!(%gpu, %error, "the used memory of a GPU is unknown");
                None
            }
            Err(error) => {
                tracing::error!(%gpu, %error, "reading the memory of a GPU failed");
                None
            }
        }
    }

    /// Reports a GPU as unfit, and as fit again once it is free.
    async fn report_unfit(&self, gpu: GpuUuid, held: String) {
        let is_new = self.held().insert(gpu);
        if !is_new {
            return;
        }
        tracing::error!(%gpu, held, "the memory of a GPU is not released: the GPU is unfit until it is");
        self.send_held(gpu, Some(held)).await;
        let watch = self.clone();
        tokio::spawn(async move {
            loop {
                match watch.used(gpu).await {
                    // Memory that stays in use although its processes were killed is a case for the rules.
                    Some(used) if too_much(&used).is_some() => {
                        watch.send(MonitorReport::GpuMemoryInUse(gpu, used.0)).await;
                    }
                    Some(_) => break,
                    // It was in use at the last successful reading.
                    None => {}
                }
                sleep(GPU_MEMORY_POLL).await;
            }
            watch.held().remove(&gpu);
            watch.send(MonitorReport::GpuMemoryInUse(gpu, 0)).await;
            watch.send_held(gpu, None).await;
        });
    }

    async fn send_held(&self, gpu: GpuUuid, held: Option<String>) {
        let held = held.map(GpuHold::Memory);
        self.send(MonitorReport::GpuHeld(gpu, held)).await;
    }

    async fn send(&self, report: MonitorReport) {
        if self.reports.send(report).await.is_err() {
            tracing::debug!("the agent is ending; the next one checks the GPUs itself");
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeSet<GpuUuid>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Description of the used memory, if it is too much.
fn too_much((used_mib, by): &(u64, String)) -> Option<String> {
    let is_held = *used_mib >= GPU_MEMORY_FREE_MIB_MAX;
    is_held.then(|| format!("{used_mib} MiB of its memory are in use {by}"))
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test should panic"
)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::reports::report_channel;

    const GPU: GpuUuid = GpuUuid(7);
    const TIMEOUT: Duration = Duration::from_secs(50);

    struct Memory(Arc<AtomicU64>);

    impl GpuMemory for Memory {
        fn used(&self, _gpu: GpuUuid) -> Result<(u64, String), GpuError> {
            Ok((
                self.0.load(Ordering::Relaxed),
                "by an unknown process".to_owned(),
            ))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_is_freed_in_time_delays_a_start_and_reports_no_fault() {
        let used = Arc::new(AtomicU64::new(GPU_MEMORY_FREE_MIB_MAX));
        let (sender, mut reports) = report_channel();
        let memory = Arc::new(Memory(Arc::clone(&used)));
        let uses = GpuUsage::default();
        let handover = Handover::new(memory, TIMEOUT, sender, uses.clone());
        let waiting = tokio::spawn(async move { handover.free(&[GPU]).await });
        sleep(TIMEOUT / 2).await;
        assert!(!waiting.is_finished());
        used.store(GPU_MEMORY_FREE_MIB_MAX - 1, Ordering::Relaxed);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        let left = uses.held_before_mib(&[GPU]);
        assert_eq!(left, Some(GPU_MEMORY_FREE_MIB_MAX - 1));
        assert!(reports.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gpu_is_unfit_while_memory_of_an_ended_task_is_in_use() {
        let used = Arc::new(AtomicU64::new(2_048));
        let (sender, mut reports) = report_channel();
        let memory = Arc::new(Memory(Arc::clone(&used)));
        let handover = Handover::new(memory, TIMEOUT, sender, GpuUsage::default());
        let began = Instant::now();
        let error = handover.free(&[GPU]).await.unwrap_err();
        assert!(
            error.contains("2048 MiB") && error.contains("by an unknown process"),
            "{error}"
        );
        assert!(began.elapsed() >= TIMEOUT && began.elapsed() < TIMEOUT + 2 * GPU_MEMORY_POLL);
        let Some(MonitorReport::GpuHeld(GPU, Some(_))) = reports.recv().await else {
            panic!("it is not reported");
        };
        // The amount is reported to the rules repeatedly.
        for _ in 0..10 {
            let Some(MonitorReport::GpuMemoryInUse(GPU, 2_048)) = reports.recv().await else {
                panic!("the rules get no report");
            };
        }
        used.store(0, Ordering::Relaxed);
        let mut last = None;
        while !matches!(last, Some(MonitorReport::GpuHeld(GPU, None))) {
            let next = reports.recv().await;
            let is_known = matches!(next, Some(MonitorReport::GpuMemoryInUse(GPU, 0 | 2_048)));
            assert!(
                is_known || matches!(next, Some(MonitorReport::GpuHeld(GPU, None))),
                "{next:?}"
            );
            last = next;
        }
    }

    /// Answers in order; none where the driver does not answer.
    struct Answers(Mutex<VecDeque<Option<u64>>>);

    impl GpuMemory for Answers {
        fn used(&self, _gpu: GpuUuid) -> Result<(u64, String), GpuError> {
            let next = self.0.lock().unwrap().pop_front();
            let used_mib = next
                .unwrap()
                .ok_or_else(|| GpuError::NoDriver("silent".to_owned()))?;
            Ok((used_mib, "by an unknown process".to_owned()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_gpu_is_not_free_while_its_memory_cannot_be_read() {
        let answers = [Some(2_048), None, Some(2_048), Some(0)];
        let memory = Arc::new(Answers(Mutex::new(VecDeque::from(answers))));
        let (sender, mut reports) = report_channel();
        let handover = Handover::new(memory, Duration::ZERO, sender, GpuUsage::default());
        handover.free(&[GPU]).await.unwrap_err();
        // Only the background check can report now, and does until the GPU is free.
        drop(handover);
        let mut kinds = Vec::new();
        while let Some(report) = reports.recv().await {
            kinds.push(match report {
                MonitorReport::GpuHeld(GPU, Some(_)) => "held",
                MonitorReport::GpuMemoryInUse(GPU, 2_048) => "still held",
                MonitorReport::GpuMemoryInUse(GPU, 0) => "not any more",
                MonitorReport::GpuHeld(GPU, None) => "free",
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(kinds, ["held", "still held", "not any more", "free"]);
    }
}
