//! Cost of preemption, by which sets of victims are compared.

use muster_engine::cells::Price;

/// Cost of stopping victims. Non-opportunistic losses are compared first; opportunistic losses only between
/// sets that are equal in that. Further ties go by the highest priority, then by the number of victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    pub(super) firm_ms: u64,
    pub(super) opportunistic_ms: u64,
    /// Highest priority among the victims.
    pub(super) priority: i32,
    pub(super) victims: u64,
}

impl Default for Cost {
    /// Cost of stopping nothing.
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
    /// Cost of one victim with the given loss.
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

    /// The cost as a price for comparing cells.
    pub(crate) const fn price(self) -> Price {
        Price {
            firm: self.firm_ms,
            opportunistic: self.opportunistic_ms,
        }
    }
}
