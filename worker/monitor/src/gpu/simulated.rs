//! Simulated GPUs for demos, tests and development on machines without any.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_supervisor::DeviceNumber;
use muster_supervisor::lease::clock::LeaseClock;

use crate::gpu::sensors::SimulatedSensors;
use crate::gpu::timeline::{Effect, Timeline};
use crate::gpu::{GpuBackend, GpuError, GpuMemory, GpuSensors, HealthChange};
use crate::limits::INJECTIONS_WAITING_MAX;
use crate::topology::PciAddress;

/// Simulated GPUs whose health follows a timeline and an admin's orders.
#[derive(Debug)]
pub struct SimulatedBackend {
    gpus: Vec<GpuDescription>,
    addresses: BTreeMap<GpuUuid, PciAddress>,
    timeline: Timeline,
    used: SimulatedMemory,
    sensors: SimulatedSensors,
    clock: LeaseClock,
    opened_ms: u64,
    injected: Receiver<HealthChange>,
    injector: SyncSender<HealthChange>,
}

impl SimulatedBackend {
    /// `count` GPUs of one model; their UUIDs are derived from the host's name and their index, so they are
    /// the same after a restart.
    #[must_use]
    pub fn new(host: &str, count: u32, model: &str, memory_mib: u64, timeline: Timeline) -> Self {
        let gpus = (0..count)
            .map(|index| GpuDescription {
                uuid: simulated_uuid(host, index),
                index,
                model: model.to_owned(),
                memory_mib,
            })
            .collect();
        let (injector, injected) = sync_channel(INJECTIONS_WAITING_MAX);
        let clock = LeaseClock::start();
        Self {
            gpus,
            addresses: BTreeMap::new(),
            timeline,
            used: SimulatedMemory::default(),
            sensors: SimulatedSensors::default(),
            opened_ms: clock.now().0,
            clock,
            injected,
            injector,
        }
    }

    /// Sets the PCI addresses of the first GPUs.
    ///
    /// # Errors
    /// If an address is invalid.
    pub fn with_pci_addresses(mut self, addresses: &[String]) -> Result<Self, GpuError> {
        for (index, (gpu, address)) in self.gpus.iter().zip(addresses).enumerate() {
            let address = address
                .parse()
                .map_err(|source| GpuError::Address { index, source })?;
            self.addresses.insert(gpu.uuid, address);
        }
        Ok(self)
    }

    fn elapsed_ms(&self) -> u64 {
        self.clock.now().0 - self.opened_ms
    }

    fn due(&mut self) -> Vec<HealthChange> {
        let elapsed_ms = self.elapsed_ms();
        let due = self.timeline.due(elapsed_ms).into_iter();
        due.filter_map(|event| {
            let gpu = self.gpus.get(event.gpu)?.uuid;
            match event.effect {
                Effect::Health(health) => Some((gpu, health)),
                Effect::MemoryMib(used_mib) => {
                    self.used.lock().insert(gpu, used_mib);
                    None
                }
                Effect::Metric(name, value) => {
                    self.sensors.set(gpu, name, value);
                    None
                }
            }
        })
        .collect()
    }

    /// Time to wait for an order before the timeline is due again.
    fn wait_max(&self, wait: Duration) -> Duration {
        let next = self.timeline.next_ms();
        let until =
            next.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(self.elapsed_ms())));
        until.map_or(wait, |until| until.min(wait))
    }
}

impl GpuBackend for SimulatedBackend {
    fn inventory(&self) -> &[GpuDescription] {
        &self.gpus
    }

    fn pci_addresses(&self) -> BTreeMap<GpuUuid, PciAddress> {
        self.addresses.clone()
    }

    fn device_numbers(&self) -> BTreeMap<GpuUuid, DeviceNumber> {
        BTreeMap::new()
    }

    fn memory(&self) -> Arc<dyn GpuMemory> {
        Arc::new(self.used.clone())
    }

    fn sensors(&self) -> Box<dyn GpuSensors> {
        Box::new(self.sensors.clone())
    }

    fn observe(&mut self, wait: Duration) -> Result<Vec<HealthChange>, GpuError> {
        let mut changes = Vec::new();
        match self.injected.recv_timeout(self.wait_max(wait)) {
            Ok(change) => changes.push(change),
            // The backend holds a sender itself, so the channel is never closed.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        changes.extend(self.injected.try_iter());
        changes.extend(self.due());
        Ok(changes)
    }

    fn ecc_counts(&self) -> BTreeMap<GpuUuid, u64> {
        BTreeMap::new()
    }

    fn injector(&self) -> SyncSender<HealthChange> {
        self.injector.clone()
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// MiB in use according to the timeline; none if it does not set them.
#[derive(Clone, Debug, Default)]
struct SimulatedMemory(Arc<Mutex<BTreeMap<GpuUuid, u64>>>);

impl SimulatedMemory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GpuMemory for SimulatedMemory {
    fn used(&self, gpu: GpuUuid) -> Result<(u64, String), GpuError> {
        let used_mib = self.lock().get(&gpu).copied().unwrap_or(0);
        Ok((used_mib, "by the timeline".to_owned()))
    }
}

/// FNV-1a with 128 bits: a well-known hash whose values never change.
fn simulated_uuid(host: &str, index: u32) -> GpuUuid {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = host.bytes().chain([0]).chain(index.to_le_bytes());
    GpuUuid(bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_model::command::GpuHealth;

    use super::*;
    use crate::gpu::faulted;

    const NO_WAIT: Duration = Duration::ZERO;

    fn backend(timeline: &str) -> SimulatedBackend {
        let timeline = Timeline::parse(timeline).unwrap();
        SimulatedBackend::new("host-1", 8, "H100", 81_920, timeline)
    }

    #[test]
    fn uuids_are_stable_and_distinct() {
        let uuids: std::collections::BTreeSet<GpuUuid> = ["a", "b", "ab"]
            .iter()
            .flat_map(|host| (0..8).map(|index| simulated_uuid(host, index)))
            .collect();
        assert_eq!(uuids.len(), 24);
        assert_eq!(backend("").gpus, backend("").gpus);
    }

    #[test]
    fn the_timeline_and_an_order_both_show() {
        let mut backend = backend("0,2,xid-79");
        let (second, fifth) = (backend.gpus[2].uuid, backend.gpus[5].uuid);
        let order = (fifth, faulted("ecc-uncorrectable", "by an admin"));
        backend.injector().send(order.clone()).unwrap();
        let changes = backend.observe(NO_WAIT).unwrap();
        assert_eq!(
            changes,
            vec![order, (second, faulted("xid-79", "from the timeline"))]
        );
        assert_eq!(backend.observe(NO_WAIT).unwrap(), vec![]);
    }

    #[test]
    fn metrics_are_read_from_the_moment_on_at_which_the_timeline_sets_them() {
        let mut backend = backend(
            "0,2,metric:temp_core.over_max_c,-9\n0,2,metric:temp_core.over_max_c,3\n0,2,metric:DCGM_FI_DEV_GPU_TEMP,90",
        );
        let mut sensors = backend.sensors();
        let gpus = backend.inventory().to_vec();
        let now = muster_model::time::MonotonicMs(1);
        assert_eq!(sensors.read(&gpus[2], now).unwrap().samples, vec![]);
        assert_eq!(backend.observe(NO_WAIT).unwrap(), vec![]);
        let readings = sensors.read(&gpus[2], now).unwrap();
        let metrics = vec![("over_max_c".to_owned(), 3)];
        assert_eq!(readings.samples, vec![("temp_core".to_owned(), metrics)]);
        assert_eq!(
            readings.gauges,
            vec![("DCGM_FI_DEV_GPU_TEMP".to_owned(), 90.0)]
        );
        assert_eq!(sensors.read(&gpus[3], now).unwrap().samples, vec![]);
    }

    #[test]
    fn a_fault_heals() {
        let mut backend = backend("0,2,xid-79\n1,2,heal");
        let mut last = None;
        while last != Some(GpuHealth::Healthy) {
            for (_, health) in backend.observe(Duration::from_millis(5)).unwrap() {
                last = Some(health);
            }
        }
    }
}
