//! Time series of GPUs under the names, types and labels of NVIDIA's exporter (`dcgm-exporter`, its default
//! counters file).

use std::collections::BTreeMap;
use std::path::Path;

use metrics::{Label, counter, gauge};
use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;

use crate::topology::PciAddress;

/// The last XID of a GPU; 0 before the first.
pub(super) const LAST_XID: &str = "DCGM_FI_DEV_XID_ERRORS";

/// Names that are counters in that exporter; all others are gauges. `RETIRED_PENDING` is a counter there
/// too, but NVML answers it with yes or no, of which a rate is meaningless.
const COUNTERS: [&str; 20] = [
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_POWER_VIOLATION",
    "DCGM_FI_DEV_THERMAL_VIOLATION",
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    "DCGM_FI_DEV_RELIABILITY_VIOLATION",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
];

/// Conversion of a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SeriesUpdate {
    /// Value of a gauge.
    Level(f64),
    /// Increase of a counter.
    More(u64),
}

/// The series of this host's GPUs.
pub(super) struct GpuSeries {
    host: String,
    /// Release of the driver, if there is one.
    driver: Option<String>,
    addresses: BTreeMap<GpuUuid, PciAddress>,
    /// Last values of counters.
    counted: BTreeMap<(GpuUuid, String), u64>,
}

impl GpuSeries {
    /// Series of a host of this name, with `sys` below `root`.
    pub(super) fn new(host: &str, root: &Path, addresses: BTreeMap<GpuUuid, PciAddress>) -> Self {
        let driver = std::fs::read_to_string(root.join("sys/module/nvidia/version"));
        Self {
            host: host.to_owned(),
            driver: driver.ok().map(|text| text.trim().to_owned()),
            addresses,
            counted: BTreeMap::new(),
        }
    }

    /// Exports a reading of a GPU.
    pub(super) fn show(&mut self, gpu: &GpuDescription, name: String, value: f64) {
        let labels = self.labels(gpu);
        match self.take(gpu.uuid, &name, value) {
            SeriesUpdate::Level(value) => gauge!(name, labels).set(value),
            SeriesUpdate::More(more) => counter!(name, labels).increment(more),
        }
    }

    fn take(&mut self, gpu: GpuUuid, name: &str, value: f64) -> SeriesUpdate {
        if !COUNTERS.contains(&name) {
            return SeriesUpdate::Level(value);
        }
        let now = whole(value);
        let before = self.counted.insert((gpu, name.to_owned()), now);
        // A lower value means that the counter was reset: it counts from zero again.
        let grown = now.checked_sub(before.unwrap_or_default());
        SeriesUpdate::More(grown.unwrap_or(now))
    }

    fn labels(&self, gpu: &GpuDescription) -> Vec<Label> {
        let address = self.addresses.get(&gpu.uuid);
        let known = [
            ("gpu", Some(gpu.index.to_string())),
            ("UUID", Some(gpu.uuid.to_string())),
            ("pci_bus_id", address.map(|it| it.to_driver_form())),
            ("device", Some(format!("nvidia{}", gpu.index))),
            ("modelName", Some(gpu.model.clone())),
            // Both spellings exist in versions of the exporter.
            ("Hostname", Some(self.host.clone())),
            ("hostname", Some(self.host.clone())),
            ("DCGM_FI_DRIVER_VERSION", self.driver.clone()),
        ]
        .into_iter();
        known
            .filter_map(|(name, value)| Some(Label::new(name, value?)))
            .collect()
    }
}

/// Converts a counter transported as a float.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are neither negative nor fractions, and a cast ends at the bounds"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    const GPU: GpuUuid = GpuUuid(7);

    #[test]
    fn counters_add_up_and_gauges_are_current() {
        let mut series = GpuSeries::new("node01", Path::new("/nonexistent"), BTreeMap::new());
        let mut replays = |value| series.take(GPU, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", value);
        assert_eq!(replays(5.0), SeriesUpdate::More(5));
        assert_eq!(replays(5.0), SeriesUpdate::More(0));
        assert_eq!(replays(7.0), SeriesUpdate::More(2));
        // The GPU was reset.
        assert_eq!(replays(1.0), SeriesUpdate::More(1));
        assert_eq!(replays(2.0), SeriesUpdate::More(1));
        for value in [93.0, 60.5] {
            let shown = series.take(GPU, "DCGM_FI_DEV_GPU_TEMP", value);
            assert_eq!(shown, SeriesUpdate::Level(value));
        }
        assert_eq!(series.take(GPU, LAST_XID, 79.0), SeriesUpdate::Level(79.0));
    }

    #[test]
    fn series_have_the_labels_that_dashboards_join_by() {
        let root = tempfile::tempdir().unwrap();
        let module = root.path().join("sys/module/nvidia");
        std::fs::create_dir_all(&module).unwrap();
        std::fs::write(module.join("version"), "580.65.06\n").unwrap();
        let addresses = BTreeMap::from([(GPU, "0000:0f:00.0".parse().unwrap())]);
        let series = GpuSeries::new("node01", root.path(), addresses);
        let labels = |uuid| {
            let labels = series.labels(&GpuDescription {
                uuid,
                index: 3,
                model: "NVIDIA H100".to_owned(),
                memory_mib: 81_920,
            });
            let texts = labels
                .iter()
                .map(|label| format!("{}={}", label.key(), label.value()));
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            labels(GPU),
            "gpu=3 UUID=GPU-00000000-0000-0000-0000-000000000007 pci_bus_id=00000000:0F:00.0 device=nvidia3 \
             modelName=NVIDIA H100 Hostname=node01 hostname=node01 DCGM_FI_DRIVER_VERSION=580.65.06"
        );
        assert!(!labels(GpuUuid(8)).contains("pci_bus_id"));
    }
}
