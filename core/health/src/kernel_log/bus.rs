//! Addresses on the PCI bus, and the GPUs that were there before anything broke.

use std::collections::BTreeMap;
use std::fmt;

use muster_model::ids::GpuUuid;
use muster_model::limits;
use serde::{Deserialize, Serialize};

/// Address of a device: domain, bus and device. The function is left out: a GPU has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BusId {
    /// PCI domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
}

impl BusId {
    /// Parses `0000:0f:00`, also with a `PCI:` prefix and a function suffix.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("PCI:").unwrap_or(text);
        let place = text.split('.').next()?;
        let mut parts = place.split(':');
        let domain = u32::from_str_radix(parts.next()?, 16).ok()?;
        let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
        let device = u8::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self {
            domain,
            bus,
            device,
        })
    }
}

impl fmt::Display for BusId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:04x}:{:02x}:{:02x}",
            self.domain, self.bus, self.device
        )
    }
}

/// GPUs by address. A GPU that is gone keeps its address: the log names it after the driver has dropped it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusMap(BTreeMap<BusId, GpuUuid>);

impl BusMap {
    /// Records the address of a GPU; its previous address is dropped.
    pub fn learn(&mut self, bus: BusId, gpu: GpuUuid) {
        self.0.retain(|_, known| *known != gpu);
        if self.0.len() < limits::GPUS_PER_HOST_MAX || self.0.contains_key(&bus) {
            self.0.insert(bus, gpu);
        }
    }

    /// The GPU at an address.
    #[must_use]
    pub fn gpu(&self, bus: BusId) -> Option<GpuUuid> {
        self.0.get(&bus).copied()
    }
}
