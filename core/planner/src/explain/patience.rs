//! How long to look for what would help a job.

use std::cell::Cell;

/// Asked before every look ahead. A look is short beside a whole explanation, which may take hundreds of them.
pub(super) struct Patience<'p> {
    lasts: &'p dyn Fn() -> bool,
    ended: Cell<bool>,
}

impl<'p> Patience<'p> {
    pub(super) const fn new(lasts: &'p dyn Fn() -> bool) -> Self {
        Self {
            lasts,
            ended: Cell::new(false),
        }
    }

    /// Whether another look may be taken; once it ended, it has ended.
    pub(super) fn lasts(&self) -> bool {
        let lasts = !self.has_ended() && (self.lasts)();
        self.ended.set(!lasts);
        lasts
    }

    /// Whether a look was not taken.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended.get()
    }
}
