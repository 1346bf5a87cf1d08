//! What an agent and its helper say to each other: JSON documents, one a line.
//!
//! Both sides are the same build, so the messages have no version.

use muster_model::command::GpuDescription;
use muster_model::ids::GpuUuid;
use muster_model::time::MonotonicMs;
use muster_supervisor::DeviceNumber;
use serde::{Deserialize, Serialize};

use crate::gpu::{GpuError, GpuReadings, HealthChange, XidSeen};

/// A question with its number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) question: Question,
}

/// What the agent asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// To open the backend: the first question, asked once. Uncorrected ECC errors beyond these counts are new.
    Open { ecc_counts: Vec<(GpuUuid, u64)> },
    /// To wait so long at most for changes, after an admin's orders.
    Observe {
        wait_ms: u64,
        orders: Vec<HealthChange>,
    },
    /// How much of a GPU's memory is in use.
    Memory { gpu: GpuUuid },
    /// What a GPU's sensors say.
    Sensors {
        gpu: GpuDescription,
        now: MonotonicMs,
    },
}

/// The answer to the question of the same number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) result: Result<Reply, Refusal>,
}

/// What the helper answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Opened(Opened),
    Observed {
        changes: Vec<HealthChange>,
        xids: Vec<XidSeen>,
        ecc_counts: Vec<(GpuUuid, u64)>,
    },
    Memory {
        used_mib: u64,
        by: String,
    },
    Sensors(GpuReadings),
}

/// What is known of the GPUs once they are open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Opened {
    pub(super) gpus: Vec<GpuDescription>,
    /// PCI addresses as the kernel writes them.
    pub(super) pci_addresses: Vec<(GpuUuid, String)>,
    pub(super) device_numbers: Vec<(GpuUuid, DeviceNumber)>,
    pub(super) ecc_counts: Vec<(GpuUuid, u64)>,
    pub(super) is_simulated: bool,
}

/// Why the helper has no answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// The host has no driver.
    NoDriver(String),
    /// It has one, which does not start.
    DriverDoesNotStart(String),
    /// Anything else, with its causes.
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
            Refusal::Failed(why) => Self::Told(why),
        }
    }
}

/// An error and what caused it: causes do not cross a pipe as such.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
