//! Messages between an agent and its helper: JSON documents, one per line.
//!
//! Both sides are the same build, so the messages have no version.

use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use muster_supervisor::DeviceNumber;
use serde::{Deserialize, Serialize};

use crate::gpu::{GpuError, GpuReadings, HealthChange, XidEvent};

/// A question with its id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) question: HelperRequest,
}

/// A request of the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum HelperRequest {
    /// Opens the backend: the first request, sent once. Uncorrected ECC errors beyond these counts are new.
    Open { ecc_counts: Vec<(GpuUuid, u64)> },
    /// Applies an admin's orders, then waits for health changes, up to a time limit.
    Observe {
        wait_ms: u64,
        orders: Vec<HealthChange>,
    },
    /// Asks for the used memory of a GPU.
    Memory { gpu: GpuUuid },
    /// Asks for sensor readings of a GPU.
    Sensors {
        gpu: GpuDescription,
        now: MonotonicMs,
    },
}

/// The answer to the request with the same id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) result: Result<Reply, Refusal>,
}

/// A reply of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Opened(Opened),
    Observed {
        changes: Vec<HealthChange>,
        xids: Vec<XidEvent>,
        ecc_counts: Vec<(GpuUuid, u64)>,
    },
    Memory {
        used_mib: u64,
        by: String,
    },
    Sensors(GpuReadings),
}

/// Properties of the GPUs, once they are open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Opened {
    pub(super) gpus: Vec<GpuDescription>,
    /// PCI addresses as the kernel writes them.
    pub(super) pci_addresses: Vec<(GpuUuid, String)>,
    pub(super) device_numbers: Vec<(GpuUuid, DeviceNumber)>,
    pub(super) ecc_counts: Vec<(GpuUuid, u64)>,
    pub(super) is_simulated: bool,
}

/// Reason why the helper has no answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// The host has no driver.
    NoDriver(String),
    /// The driver is installed but does not start.
    DriverDoesNotStart(String),
    /// Any other error, with its causes.
    Failed(String),
}

impl From<GpuError> for Refusal {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::NoDriver(why) => Self::NoDriver(why),
            GpuError::DriverDoesNotStart(why) => Self::DriverDoesNotStart(why),
            error => Self::Failed(with_causes(&error)),
        }
    }
}

impl From<Refusal> for GpuError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoDriver(why) => Self::NoDriver(why),
            Refusal::DriverDoesNotStart(why) => Self::DriverDoesNotStart(why),
            Refusal::Failed(why) => Self::Refused(why),
        }
    }
}

/// The text of an error and its causes: causes cannot be serialized.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
