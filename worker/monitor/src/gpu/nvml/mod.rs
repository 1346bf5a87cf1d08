//! Real GPUs through NVIDIA's management library, which is loaded at run time.
//!
//! NVML's events lose XIDs that come fast (only the last one is reported), so each sweep also queries every
//! GPU directly. The rules decide on XIDs: all are passed on, and none makes a GPU unfit by itself. Other
//! faults are read by `sensors` and from the kernel's log, and are evaluated by the health rules as
//! well.

mod gauges;
mod pairs;
mod sensors;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::ids::GpuUuid;
use muster_supervisor::DeviceNumber;
use muster_supervisor::lease::clock::LeaseClock;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
pub(crate) use pairs::{BAD_PAIRS, GOOD_PAIRS, PAIRS_RULE};
use sensors::NvmlSensors;

use crate::gpu::{GpuBackend, GpuError, GpuMemory, GpuSensors, HealthChange, XidEvent, faulted};
use crate::limits::INJECTIONS_WAITING_MAX;
use crate::topology::PciAddress;

/// Interval between sweeps over all GPUs: the shortest that NVIDIA's own tools use for these fields.
const SWEEP_MS: u64 = 30_000;

/// GPUs that NVML lists.
pub struct NvmlBackend {
    nvml: &'static Nvml,
    gpus: Vec<GpuDescription>,
    events: Option<EventSet<'static>>,
    clock: LeaseClock,
    next_sweep_ms: u64,
    /// Uncorrected ECC errors when the backend was opened or the GPU repaired: the driver counts them since
    /// its own start.
    ecc_before: BTreeMap<GpuUuid, u64>,
    /// XIDs not taken yet.
    xids: Vec<XidEvent>,
    /// Last reported health of each GPU, if any.
    shown: BTreeMap<GpuUuid, GpuHealth>,
    /// GPUs that an admin declares repaired.
    repaired: Receiver<HealthChange>,
    injector: SyncSender<HealthChange>,
}

impl NvmlBackend {
    /// Loads the library and lists the GPUs that answer. A GPU that does not answer is left out: the
    /// cluster shows a known GPU that is not listed as missing, and tasks on the others continue.
    /// Uncorrected ECC errors beyond `ecc_counts` are new; for GPUs without a count, those from now on.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`] if there is no driver, [`GpuError::DriverDoesNotStart`] if it does not start;
    /// else the reason why it cannot count the GPUs.
    pub fn open(ecc_counts: &BTreeMap<GpuUuid, u64>) -> Result<Self, GpuError> {
        let library = Nvml::init().map_err(|error| not_started(&error))?;
        // Leaked once per process: event sets borrow it for as long as the monitor lives.
        let nvml: &'static Nvml = Box::leak(Box::new(library));
        let count = nvml.device_count().map_err(asking("the number of GPUs"))?;
        let gpus = answering(count, |index| describe(nvml, index));
        let (injector, repaired) = sync_channel(INJECTIONS_WAITING_MAX);
        let mut backend = Self {
            nvml,
            gpus,
            events: None,
            clock: LeaseClock::start(),
            next_sweep_ms: 0,
            ecc_before: BTreeMap::new(),
            xids: Vec::new(),
            shown: BTreeMap::new(),
            repaired,
            injector,
        };
        backend.ecc_before = ecc_baseline(ecc_counts, backend.count_ecc());
        backend.events = backend.subscribe();
        Ok(backend)
    }

    /// Events only make detection faster: without them sweeps still find faults.
    fn subscribe(&self) -> Option<EventSet<'static>> {
        let mut events = self.nvml.create_event_set().ok()?;
        for gpu in &self.gpus {
            // A GPU that was lost meanwhile or offers no events must not cost the others theirs.
            let Ok(device) = self.nvml.device_by_index(gpu.index) else {
                continue;
            };
            let offers = device
                .supported_event_types()
                .is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR));
            if offers {
                events = device
                    .register_events(EventTypes::CRITICAL_XID_ERROR, events)
                    .ok()?;
            }
        }
        Some(events)
    }

    /// Drops the reported faults of repaired GPUs; if one is not repaired, the next sweep reports it again.
    fn take_repaired(&mut self) -> Vec<HealthChange> {
        let repaired: Vec<HealthChange> = self.repaired.try_iter().collect();
        if !repaired.is_empty() {
            let errors = self.count_ecc();
            for (gpu, _) in &repaired {
                self.shown.remove(gpu);
                if let Some(count) = errors.get(gpu) {
                    self.ecc_before.insert(*gpu, *count);
                }
            }
            self.next_sweep_ms = 0;
        }
        repaired
    }

    fn count_ecc(&self) -> BTreeMap<GpuUuid, u64> {
        let count = |gpu: &GpuDescription| {
            let device = self.nvml.device_by_uuid(gpu.uuid.to_string()).ok()?;
            let errors = device
                .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
                .ok()?;
            Some((gpu.uuid, errors))
        };
        self.gpus.iter().filter_map(count).collect()
    }

    /// Waits for an XID if the driver offers events; else waits until the next sweep.
    fn wait_for_event(&self, wait: Duration) -> Option<XidEvent> {
        let Some(events) = &self.events else {
            std::thread::park_timeout(wait);
            return None;
        };
        let timeout_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        // A timeout is an error to NVML; a real one shows in the next sweep.
        let event = events.wait(timeout_ms).ok()?;
        let uuid = event.device.uuid().ok()?.parse().ok()?;
        match event.event_data? {
            XidError::Value(code) => Some((uuid, u32::try_from(code).ok()?)),
            XidError::Unknown => {
                tracing::warn!(gpu = %uuid, "the driver reports an error of a GPU without an XID");
                None
            }
        }
    }

    fn sweep(&self) -> Vec<HealthChange> {
        self.gpus
            .iter()
            .filter_map(|gpu| Some((gpu.uuid, self.examine(gpu)?)))
            .collect()
    }

    /// The current fault of a GPU, if any.
    fn examine(&self, gpu: &GpuDescription) -> Option<GpuHealth> {
        let device = match self.nvml.device_by_uuid(gpu.uuid.to_string()) {
            Ok(device) => device,
            Err(error) => return Some(health_of(&error)),
        };
        if let Err(error) = device.memory_info() {
            return Some(health_of(&error));
        }
        match device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile) {
            Ok(errors) => {
                let before = self.ecc_before.get(&gpu.uuid).copied().unwrap_or(0);
                (errors > before).then(|| {
                    let new = errors - before;
                    faulted(
                        "ecc-uncorrectable",
                        format!("{new} new uncorrected ECC errors"),
                    )
                })
            }
            Err(NvmlError::NotSupported | NvmlError::NoPermission) => None,
            Err(error) => Some(health_of(&error)),
        }
    }
}

impl GpuBackend for NvmlBackend {
    fn inventory(&self) -> &[GpuDescription] {
        &self.gpus
    }

    fn pci_addresses(&self) -> BTreeMap<GpuUuid, PciAddress> {
        let address = |gpu: &GpuDescription| {
            let device = self.nvml.device_by_uuid(gpu.uuid.to_string()).ok()?;
            let bus_id = device.pci_info().ok()?.bus_id;
            let address = bus_id.parse().inspect_err(
                |error| tracing::warn!(gpu = %gpu.uuid, %error, "the PCI address of a GPU is unknown"),
            );
            Some((gpu.uuid, address.ok()?))
        };
        self.gpus.iter().filter_map(address).collect()
    }

    fn device_numbers(&self) -> BTreeMap<GpuUuid, DeviceNumber> {
        let number = |gpu: &GpuDescription| {
            let device = self.nvml.device_by_uuid(gpu.uuid.to_string()).ok()?;
            let minor = device.minor_number().ok()?;
            let found = rustix::fs::stat(format!("/dev/nvidia{minor}")).ok()?;
            let number = DeviceNumber {
                major: rustix::fs::major(found.st_rdev),
                minor: rustix::fs::minor(found.st_rdev),
            };
            Some((gpu.uuid, number))
        };
        self.gpus.iter().filter_map(number).collect()
    }

    fn memory(&self) -> Arc<dyn GpuMemory> {
        Arc::new(NvmlMemory(self.nvml))
    }

    fn sensors(&self) -> Box<dyn GpuSensors> {
        Box::new(NvmlSensors::new(self.nvml))
    }

    fn observe(&mut self, wait: Duration) -> Result<Vec<HealthChange>, GpuError> {
        let mut changes = self.take_repaired();
        if let Some(xid) = self.wait_for_event(wait) {
            self.xids.push(xid);
        }
        let now_ms = self.clock.now().0;
        if now_ms >= self.next_sweep_ms {
            self.next_sweep_ms = now_ms + SWEEP_MS;
            changes.extend(self.sweep());
        }
        // A fault stays until the host reboots or the GPU is declared repaired, even if the driver answers
        // meanwhile.
        changes.retain(|(gpu, health)| {
            self.shown.insert(*gpu, health.clone()).as_ref() != Some(health)
        });
        Ok(changes)
    }

    fn take_xids(&mut self) -> Vec<XidEvent> {
        std::mem::take(&mut self.xids)
    }

    fn ecc_counts(&self) -> BTreeMap<GpuUuid, u64> {
        self.ecc_before.clone()
    }

    fn injector(&self) -> SyncSender<HealthChange> {
        self.injector.clone()
    }

    fn is_simulated(&self) -> bool {
        false
    }
}

/// Used memory according to NVML.
struct NvmlMemory(&'static Nvml);

impl GpuMemory for NvmlMemory {
    fn used(&self, gpu: GpuUuid) -> Result<(u64, String), GpuError> {
        let device = self
            .0
            .device_by_uuid(gpu.to_string())
            .map_err(asking("a GPU"))?;
        let used = device.memory_info().map_err(asking("a GPU's memory"))?.used;
        // Process names are only informative: some drivers do not list them.
        let processes = device.running_compute_processes().unwrap_or_default();
        let named: Vec<String> = processes
            .iter()
            .map(|process| name_of(process.pid))
            .collect();
        let by = match named.as_slice() {
            [] => "by no process that the driver lists".to_owned(),
            named => format!("by {}", named.join(", ")),
        };
        Ok((used >> 20, by))
    }
}

/// Baseline of ECC errors: the earlier counts, or lower ones if the driver was restarted since.
fn ecc_baseline(
    before: &BTreeMap<GpuUuid, u64>,
    mut counts: BTreeMap<GpuUuid, u64>,
) -> BTreeMap<GpuUuid, u64> {
    for (gpu, count) in &mut counts {
        *count = before
            .get(gpu)
            .map_or(*count, |before| (*count).min(*before));
    }
    counts
}

/// Process id and name for messages.
fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

/// Error for a library that is missing or does not initialize.
fn not_started(error: &NvmlError) -> GpuError {
    let why = error.to_string();
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => GpuError::NoDriver(why),
        _ => GpuError::DriverDoesNotStart(why),
    }
}

fn asking(what: &'static str) -> impl FnOnce(NvmlError) -> GpuError {
    move |source| GpuError::Nvml { what, source }
}

/// Descriptions of those of `count` GPUs that answer, in index order.
fn answering(
    count: u32,
    describe: impl Fn(u32) -> Result<GpuDescription, GpuError>,
) -> Vec<GpuDescription> {
    let described = |index| {
        describe(index)
            .inspect_err(|error| {
                let cause = error.source().map(ToString::to_string);
                tracing::error!(index, %error, cause, "a GPU does not answer and is not offered");
            })
            .ok()
    };
    (0..count).filter_map(described).collect()
}

fn describe(nvml: &Nvml, index: u32) -> Result<GpuDescription, GpuError> {
    let device = nvml.device_by_index(index).map_err(asking("a GPU"))?;
    let uuid = device.uuid().map_err(asking("a GPU's UUID"))?;
    Ok(GpuDescription {
        uuid: uuid.parse().map_err(|_| GpuError::Uuid(uuid))?,
        index,
        model: device.name().map_err(asking("a GPU's model"))?,
        memory_mib: device
            .memory_info()
            .map_err(asking("a GPU's memory"))?
            .total
            >> 20,
    })
}

/// The health of a GPU after an error of a call.
fn health_of(error: &NvmlError) -> GpuHealth {
    // Codes 27 and 28 (not ready, not found) have no name in the wrapper.
    let signal = match error {
        NvmlError::GpuLost | NvmlError::NotFound | NvmlError::UnexpectedVariant(28) => "gpu-lost",
        NvmlError::ResetRequired => "reset-required",
        NvmlError::LibRmVersionMismatch => "driver-version-mismatch",
        NvmlError::CorruptedInfoROM => "inforom-corrupt",
        _ => "nvml-error",
    };
    faulted(signal, error.to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn errors_become_signals() {
        for (error, expected) in [
            (NvmlError::GpuLost, "gpu-lost"),
            (NvmlError::UnexpectedVariant(28), "gpu-lost"),
            (NvmlError::ResetRequired, "reset-required"),
            (NvmlError::Unknown, "nvml-error"),
        ] {
            let health = health_of(&error);
            assert!(
                matches!(&health, GpuHealth::Faulted { signal, .. } if signal == expected),
                "{health:?}"
            );
        }
    }

    #[test]
    fn a_lost_gpu_is_left_out_and_the_others_are_listed() {
        let gpus = answering(4, |index| {
            if index == 2 {
                return Err(asking("a GPU")(NvmlError::GpuLost));
            }
            Ok(GpuDescription {
                uuid: GpuUuid(u128::from(index)),
                index,
                model: "H100".to_owned(),
                memory_mib: 81_920,
            })
        });
        let listed: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
        assert_eq!(listed, vec![0, 1, 3]);
    }

    #[test]
    fn errors_since_the_last_query_are_new_unless_the_counter_was_reset() {
        let [known, reloaded, unknown] = [1, 2, 3].map(GpuUuid);
        let before: BTreeMap<GpuUuid, u64> = [(known, 4), (reloaded, 9)].into();
        let now = [(known, 6), (reloaded, 1), (unknown, 7)].into();
        let expected: BTreeMap<GpuUuid, u64> = [(known, 4), (reloaded, 1), (unknown, 7)].into();
        assert_eq!(ecc_baseline(&before, now), expected);
    }

    #[test]
    fn a_missing_library_is_distinguished_from_a_driver_that_does_not_start() {
        let of = |error: NvmlError| match not_started(&error) {
            GpuError::NoDriver(_) => "none",
            GpuError::DriverDoesNotStart(why) if !why.is_empty() => "does not start",
            _ => "another error",
        };
        assert_eq!(of(NvmlError::LibraryNotFound), "none");
        assert_eq!(of(NvmlError::DriverNotLoaded), "does not start");
        assert_eq!(of(NvmlError::Unknown), "does not start");
    }

    #[test]
    fn a_host_without_a_driver_reports_that_and_one_with_it_lists_its_gpus() {
        match NvmlBackend::open(&BTreeMap::new()) {
            Err(GpuError::NoDriver(_) | GpuError::DriverDoesNotStart(_)) => {}
            opened => assert_eq!(opened.unwrap().observe(Duration::ZERO).unwrap(), vec![]),
        }
    }
}
