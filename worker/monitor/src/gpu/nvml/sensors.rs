//! NVML readings of GPUs for the health rules and for graphs.
//!
//! A GPU or a driver that does not offer a reading costs one refused call per sweep. Values without a safe
//! call in the wrapper (temperature margin, fabric, error rates of links) are not read.

use std::collections::BTreeMap;

use muster_health::evaluate::pcie_replay_limit_per_minute;
use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    EccCounter, MemoryError, MemoryLocation, PerformancePolicy, PerformanceState, RetirementCause,
    TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

use crate::gpu::GpuError;
use crate::gpu::nvml::gauges;
use crate::gpu::nvml::pairs::Pairs;
use crate::gpu::sensors::{GpuReadings, GpuSensors};
use crate::health::{POWER_BRAKE_RULE, RECOVERY_RULES};
use crate::rates::{GrowthTracker, Rate, permille};

/// Rows remapped for corrected errors; rows remapped for uncorrected ones; remapping pending; remapping
/// failed.
pub(super) const REMAP_FIELDS: [u32; 4] = [142, 143, 144, 145];
/// Recovery action that the driver recommends.
const RECOVERY_FIELD: u32 = 230;
/// Temperature of the memory.
const MEMORY_TEMPERATURE_FIELD: u32 = 82;
/// Largest number of NVLinks of a GPU.
pub(super) const LINKS_MAX: u32 = 18;
/// Utilization in per cent from which on a GPU counts as busy: below, clocks and links are reduced.
const BUSY_PERCENT: u32 = 90;

/// Sensors read through NVML.
pub(super) struct NvmlSensors {
    nvml: &'static Nvml,
    gpus: BTreeMap<GpuUuid, PreviousReadings>,
    pairs: Pairs,
}

/// Previous readings of a GPU.
#[derive(Default)]
struct PreviousReadings {
    replays: Rate,
    link_replays: Rate,
    link_errors: Rate,
    throttled_ns: Rate,
    double_bit_pages: GrowthTracker,
    /// Links that were active at some time.
    links: Vec<u32>,
}

impl NvmlSensors {
    pub(super) const fn new(nvml: &'static Nvml) -> Self {
        Self {
            nvml,
            gpus: BTreeMap::new(),
            pairs: Pairs::new(),
        }
    }
}

impl GpuSensors for NvmlSensors {
    fn read(&mut self, gpu: &GpuDescription, now: MonotonicMs) -> Result<GpuReadings, GpuError> {
        let mut readings = GpuReadings::default();
        // A lost GPU is reported by the backend.
        let Ok(device) = self.nvml.device_by_uuid(gpu.uuid.to_string()) else {
            return Ok(readings);
        };
        let before = self.gpus.entry(gpu.uuid).or_default();
        let used_percent = device.utilization_rates().map_or(0, |used| used.gpu);
        let mut sweep = GpuSweep {
            device: &device,
            now,
            is_busy: used_percent >= BUSY_PERCENT,
            readings: &mut readings,
        };
        sweep.memory_errors(before);
        sweep.remapped_rows();
        sweep.modes();
        sweep.temperatures();
        sweep.power_and_clocks(before);
        sweep.pcie(before);
        sweep.links(before);
        self.pairs
            .read(self.nvml, &device, gpu.index, &mut readings);
        gauges::read(&device, &mut readings);
        let processes = device.running_compute_processes().ok();
        readings.processes = processes.map(|all| all.iter().map(|process| process.pid).collect());
        Ok(readings)
    }
}

/// One sweep of one GPU.
struct GpuSweep<'a> {
    device: &'a Device<'static>,
    now: MonotonicMs,
    is_busy: bool,
    readings: &'a mut GpuReadings,
}

impl GpuSweep<'_> {
    fn sample(&mut self, rule: &str, metrics: &[(&str, i64)]) {
        self.readings.sample(rule, metrics);
    }

    /// A field's value, if the GPU has it.
    fn field(&self, id: u32) -> Option<i64> {
        field(self.device, id)
    }

    fn memory_errors(&mut self, before: &mut PreviousReadings) {
        let corrected = |location| {
            let kind = (MemoryError::Corrected, EccCounter::Volatile);
            self.device.memory_error_counter(kind.0, kind.1, location)
        };
        let (dram, sram) = (
            corrected(MemoryLocation::Device),
            corrected(MemoryLocation::SRAM),
        );
        if let Ok(errors) = dram {
            self.sample("ecc_cor_dram", &[("errors", wide(errors))]);
        }
        if let Ok(errors) = sram {
            self.sample("ecc_cor_sram", &[("errors", wide(errors))]);
        }
        let retired = |cause| self.device.retired_pages(cause).map(|pages| pages.len());
        let single = retired(RetirementCause::MultipleSingleBitEccErrors);
        let double = retired(RetirementCause::DoubleBitEccError);
        if let (Ok(single), Ok(double)) = (single, double) {
            let pending = self.device.are_pages_pending_retired().unwrap_or(false);
            let growing = before.double_bit_pages.read(self.now, double);
            let metrics = [
                ("pending", i64::from(pending)),
                ("pages", count(single + double)),
                ("double_bit_pages", count(double)),
                ("growing_double_bit_pages", growing),
            ];
            self.sample("retired_pages", &metrics);
        }
    }

    fn remapped_rows(&mut self) {
        let [corrected, uncorrected, pending, failure] = REMAP_FIELDS.map(|id| self.field(id));
        let rules = [
            ("remap_cor", "rows", corrected),
            ("remap_unc", "rows", uncorrected),
            ("remap_pending", "pending", pending),
            ("remap_failure", "failure", failure),
        ];
        for (rule, metric, value) in rules {
            if let Some(value) = value {
                self.sample(rule, &[(metric, value)]);
            }
        }
        if let Some(action) = self.field(RECOVERY_FIELD) {
            for rule in RECOVERY_RULES {
                self.sample(rule, &[("action", action)]);
            }
        }
    }

    fn modes(&mut self) {
        if let Ok(mode) = self.device.is_ecc_enabled() {
            let differs = mode.currently_enabled != mode.pending_enabled;
            self.sample("ecc_mode", &[("differs", i64::from(differs))]);
        }
        if let Ok(mode) = self.device.mig_mode() {
            let differs = mode.current != mode.pending;
            self.sample("mig_mode", &[("differs", i64::from(differs))]);
        }
        if let Ok(is_on) = self.device.is_in_persistent_mode() {
            self.sample("persistence", &[("off", i64::from(!is_on))]);
        }
    }

    fn temperatures(&mut self) {
        let threshold = |of| self.device.temperature_threshold(of).ok().map(i64::from);
        let (max, shutdown, memory_max) = (
            threshold(TemperatureThreshold::GpuMax),
            threshold(TemperatureThreshold::Shutdown),
            threshold(TemperatureThreshold::MemoryMax),
        );
        if let Ok(read) = self.device.temperature(TemperatureSensor::Gpu) {
            let read = i64::from(read);
            let over = max.map(|max| ("over_max_c", read - max));
            let below = shutdown.map(|shutdown| ("below_shutdown_c", shutdown - read));
            let metrics: Vec<(&str, i64)> = over.into_iter().chain(below).collect();
            self.sample("temp_core", &metrics);
            self.readings.gauge("DCGM_FI_DEV_GPU_TEMP", float(read));
        }
        // Some GPUs report 0 for a missing sensor.
        if let Some(read) = self
            .field(MEMORY_TEMPERATURE_FIELD)
            .filter(|read| *read > 0)
        {
            if let Some(max) = memory_max {
                self.sample("temp_hbm", &[("over_max_c", read - max)]);
            }
            self.readings.gauge("DCGM_FI_DEV_MEMORY_TEMP", float(read));
        }
    }

    fn power_and_clocks(&mut self, before: &mut PreviousReadings) {
        if let Ok(reasons) = self.device.current_throttle_reasons() {
            let bad = ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
            let slowed = reasons.intersects(bad);
            let metrics = [
                ("slowed", i64::from(slowed)),
                ("slowed_busy", i64::from(slowed && self.is_busy)),
            ];
            self.sample("hw_slowdown", &metrics);
            let braked = reasons.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN);
            self.sample(POWER_BRAKE_RULE, &[("braked", i64::from(braked))]);
        }
        let policies = [PerformancePolicy::Thermal, PerformancePolicy::Reliability];
        let times = policies.map(|policy| self.device.violation_status(policy));
        if let [Ok(thermal), Ok(reliability)] = times {
            let total = thermal
                .violation_time
                .saturating_add(reliability.violation_time);
            if let Some(growth) = before.throttled_ns.grow(self.now, total) {
                let metrics = [("throttled_permille", growth.permille_of_span_ns())];
                self.sample("violation_time", &metrics);
            }
        }
        match self.device.power_usage() {
            Ok(milliwatts) => {
                self.sample("power_unreadable", &[("failed", 0)]);
                let watts = f64::from(milliwatts) / 1_000.0;
                self.readings.gauge("DCGM_FI_DEV_POWER_USAGE", watts);
            }
            Err(NvmlError::NotSupported | NvmlError::NoPermission) => {}
            Err(_) => self.sample("power_unreadable", &[("failed", 1)]),
        }
        let limit = self.device.power_management_limit();
        let default = self.device.power_management_limit_default();
        if let (Ok(limit), Ok(default)) = (limit, default) {
            let metrics = [(
                "limit_permille_of_default",
                permille(limit.into(), default.into()),
            )];
            self.sample("power_limit", &metrics);
        }
        if let Ok(state) = self.device.performance_state() {
            // An idle GPU lowers its clocks, which is normal.
            let judged = if self.is_busy {
                number_of(state)
            } else {
                Some(0)
            };
            if let Some(state) = judged {
                self.sample("clock_low", &[("performance_state", state)]);
            }
        }
    }

    fn pcie(&mut self, before: &mut PreviousReadings) {
        let device = self.device;
        let (generation, width) = (
            device.current_pcie_link_gen(),
            device.current_pcie_link_width(),
        );
        let (Ok(generation), Ok(width)) = (generation, width) else {
            return;
        };
        if let Ok(replays) = device.pcie_replay_counter() {
            let limit = pcie_replay_limit_per_minute(generation as usize, width.into());
            let growth = before.replays.grow(self.now, replays.into());
            if let (Some(growth), Some(limit)) = (growth, limit) {
                let per_minute = u64::try_from(growth.per_minute()).unwrap_or(0);
                let metrics = [("permille_of_limit", permille(per_minute, limit))];
                self.sample("pcie_replay", &metrics);
            }
            let name = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER";
            self.readings.gauge(name, f64::from(replays));
        }
        let (generation_max, width_max) =
            (device.max_pcie_link_gen(), device.max_pcie_link_width());
        if let (Ok(generation_max), Ok(width_max)) = (generation_max, width_max) {
            let is_short = self.is_busy && generation < generation_max;
            let metrics = [
                ("width_permille", permille(width.into(), width_max.into())),
                ("generation_short", i64::from(is_short)),
            ];
            self.sample("pcie_link", &metrics);
        }
    }

    fn links(&mut self, before: &mut PreviousReadings) {
        let (mut inactive, mut replays, mut errors) = (0, 0u64, 0u64);
        for link in 0..LINKS_MAX {
            let wrapper = self.device.link_wrapper_for(link);
            let Ok(is_active) = wrapper.is_active() else {
                break;
            };
            let was_active = before.links.contains(&link);
            if is_active && !was_active {
                before.links.push(link);
            }
            inactive += i64::from(was_active && !is_active);
            let counted = |counter| wrapper.error_counter(counter).unwrap_or(0);
            replays = replays.saturating_add(counted(ErrorCounter::DlReplay));
            let crc = [ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData].map(counted);
            errors = errors.saturating_add(crc[0]).saturating_add(crc[1]);
        }
        if before.links.is_empty() {
            return;
        }
        self.sample("nvlink_down", &[("inactive", inactive)]);
        if let Some(growth) = before.link_replays.grow(self.now, replays) {
            self.sample("nvlink_replay", &[("per_minute", growth.per_minute())]);
        }
        if let Some(growth) = before.link_errors.grow(self.now, errors) {
            let metrics = [
                ("per_minute", growth.per_minute()),
                ("per_second", growth.per_second()),
            ];
            self.sample("nvlink_crc", &metrics);
        }
    }
}

/// A field's value, if the GPU has it.
pub(super) fn field(device: &Device<'static>, id: u32) -> Option<i64> {
    let values = device.field_values_for(&[FieldId(id)]).ok()?;
    match values.into_iter().next()?.ok()?.value.ok()? {
        SampleValue::U32(value) => Some(i64::from(value)),
        SampleValue::U64(value) => Some(wide(value)),
        SampleValue::I64(value) => Some(value),
        SampleValue::F64(_) => None,
    }
}

/// The number of a performance state: 0 is the fastest.
fn number_of(state: PerformanceState) -> Option<i64> {
    let number = state.as_c();
    // 32 means unknown.
    (number < 16).then(|| i64::from(number))
}

pub(super) fn wide(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// 53 bits of precision are enough for graphs.
pub(super) fn float(value: i64) -> f64 {
    value as f64
}
