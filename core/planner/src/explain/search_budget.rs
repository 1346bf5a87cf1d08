//! Search budget: bounds the trials and the time of one explanation.

use std::cell::Cell;

/// Budget checked before every trial. A trial is short compared to a whole explanation, which may take
/// hundreds of them.
pub(super) struct SearchBudget<'p> {
    lasts: &'p dyn Fn() -> bool,
    ended: Cell<bool>,
}

impl<'p> SearchBudget<'p> {
    pub(super) const fn new(lasts: &'p dyn Fn() -> bool) -> Self {
        Self {
            lasts,
            ended: Cell::new(false),
        }
    }

    /// Whether another trial may run; an exhausted budget stays exhausted.
    pub(super) fn try_spend(&self) -> bool {
        let lasts = !self.has_ended() && (self.lasts)();
        self.ended.set(!lasts);
        lasts
    }

    /// Whether a trial was refused.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended.get()
    }
}
