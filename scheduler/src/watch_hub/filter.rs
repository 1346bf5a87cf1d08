//! Filter of a watch.

use std::collections::BTreeSet;

use muster_model::event::Event;
use muster_model::ids::JobId;
use muster_proto::v1;

/// Jobs and kinds of events; empty sets match everything, and both must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchFilter {
    /// Events about these jobs.
    pub jobs: BTreeSet<JobId>,
    /// Events of these kinds.
    pub kinds: BTreeSet<v1::EventKind>,
}

impl WatchFilter {
    /// Whether an event matches.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        let is_job =
            self.jobs.is_empty() || event.kind.job().is_some_and(|job| self.jobs.contains(&job));
        is_job && (self.kinds.is_empty() || self.kinds.contains(&v1::EventKind::from(&event.kind)))
    }
}
