//! Periodic readings of GPUs and of the host, each on a separate thread: a driver call can hang forever.
//!
//! `metric_sources` lists the source of each metric of each rule. The kernel's log and the backend's signals feed
//! further rules immediately (`evaluation`).

pub(crate) mod adapters;
mod foreign_processes;
mod host;
mod peers;
mod processes;
mod series;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use host::loaded_driver;
use muster_backoff::jitter;
use muster_model::command::GpuDescription;
use muster_model::health::Component;
use muster_model::ids::{GpuUuid, JobId};
use muster_model::time::SECOND_MS;
use muster_supervisor::lease::clock::LeaseClock;
use tokio::sync::mpsc::Sender;

use crate::gpu::{BAD_PAIRS, GOOD_PAIRS, GpuError, GpuReadings, GpuSensors, GpuUsage, PAIRS_RULE};
use crate::health::sampling::foreign_processes::ForeignProcesses;
use crate::health::sampling::host::HostSensors;
use crate::health::sampling::peers::ClockReading;
use crate::health::sampling::series::{GpuSeries, LAST_XID};
use crate::health::{
    HealthConfig, KnownFaults, MonitorContext, Observation, POWER_BRAKE_RULE, Sample, THIS_HOST,
    driver_start, thread,
};
use crate::limits::DRIVER_START_PAUSE;
use crate::metrics;
use crate::topology::PciAddress;

/// The rule about GPU processes that belong to no task.
const FOREIGN: &str = "foreign_proc";
/// The gauge of GPU utilization, in per cent.
const UTILISATION: &str = "DCGM_FI_DEV_GPU_UTIL";
/// The gauge of the SM clock, in MHz.
const CLOCK: &str = "DCGM_FI_DEV_SM_CLOCK";
/// The rule about GPUs that throttle themselves, and its metric for the current state.
const SLOWDOWN: &str = "hw_slowdown";
const SLOWED: &str = "slowed";
/// Sweeps shorter than this are never reported as unfinished.
const LONG_MS: u64 = 10_000;
/// Longest pause after a failed sweep.
const RETRY: Duration = Duration::from_secs(5);

/// The current sweep over all GPUs.
#[derive(Debug)]
pub(super) struct Sweep {
    clock: LeaseClock,
    /// Start in milliseconds of the clock; 0 if none runs.
    began_ms: AtomicU64,
}

impl Sweep {
    /// Silence of a driver, in seconds, that the monitor treats as no answer.
    pub(super) const SILENCE_S: i64 = 120;

    pub(super) const fn new(clock: LeaseClock) -> Self {
        Self {
            clock,
            began_ms: AtomicU64::new(0),
        }
    }

    /// Duration in seconds of a sweep that should have ended.
    pub(super) fn unfinished_s(&self) -> Option<i64> {
        let began_ms = self.began_ms.load(Ordering::Relaxed);
        let took_ms = self.clock.now().0.saturating_sub(began_ms);
        let is_long = began_ms > 0 && took_ms >= LONG_MS;
        is_long.then(|| i64::try_from(took_ms / SECOND_MS).unwrap_or(i64::MAX))
    }

    /// Starts a sweep. After a failed one its start time stays: no complete reading was made since.
    fn begin(&self) {
        if self.began_ms.load(Ordering::Relaxed) == 0 {
            let now_ms = self.clock.now().0.max(1);
            self.began_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Ends the sweep and returns its duration in milliseconds.
    fn end(&self) -> u64 {
        let began_ms = self.began_ms.swap(0, Ordering::Relaxed);
        self.clock.now().0.saturating_sub(began_ms)
    }
}

/// The GPUs that are read.
pub(super) struct Gpus {
    pub(super) described: Vec<GpuDescription>,
    pub(super) addresses: BTreeMap<GpuUuid, PciAddress>,
    pub(super) sensors: Box<dyn GpuSensors>,
    /// Records their utilization.
    pub(super) uses: GpuUsage,
}

/// Starts both threads, each only if there is something to read.
pub(super) fn start(
    config: &HealthConfig,
    context: &MonitorContext,
    gpus: Gpus,
    sweep: Arc<Sweep>,
    known_faults: KnownFaults,
    seen: &Sender<Observation>,
) {
    let Gpus {
        described,
        addresses,
        sensors,
        uses,
    } = gpus;
    let period = Duration::from_millis(config.sample_ms);
    if let Some(root) = config.host() {
        let addresses = addresses.values().copied();
        let host = HostSensors::new(root, &config.expected, &context.data, addresses);
        let (clock, sender) = (context.clock, seen.clone());
        thread("host-health", move || {
            watch_host(host, clock, period, &sender)
        });
    }
    if described.is_empty() {
        return;
    }
    let series = || GpuSeries::new(&context.host, &config.host_root, addresses);
    let watch = GpuWatch {
        gpus: described,
        sensors,
        sweep,
        known_faults,
        series: config.gpu_gauges.then(series),
        uses,
        foreign: ForeignProcesses::of_this_host(&config.host_root),
    };
    let sender = seen.clone();
    thread("gpu-health", move || watch.run(period, &sender));
}

fn watch_host(
    mut sensors: HostSensors,
    clock: LeaseClock,
    period: Duration,
    seen: &Sender<Observation>,
) {
    while !seen.is_closed() {
        let began = clock.now();
        let samples = sensors.read(began);
        metrics::health_sweep("host", Duration::from_millis(clock.now().since(began)));
        // Closed: the agent is ending, and so does this thread.
        drop(seen.blocking_send(Observation::Samples(samples)));
        pause(period);
    }
}

/// Readings of all GPUs on one thread.
struct GpuWatch {
    gpus: Vec<GpuDescription>,
    sensors: Box<dyn GpuSensors>,
    sweep: Arc<Sweep>,
    known_faults: KnownFaults,
    /// Series for graphs, if they are exported.
    series: Option<GpuSeries>,
    uses: GpuUsage,
    foreign: Option<ForeignProcesses>,
}

/// Utilization of a GPU since the last reading, as reported by NVML.
fn busy_permille(read: &GpuReadings) -> Option<u16> {
    let mut gauges = read.gauges.iter();
    let (_, percent) = gauges.find(|(name, _)| name == UTILISATION)?;
    (0.0..=100.0)
        .contains(percent)
        .then_some((percent * 10.0) as u16)
}

/// Input for the comparison with peers, if the driver reports the clock.
fn clocked(gpu: GpuUuid, job: Option<JobId>, read: &GpuReadings) -> Option<ClockReading> {
    let mut gauges = read.gauges.iter();
    let (_, clock_mhz) = gauges.find(|(name, _)| name == CLOCK)?;
    let slowed = |(metric, value): &(String, i64)| metric == SLOWED && *value != 0;
    let mut samples = read.samples.iter();
    Some(ClockReading {
        gpu,
        job,
        busy_permille: busy_permille(read),
        // Clocks are a few thousand at most.
        clock_mhz: *clock_mhz as u32,
        is_slowed: samples.any(|(rule, metrics)| rule == SLOWDOWN && metrics.iter().any(slowed)),
    })
}

impl GpuWatch {
    fn run(mut self, period: Duration, seen: &Sender<Observation>) {
        let mut did_not_start = false;
        while !seen.is_closed() {
            match self.sweep() {
                // Closed: the agent is ending, and so does this thread.
                Ok(mut samples) => {
                    let starts_again = std::mem::take(&mut did_not_start);
                    samples.extend(starts_again.then(|| driver_start::sample(0)));
                    drop(seen.blocking_send(Observation::Samples(samples)));
                }
                // It counts as unfinished, which the rule evaluation detects.
                Err(error) => {
                    tracing::warn!(%error, "reading the GPUs failed");
                    if let GpuError::DriverDoesNotStart(why) = &error {
                        did_not_start = true;
                        drop(seen.blocking_send(driver_start::failed(why)));
                        pause(period.min(DRIVER_START_PAUSE));
                    } else {
                        pause(period.min(RETRY));
                    }
                    continue;
                }
            }
            pause(period);
        }
    }

    fn sweep(&mut self) -> Result<Vec<Sample>, GpuError> {
        self.sweep.begin();
        let (mut read_of_gpus, mut clocks) = (Vec::new(), Vec::new());
        for gpu in &self.gpus {
            let now = self.sweep.clock.now();
            let read = self.sensors.read(gpu, now)?;
            if let Some(busy_permille) = busy_permille(&read) {
                self.uses.read(gpu.uuid, now, busy_permille);
            }
            clocks.extend(clocked(gpu.uuid, self.uses.job_of(gpu.uuid), &read));
            if let (Some(foreign), Some(processes)) = (&self.foreign, &read.processes) {
                let metrics = [("processes", foreign.count(processes))];
                let of_gpu = Component::Gpu(gpu.uuid);
                read_of_gpus.push(Sample::new(FOREIGN, of_gpu, &metrics));
            }
            let of_gpu = read.samples.into_iter();
            read_of_gpus.extend(of_gpu.map(|(rule, metrics)| Sample {
                rule,
                component: Component::Gpu(gpu.uuid),
                metrics,
            }));
            if let Some(series) = &mut self.series {
                let last_xid = f64::from(self.known_faults.last_code(gpu.uuid));
                series.show(gpu, LAST_XID.to_owned(), last_xid);
                for (name, value) in read.gauges {
                    series.show(gpu, name, value);
                }
            }
        }
        let mut samples = pairs_of_host(brake_of_host(read_of_gpus));
        samples.extend(peers::compare(&clocks));
        let took_ms = self.sweep.end();
        metrics::health_sweep("gpus", Duration::from_millis(took_ms));
        let sweep_ms = i64::try_from(took_ms).unwrap_or(i64::MAX);
        let metrics = [("sweep_ms", sweep_ms), ("unfinished_s", 0)];
        samples.push(Sample::new("nvml_latency", THIS_HOST, &metrics));
        Ok(samples)
    }
}

/// Merges power readings into one of the host: it is braked if any of its GPUs is.
fn brake_of_host(samples: Vec<Sample>) -> Vec<Sample> {
    let (brakes, mut samples): (Vec<Sample>, Vec<Sample>) = samples
        .into_iter()
        .partition(|sample| sample.rule == POWER_BRAKE_RULE);
    let metrics = brakes.into_iter().flat_map(|sample| sample.metrics);
    let worst = metrics.map(|(_, braked)| braked).max();
    let of_host = |braked| Sample::new(POWER_BRAKE_RULE, THIS_HOST, &[("braked", braked)]);
    samples.extend(worst.map(of_host));
    samples
}

/// Sums the link pairs of GPUs for the host: each pair is reported by one GPU.
fn pairs_of_host(samples: Vec<Sample>) -> Vec<Sample> {
    let (pairs, mut samples): (Vec<Sample>, Vec<Sample>) = samples
        .into_iter()
        .partition(|sample| sample.rule == PAIRS_RULE);
    let sum = |wanted: &str| {
        let metrics = pairs.iter().flat_map(|sample| &sample.metrics);
        let of = metrics.filter(|(metric, _)| metric == wanted);
        of.map(|(_, count)| count).sum::<i64>()
    };
    let metrics = [GOOD_PAIRS, BAD_PAIRS].map(|metric| (metric, sum(metric)));
    samples.extend((!pairs.is_empty()).then(|| Sample::new(PAIRS_RULE, THIS_HOST, &metrics)));
    samples
}

/// Waits for the next sweep, slightly less than the period, so that hosts started together do not read in
/// step.
pub(super) fn pause(period: Duration) {
    std::thread::park_timeout(period - jitter(period / 10));
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_model::time::MonotonicMs;
    use muster_supervisor::testing::eventually;

    use super::*;

    /// Sensors that can be read from a given time on.
    struct LateSensors(MonotonicMs);

    impl GpuSensors for LateSensors {
        fn read(&mut self, _: &GpuDescription, now: MonotonicMs) -> Result<GpuReadings, GpuError> {
            if now < self.0 {
                return Err(GpuError::HelperHangs(7));
            }
            Ok(GpuReadings::default())
        }
    }

    #[test]
    fn a_host_is_braked_if_a_gpu_of_it_is() {
        let of_gpu = |gpu, rule: &str, metric: &str, value| {
            Sample::new(rule, Component::Gpu(GpuUuid(gpu)), &[(metric, value)])
        };
        let samples = |second| {
            brake_of_host(vec![
                of_gpu(1, "power_brake", "braked", 0),
                of_gpu(1, "temp_core", "over_max_c", -5),
                of_gpu(2, "power_brake", "braked", second),
            ])
        };
        for braked in [0, 1] {
            let of_host = Sample::new("power_brake", THIS_HOST, &[("braked", braked)]);
            let expected = [of_gpu(1, "temp_core", "over_max_c", -5), of_host];
            assert_eq!(samples(braked), expected);
        }
        assert!(brake_of_host(Vec::new()).is_empty(), "nothing was read");
    }

    #[test]
    fn pairs_are_summed_up_for_the_host() {
        let of_gpu = |gpu, good, bad| {
            let metrics = [(GOOD_PAIRS, good), (BAD_PAIRS, bad)];
            Sample::new(PAIRS_RULE, Component::Gpu(GpuUuid(gpu)), &metrics)
        };
        let summed = pairs_of_host(vec![of_gpu(1, 2, 1), of_gpu(2, 3, 0)]);
        let metrics = [(GOOD_PAIRS, 5), (BAD_PAIRS, 1)];
        assert_eq!(summed, [Sample::new("p2p", THIS_HOST, &metrics)]);
        assert!(pairs_of_host(Vec::new()).is_empty(), "nothing was read");
    }

    #[test]
    fn the_clock_of_a_gpu_is_compared_unless_it_is_throttled() {
        let mut read = GpuReadings::default();
        assert!(clocked(GpuUuid(1), Some(JobId(7)), &read).is_none());
        read.gauges = vec![(CLOCK.to_owned(), 1_980.0), (UTILISATION.to_owned(), 97.0)];
        let figures = |read: &GpuReadings| {
            let it = clocked(GpuUuid(1), Some(JobId(7)), read).unwrap();
            (it.clock_mhz, it.busy_permille, it.is_slowed)
        };
        assert_eq!(figures(&read), (1_980, Some(970), false));
        for (slowed, is_slowed) in [(0, false), (1, true)] {
            let metrics = vec![("slowed_busy".to_owned(), 1), (SLOWED.to_owned(), slowed)];
            read.samples = vec![(SLOWDOWN.to_owned(), metrics)];
            assert_eq!(figures(&read).2, is_slowed);
        }
    }

    #[test]
    fn a_sweep_that_failed_is_unfinished_until_one_succeeds_and_took_as_long() {
        let clock = LeaseClock::start();
        let mut watch = GpuWatch {
            gpus: vec![GpuDescription {
                uuid: GpuUuid(1),
                index: 0,
                model: "H100".to_owned(),
                memory_mib: 81_920,
            }],
            sensors: Box::new(LateSensors(MonotonicMs(u64::MAX))),
            sweep: Arc::new(Sweep::new(clock)),
            known_faults: KnownFaults::default(),
            series: None,
            uses: GpuUsage::default(),
            foreign: None,
        };
        assert!(watch.sweep().is_err());
        let began_ms = watch.sweep.began_ms.load(Ordering::Relaxed);
        assert!(began_ms > 0);
        eventually("some time later", || clock.now().0 >= began_ms + 20);
        assert!(watch.sweep().is_err());
        assert_eq!(watch.sweep.began_ms.load(Ordering::Relaxed), began_ms);
        watch.sensors = Box::new(LateSensors(MonotonicMs(0)));
        let samples = watch.sweep().unwrap();
        assert!(samples[0].metrics[0].1 >= 20, "{samples:?}");
        assert_eq!(watch.sweep.began_ms.load(Ordering::Relaxed), 0);
    }
}
