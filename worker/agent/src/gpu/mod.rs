//! GPUs: what a host has and how they are.
//!
//! A whole GPU is what is given out; MIG slices are not known here.

mod handover;
pub mod helper;
mod memory;
mod monitor;
mod nvml;
mod nvml_gauges;
mod nvml_pairs;
mod nvml_sensors;
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

pub use handover::GpuMemory;
pub(crate) use handover::HandOver;
pub use helper::{HelpedBackend, HelperProgram};
pub(crate) use memory::FaultMemory;
pub(crate) use monitor::{GpuMonitor, GpuNews, InjectError};
pub use nvml::NvmlBackend;
pub(crate) use nvml_pairs::{BAD_PAIRS, GOOD_PAIRS, PAIRS_RULE};
pub(crate) use open::{open_gpus, try_driver};
pub use sensors::{GpuReadings, GpuSensors};
pub use simulated::SimulatedBackend;
pub use timeline::{Timeline, TimelineError};
pub(crate) use usage::GpuUse;

/// What can be wrong with GPUs as a whole.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The host has no NVIDIA driver library.
    #[error("no NVIDIA driver answers on this host: {0}")]
    NoDriver(String),
    /// The library is there, and says that the driver does not start.
    #[error("NVIDIA's driver does not start: {0}")]
    DriverDoesNotStart(String),
    /// The driver answered a question with an error.
    #[error("asking NVML for {what} failed")]
    Nvml {
        /// What was asked.
        what: &'static str,
        /// The driver's answer.
        #[source]
        source: nvml_wrapper::error::NvmlError,
    },
    /// The driver names a GPU in a way that we do not understand.
    #[error("NVML names a GPU `{0}`")]
    Uuid(String),
    /// A simulated GPU is given an address that is none.
    #[error("simulated GPU {index} cannot be given its address")]
    Address {
        /// Which GPU.
        index: usize,
        /// What is wrong with it.
        #[source]
        source: PciAddressError,
    },
    /// The thread that watches the GPUs cannot be started.
    #[error("starting the GPU monitor failed")]
    Thread(#[source] std::io::Error),
    /// The process that asks the driver cannot be started.
    #[error("starting a helper that asks the driver failed")]
    HelperStart(#[source] std::io::Error),
    /// The process that asks the driver does not answer as it should.
    #[error("helper {pid}, which asks the driver, {what}")]
    Helper {
        /// Which process.
        pid: u32,
        /// What it does instead.
        what: String,
    },
    /// The process that asks the driver was killed and is not gone: no other one is started until it is.
    #[error("helper {0} hangs in the kernel: the driver is asked no more until it is gone")]
    HelperHangs(u32),
    /// What a helper says instead of an answer.
    #[error("{0}")]
    Told(String),
}

/// Why a GPU cannot be given on although it is healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuHold {
    /// Its memory is in use, by whom it does not belong to.
    Memory(String),
    /// A task that was given it cannot be killed.
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

/// An XID that the driver reported, by its code.
pub type XidSeen = (GpuUuid, u32);

/// An admin's orders to a GPU: a health to show from now on.
pub(crate) type Injector = SyncSender<HealthChange>;

/// Where GPUs and their health come from. Calls may hang: they are made on a thread of their own.
pub trait GpuBackend: Send {
    /// The GPUs of this host in index order, as they were when the backend was opened.
    fn inventory(&self) -> &[GpuDescription];

    /// PCI addresses of the GPUs, as far as they are known.
    fn pci_addresses(&self) -> BTreeMap<GpuUuid, PciAddress>;

    /// Numbers of the devices by which programs open the GPUs, as far as they are known.
    fn device_numbers(&self) -> BTreeMap<GpuUuid, DeviceNumber>;

    /// Says how much of the GPUs' memory is in use, from whatever thread.
    fn memory(&self) -> Arc<dyn GpuMemory>;

    /// Reads the GPUs for the rules of health, on whatever thread.
    fn sensors(&self) -> Box<dyn GpuSensors>;

    /// Waits for up to `wait` for changes. A GPU that is not named is as it was; all begin healthy.
    ///
    /// # Errors
    /// Why nothing is known now.
    fn observe(&mut self, wait: Duration) -> Result<Vec<HealthChange>, GpuError>;

    /// XIDs that the driver reported since this was last asked, in the order in which they came. Each has happened once: what
    /// it means is for the rules to say.
    fn take_xids(&mut self) -> Vec<XidSeen> {
        Vec::new()
    }

    /// Uncorrected ECC errors of each GPU beyond which they are new, as far as they are counted: whoever opens the GPUs after
    /// this backend starts from them.
    fn ecc_counts(&self) -> BTreeMap<GpuUuid, u64>;

    /// Where an admin's orders go.
    fn injector(&self) -> SyncSender<HealthChange>;

    /// Whether the GPUs are not there: real ones take no order but that they are repaired.
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
