//! What victims lose: the measure by which sets of them are compared.

use muster_engine::cells::Price;

/// What victims lose. Opportunistic work is lost first: only between sets that lose as much of the rest does it count.
/// Between sets that lose equally much the highest priority counts, then the number of victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    pub(super) firm_ms: u64,
    pub(super) opportunistic_ms: u64,
    /// The highest of all.
    pub(super) priority: i32,
    pub(super) victims: u64,
}

impl Default for Cost {
    /// Of nobody.
    fn default() -> Self {
        Self {
            firm_ms: 0,
            opportunistic_ms: 0,
            priority: i32::MIN,
            victims: 0,
        }
    }
}

impl Cost {
    /// Of one victim that loses so much.
    pub(crate) const fn of(opportunistic: bool, priority: i32, lost_ms: u64) -> Self {
        Self {
            firm_ms: if opportunistic { 0 } else { lost_ms },
            opportunistic_ms: if opportunistic { lost_ms } else { 0 },
            priority,
            victims: 1,
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            firm_ms: self.firm_ms.saturating_add(other.firm_ms),
            opportunistic_ms: self.opportunistic_ms.saturating_add(other.opportunistic_ms),
            priority: if self.priority < other.priority {
                other.priority
            } else {
                self.priority
            },
            victims: self.victims.saturating_add(other.victims),
        }
    }

    /// The same as cells are compared.
    pub(crate) const fn price(self) -> Price {
        Price {
            firm: self.firm_ms,
            opportunistic: self.opportunistic_ms,
        }
    }
}
