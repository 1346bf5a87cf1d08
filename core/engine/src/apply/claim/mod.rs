//! Claims: reservation and preemption.

pub(super) mod claim_check;
pub(super) mod claims;
