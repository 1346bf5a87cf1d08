//! How much of a cell others use, and how much of it is out of order.

use std::ops::{Add, Sub};

use muster_model::host::Host;
use muster_model::topology::{CellKind, GpuMask};

/// GPUs of a cell that cannot be given out now. Ordered: healthy cells before others, then by what is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    /// GPUs that are unfit or blocked, or on a host that is.
    pub bad: u32,
    /// GPUs that are held or claimed, of those that are not bad.
    pub busy: u32,
}

impl Load {
    /// Whether nothing of a cell of a kind can be given out now.
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
    /// The load of a host as it is.
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

    /// The same with more GPUs in use.
    #[must_use]
    pub const fn with_busy(self, gpus: GpuMask) -> Self {
        Self {
            bad: self.bad,
            busy: self.busy.or(gpus.without(self.bad)),
        }
    }

    /// The load of some of the host's GPUs.
    #[must_use]
    pub const fn within(&self, gpus: GpuMask) -> Load {
        Load {
            bad: self.bad.and(gpus).count(),
            busy: self.busy.and(gpus).count(),
        }
    }
}
