//! Readings used only for graphs, under the names of NVIDIA's DCGM exporter, as far as NVML offers them
//! through safe calls.
//!
//! Not read: `NVLINK_BANDWIDTH_TOTAL`, whose counters for all links at once need a call that the wrapper
//! does not make, and the `PROF` fields, which are the profiler's.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformancePolicy, RetirementCause,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;

use crate::gpu::nvml::sensors::{LINKS_MAX, REMAP_FIELDS, count, field, float, wide};
use crate::gpu::sensors::GpuReadings;

/// Throttling times by cause, in nanoseconds.
const VIOLATIONS: [(&str, PerformancePolicy); 6] = [
    ("DCGM_FI_DEV_POWER_VIOLATION", PerformancePolicy::Power),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", PerformancePolicy::Thermal),
    (
        "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
        PerformancePolicy::SyncBoost,
    ),
    (
        "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
        PerformancePolicy::BoardLimit,
    ),
    (
        "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
        PerformancePolicy::LowUtilization,
    ),
    (
        "DCGM_FI_DEV_RELIABILITY_VIOLATION",
        PerformancePolicy::Reliability,
    ),
];

/// NVLink errors, summed over all links of a GPU.
const LINK_ERRORS: [(&str, ErrorCounter); 4] = [
    (
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        ErrorCounter::DlCrcFlit,
    ),
    (
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        ErrorCounter::DlCrcData,
    ),
    (
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        ErrorCounter::DlReplay,
    ),
    (
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        ErrorCounter::DlRecovery,
    ),
];

/// Reads all values that the GPU offers.
pub(super) fn read(device: &Device<'static>, readings: &mut GpuReadings) {
    let errors = errors(device);
    let use_and_memory = use_and_memory(device);
    let violations = VIOLATIONS.map(|(name, policy)| {
        let read = device.violation_status(policy).ok();
        (name, read.map(|it| float(wide(it.violation_time))))
    });
    let links = LINK_ERRORS.map(|(name, counter)| (name, link_errors(device, counter)));
    let all = use_and_memory.into_iter().chain(errors);
    for (name, value) in all.chain(violations).chain(links) {
        if let Some(value) = value {
            readings.gauge(name, value);
        }
    }
}

fn use_and_memory(device: &Device<'static>) -> [(&'static str, Option<f64>); 10] {
    let used = device.utilization_rates().ok();
    let memory = device.memory_info().ok();
    let clock = |of| device.clock_info(of).ok().map(f64::from);
    let mib = |bytes: u64| float(wide(bytes >> 20));
    let (encoder, decoder) = (device.encoder_utilization(), device.decoder_utilization());
    let energy = device.total_energy_consumption().ok();
    [
        ("DCGM_FI_DEV_SM_CLOCK", clock(Clock::SM)),
        ("DCGM_FI_DEV_MEM_CLOCK", clock(Clock::Memory)),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            used.as_ref().map(|it| it.gpu.into()),
        ),
        (
            "DCGM_FI_DEV_MEM_COPY_UTIL",
            used.as_ref().map(|it| it.memory.into()),
        ),
        (
            "DCGM_FI_DEV_ENC_UTIL",
            encoder.ok().map(|it| it.utilization.into()),
        ),
        (
            "DCGM_FI_DEV_DEC_UTIL",
            decoder.ok().map(|it| it.utilization.into()),
        ),
        (
            "DCGM_FI_DEV_FB_FREE",
            memory.as_ref().map(|it| mib(it.free)),
        ),
        (
            "DCGM_FI_DEV_FB_USED",
            memory.as_ref().map(|it| mib(it.used)),
        ),
        (
            "DCGM_FI_DEV_FB_RESERVED",
            memory.as_ref().map(|it| mib(it.reserved)),
        ),
        (
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            energy.map(|it| float(wide(it))),
        ),
    ]
}

fn errors(device: &Device<'static>) -> [(&'static str, Option<f64>); 10] {
    let total = |kind, counter| {
        let read = device.total_ecc_errors(kind, counter).ok();
        read.map(|it| float(wide(it)))
    };
    let (single, double) = (MemoryError::Corrected, MemoryError::Uncorrected);
    let retired = |cause| {
        let read = device.retired_pages(cause).ok();
        read.map(|pages| float(count(pages.len())))
    };
    let pending = device.are_pages_pending_retired().ok();
    let row = |position: usize| field(device, REMAP_FIELDS[position]).map(float);
    [
        (
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
            total(single, EccCounter::Volatile),
        ),
        (
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
            total(double, EccCounter::Volatile),
        ),
        (
            "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
            total(single, EccCounter::Aggregate),
        ),
        (
            "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
            total(double, EccCounter::Aggregate),
        ),
        (
            "DCGM_FI_DEV_RETIRED_SBE",
            retired(RetirementCause::MultipleSingleBitEccErrors),
        ),
        (
            "DCGM_FI_DEV_RETIRED_DBE",
            retired(RetirementCause::DoubleBitEccError),
        ),
        (
            "DCGM_FI_DEV_RETIRED_PENDING",
            pending.map(|it| f64::from(u8::from(it))),
        ),
        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", row(0)),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", row(1)),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", row(3)),
    ]
}

/// Errors of all links of a GPU; none if it has no links or does not count these.
fn link_errors(device: &Device<'static>, counter: ErrorCounter) -> Option<f64> {
    let mut sum = None;
    for link in 0..LINKS_MAX {
        let wrapper = device.link_wrapper_for(link);
        if wrapper.is_active().is_err() {
            break;
        }
        if let Ok(errors) = wrapper.error_counter(counter) {
            sum = Some(sum.unwrap_or(0u64).saturating_add(errors));
        }
    }
    sum.map(|errors| float(wide(errors)))
}
