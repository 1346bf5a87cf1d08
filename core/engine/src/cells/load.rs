//! Load of a cell: GPUs in use by others, and GPUs out of order.

use std::ops::{Add, Sub};

use muster_model::host::Host;
use muster_model::topology::{CellKind, GpuMask};

/// GPUs of a cell that cannot be allocated now. Ordered: healthy cells first, then by GPUs in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    /// GPUs that are unfit or blocked, or on an unusable host.
    pub bad: u32,
    /// Usable GPUs that are held or claimed.
    pub busy: u32,
}

impl Load {
    /// Whether no GPU of a cell of this kind can be allocated now.
    #[must_use]
    pub const fn is_full(&self, kind: &CellKind) -> bool {
        self.bad + self.busy >= kind.gpus
    }
}

impl Add for Load {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bad: self.bad + other.bad,
            busy: self.busy + other.busy,
        }
    }
}

impl Sub for Load {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bad: self.bad - other.bad,
            busy: self.busy - other.busy,
        }
    }
}

/// The load of one host, by GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    bad: GpuMask,
    busy: GpuMask,
}

impl HostLoad {
    /// Returns the current load of a host.
    #[must_use]
    pub fn of(host: &Host) -> Self {
        if !host.accepts_work() {
            return Self {
                bad: GpuMask::first(host.gpus.len()),
                busy: GpuMask::default(),
            };
        }
        let mut load = Self::default();
        for (position, gpu) in host.gpus.iter().enumerate() {
            if !gpu.usable() {
                load.bad = load.bad.or(GpuMask::one(position));
            } else if gpu.holder.is_some() || gpu.claim.is_some() {
                load.busy = load.busy.or(GpuMask::one(position));
            }
        }
        load
    }

    /// Returns the load with more GPUs in use.
    #[must_use]
    pub const fn with_busy(self, gpus: GpuMask) -> Self {
        Self {
            bad: self.bad,
            busy: self.busy.or(gpus.without(self.bad)),
        }
    }

    /// Returns the load of some of the host's GPUs.
    #[must_use]
    pub const fn within(&self, gpus: GpuMask) -> Load {
        Load {
            bad: self.bad.and(gpus).count(),
            busy: self.busy.and(gpus).count(),
        }
    }
}
