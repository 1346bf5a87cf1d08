//! Future events of a fork.

use muster_model::ids::{AttemptEpoch, JobId, UnitIndex};

/// Identity of an attempt in agenda and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttemptKey {
    pub(super) job: JobId,
    pub(super) unit: UnitIndex,
    pub(super) epoch: AttemptEpoch,
}

/// An event at some instant; ends come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// An attempt has done its work; ignored if it is no longer the current one.
    WorkDone(AttemptKey),
    /// The lease of an attempt's tasks on unreachable hosts has expired.
    LeaseOver(AttemptKey),
    /// Only triggers planning.
    Plan,
}
