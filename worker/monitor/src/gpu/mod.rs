//! GPUs of a host and their health.
//!
//! Only whole GPUs are allocated; MIG slices are not supported.

mod config;
mod fault_store;
mod handover;
pub mod helper;
mod monitor;
mod nvml;
mod occupancy;
mod open;
mod sensors;
mod simulated;
mod timeline;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use muster_model::command::{GpuDescription, GpuHealth};
use muster_model::ids::GpuUuid;
use muster_supervisor::DeviceNumber;

use crate::topology::{PciAddress, PciAddressError};

pub use config::GpuConfig;
pub use fault_store::FaultStore;
pub use handover::{GpuMemory, Handover};
pub use helper::{HelpedBackend, HelperProgram};
pub use monitor::{GpuMonitor, GpuUpdate, InjectError};
pub use nvml::NvmlBackend;
pub(crate) use nvml::{BAD_PAIRS, GOOD_PAIRS, PAIRS_RULE};
pub use occupancy::GpuOccupancy;
pub(crate) use occupancy::GpuState;
pub(crate) use open::try_driver;
pub use open::{OpenGpus, open_gpus};
pub use sensors::{GpuReadings, GpuSensors};
pub use simulated::SimulatedBackend;
pub use timeline::{Timeline, TimelineError};
pub use usage::GpuUsage;

/// Errors of the GPUs as a whole.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The host has no NVIDIA driver library.
    #[error("no NVIDIA driver answers on this host: {0}")]
    NoDriver(String),
    /// The library is installed, but reports that the driver does not start.
    #[error("NVIDIA's driver does not start: {0}")]
    DriverDoesNotStart(String),
    /// The driver answered a request with an error.
    #[error("reading {what} from NVML failed")]
    Nvml {
        /// The requested value.
        what: &'static str,
        /// The driver's answer.
        #[source]
        source: nvml_wrapper::error::NvmlError,
    },
    /// The driver reports an invalid GPU UUID.
    #[error("NVML reports an invalid GPU UUID `{0}`")]
    Uuid(String),
    /// A simulated GPU has an invalid PCI address.
    #[error("invalid PCI address of simulated GPU {index}")]
    Address {
        /// Index of the GPU.
        index: usize,
        /// The cause.
        #[source]
        source: PciAddressError,
    },
    /// The monitor thread cannot be started.
    #[error("starting the GPU monitor failed")]
    Thread(#[source] std::io::Error),
    /// The helper process cannot be started.
    #[error("starting the GPU helper failed")]
    HelperStart(#[source] std::io::Error),
    /// The helper process does not answer correctly.
    #[error("GPU helper {pid} {what}")]
    Helper {
        /// Process id of the helper.
        pid: u32,
        /// The problem, as a verb phrase.
        what: String,
    },
    /// A helper was killed and is not gone yet: no new one is started until it is.
    #[error("GPU helper {0} hangs in the kernel: the driver is not queried until it is gone")]
    HelperHangs(u32),
    /// The message of a helper that has no answer.
    #[error("{0}")]
    Refused(String),
    /// The timeline of the simulated GPUs cannot be used.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
}

/// Reason why a GPU cannot be assigned although it is healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuHold {
    /// Its memory is used by a process of no current task.
    Memory(String),
    /// Its last task cannot be killed.
    Task(String),
}

impl From<GpuHold> for GpuHealth {
    fn from(hold: GpuHold) -> Self {
        match hold {
            GpuHold::Memory(detail) => faulted("memory-held", detail),
            GpuHold::Task(detail) => faulted(GpuHealth::TASK_STUCK, detail),
        }
    }
}

/// A change in a GPU's health.
pub type HealthChange = (GpuUuid, GpuHealth);

/// An XID that the driver reported: GPU and code.
pub type XidEvent = (GpuUuid, u32);

/// Channel for an admin's orders: a health that a GPU reports from now on.
pub type Injector = SyncSender<HealthChange>;

/// Source of GPUs and their health. Calls may hang: they are made on a separate thread.
pub trait GpuBackend: Send {
    /// The GPUs of this host in index order, as they were when the backend was opened.
    fn inventory(&self) -> &[GpuDescription];

    /// PCI addresses of the GPUs, as far as they are known.
    fn pci_addresses(&self) -> BTreeMap<GpuUuid, PciAddress>;

    /// Device numbers with which programs open the GPUs, as far as they are known.
    fn device_numbers(&self) -> BTreeMap<GpuUuid, DeviceNumber>;

    /// Handle that reads the used memory of GPUs, on any thread.
    fn memory(&self) -> Arc<dyn GpuMemory>;

    /// Handle that reads the sensors of GPUs for the health rules, on any thread.
    fn sensors(&self) -> Box<dyn GpuSensors>;

    /// Waits for up to `wait` for changes. GPUs that are not listed did not change; all start healthy.
    ///
    /// # Errors
    /// If the health cannot be read at this time.
    fn observe(&mut self, wait: Duration) -> Result<Vec<HealthChange>, GpuError>;

    /// XIDs that the driver reported since the last call, in order of arrival. Each is an event; the rules
    /// decide on its consequences.
    fn take_xids(&mut self) -> Vec<XidEvent> {
        Vec::new()
    }

    /// Baseline of uncorrected ECC errors of each GPU, as far as they are counted: a later backend counts
    /// only errors beyond it as new.
    fn ecc_counts(&self) -> BTreeMap<GpuUuid, u64>;

    /// Channel for an admin's orders.
    fn injector(&self) -> SyncSender<HealthChange>;

    /// Whether the GPUs are simulated. Real ones accept only the order that they are repaired.
    fn is_simulated(&self) -> bool;
}

/// The health of a GPU with a fault.
#[must_use]
pub fn faulted(signal: impl Into<String>, detail: impl Into<String>) -> GpuHealth {
    GpuHealth::Faulted {
        signal: signal.into(),
        detail: detail.into(),
    }
}
