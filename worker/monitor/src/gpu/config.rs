//! Settings of the GPUs that a worker offers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GPUs that a worker offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GpuConfig {
    /// Real ones if NVML is available, else none.
    Auto,
    /// Real ones; without NVML the worker does not start.
    Nvml,
    /// Simulated ones.
    Simulated {
        /// Number of GPUs.
        count: u32,
        /// Model name.
        model: String,
        /// Memory of each in MiB.
        memory_mib: u64,
        /// Simulated faults, repairs and readings: a file with `at_ms,gpu,signal[,detail]` lines.
        timeline: Option<PathBuf>,
        /// PCI addresses in index order, for machines whose PCI tree is simulated in `topology.sysfs_root`;
        /// those of further GPUs are unknown.
        #[serde(default)]
        pci_addresses: Vec<String>,
    },
    /// None, whatever the host has.
    None,
}
