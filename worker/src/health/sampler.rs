//! Reads GPUs and the host again and again, each on a thread of its own: a driver's call can hang for ever.
//!
//! Which metric of which rule is read where is listed in `sources`. The kernel's log and the backend's signals meet further
//! rules at once (`judge`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_core::command::GpuDescription;
use muster_core::health::{Component, SECOND_MS};
use muster_core::ids::GpuUuid;
use muster_supervisor::clock::LeaseClock;
use tokio::sync::mpsc::Sender;

use super::host::HostSensors;
use super::{HealthConfig, Place, Sample, Seen, THIS_HOST, thread};
use crate::gpu::GpuSensors;
use crate::metrics;
use crate::session::jitter;
use crate::topology::PciAddress;

/// Sweeps shorter than this are never told as unfinished.
const LONG_MS: u64 = 10_000;

/// Whether a look at all GPUs is under way, and since when.
#[derive(Debug)]
pub(super) struct Sweep {
    clock: LeaseClock,
    /// Milliseconds of the clock at which it began; 0 while none is.
    began_ms: AtomicU64,
}

impl Sweep {
    /// Silence of a driver, in seconds, that its monitor takes for no answer at all.
    pub(super) const SILENCE_S: i64 = 120;

    pub(super) const fn new(clock: LeaseClock) -> Self {
        Self {
            clock,
            began_ms: AtomicU64::new(0),
        }
    }

    /// For how long one has been under way that should have ended.
    pub(super) fn unfinished_s(&self) -> Option<i64> {
        let began_ms = self.began_ms.load(Ordering::Relaxed);
        let took_ms = self.clock.now().0.saturating_sub(began_ms);
        let is_long = began_ms > 0 && took_ms >= LONG_MS;
        is_long.then(|| i64::try_from(took_ms / SECOND_MS).unwrap_or(i64::MAX))
    }

    fn begin(&self) -> u64 {
        let now_ms = self.clock.now().0.max(1);
        self.began_ms.store(now_ms, Ordering::Relaxed);
        now_ms
    }

    /// Milliseconds that it took.
    fn end(&self, began_ms: u64) -> u64 {
        self.began_ms.store(0, Ordering::Relaxed);
        self.clock.now().0.saturating_sub(began_ms)
    }
}

/// Starts both threads; that of GPUs only where there are some.
pub(super) fn start(
    config: &HealthConfig,
    (gpus, addresses, sensors): (
        Vec<GpuDescription>,
        BTreeMap<GpuUuid, PciAddress>,
        Box<dyn GpuSensors>,
    ),
    place: &Place,
    sweep: Arc<Sweep>,
    seen: &Sender<Seen>,
) {
    let period = Duration::from_millis(config.sample_ms);
    let places = (&*config.host_root, &config.expected);
    let host = HostSensors::new(places, &place.data, addresses.values().copied());
    let (clock, sender) = (place.clock, seen.clone());
    thread("host-health", move || {
        watch_host(host, clock, period, &sender)
    });
    if gpus.is_empty() {
        return;
    }
    let watch = GpuWatch {
        gpus,
        sensors,
        sweep,
        shows_gauges: config.gpu_gauges,
    };
    let sender = seen.clone();
    thread("gpu-health", move || watch.run(period, &sender));
}

fn watch_host(mut sensors: HostSensors, clock: LeaseClock, period: Duration, seen: &Sender<Seen>) {
    while !seen.is_closed() {
        let began = clock.now();
        let samples = sensors.read(began);
        metrics::health_sweep("host", Duration::from_millis(clock.now().since(began)));
        // Closed: the agent ends, and so do we.
        drop(seen.blocking_send(Seen::Samples(samples)));
        pause(period);
    }
}

/// What one thread reads of all GPUs.
struct GpuWatch {
    gpus: Vec<GpuDescription>,
    sensors: Box<dyn GpuSensors>,
    sweep: Arc<Sweep>,
    shows_gauges: bool,
}

impl GpuWatch {
    fn run(mut self, period: Duration, seen: &Sender<Seen>) {
        while !seen.is_closed() {
            let samples = self.sweep();
            // Closed: the agent ends, and so do we.
            drop(seen.blocking_send(Seen::Samples(samples)));
            pause(period);
        }
    }

    fn sweep(&mut self) -> Vec<Sample> {
        let began_ms = self.sweep.begin();
        let mut samples = Vec::new();
        for gpu in &self.gpus {
            let read = self.sensors.read(gpu, self.sweep.clock.now());
            let of_gpu = read.samples.into_iter();
            samples.extend(of_gpu.map(|(rule, metrics)| Sample {
                rule,
                component: Component::Gpu(gpu.uuid),
                metrics,
            }));
            if self.shows_gauges {
                for (name, value) in read.gauges {
                    metrics::gpu_gauge(name, gpu, value);
                }
            }
        }
        let took_ms = self.sweep.end(began_ms);
        metrics::health_sweep("gpus", Duration::from_millis(took_ms));
        let sweep_ms = i64::try_from(took_ms).unwrap_or(i64::MAX);
        let metrics = [("sweep_ms", sweep_ms), ("unfinished_s", 0)];
        samples.push(Sample::new("nvml_latency", THIS_HOST, &metrics));
        samples
    }
}

/// Waits for the next sweep, a bit less than the period: hosts that were started together must not read in step.
pub(super) fn pause(period: Duration) {
    std::thread::park_timeout(period - jitter(period / 10));
}
