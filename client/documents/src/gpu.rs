//! GPUs.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::health::HealthState;
use crate::host::HostHealth;
use crate::instant::Instant;
use crate::wire::FromWire as _;

string_enum! {
    /// State of a GPU.
    pub enum GpuState {
        Free "free",
        Held "held",
        Blocked "blocked",
        Faulted "faulted",
        Unreachable "unreachable",
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    pub uuid: String,
    pub host: String,
    pub index: u32,
    pub pci_address: String,
    pub model: String,
    pub memory_mib: u64,
    /// A GPU that no task holds is `blocked` or `unreachable` with its host.
    pub state: GpuState,
    pub fault: Option<GpuFault>,
    pub health_since: Instant,
    #[serde(flatten)]
    pub health_state: HealthState,
    pub block: Option<Block>,
    /// The block of its host.
    pub host_block: Option<Block>,
    /// Health of its host; null from a replica of an older build.
    pub host_health: Option<HostHealth>,
    pub holder: Option<GpuHolder>,
}

documents! {
    /// Fault of a GPU.
    pub struct GpuFault from v1::GpuFault {
        signal: String,
        detail: String,
    }

    /// The task that holds a GPU.
    pub struct GpuHolder from v1::Holder {
        job: u64 = job_id,
        unit: u32,
        epoch: u64,
        task: u32,
    }
}

impl From<v1::Gpu> for Gpu {
    fn from(gpu: v1::Gpu) -> Self {
        let is_silent = matches!(
            gpu.host_health(),
            v1::HostHealth::Suspect | v1::HostHealth::Lost
        );
        let fault = gpu.health.and_then(|health| health.fault);
        let state = match (&fault, &gpu.block, &gpu.holder) {
            (Some(_), _, _) => GpuState::Faulted,
            (_, Some(_), _) => GpuState::Blocked,
            (_, _, Some(_)) => GpuState::Held,
            (None, None, None) if gpu.host_block.is_some() => GpuState::Blocked,
            (None, None, None) if is_silent => GpuState::Unreachable,
            (None, None, None) => GpuState::Free,
        };
        Self {
            uuid: gpu.uuid,
            host: gpu.host,
            index: gpu.index,
            pci_address: gpu.pci_address,
            model: gpu.model,
            memory_mib: gpu.memory_mib,
            state,
            fault: fault.map(GpuFault::from),
            health_since: Instant {
                ms: gpu.health_since_ms,
            },
            health_state: HealthState::new(gpu.health_phase, gpu.health_rule, gpu.restrictions),
            block: gpu.block.map(Block::from),
            host_block: gpu.host_block.map(Block::from),
            host_health: Option::from_wire(gpu.host_health),
            holder: gpu.holder.map(GpuHolder::from),
        }
    }
}
