//! Position of a watch, independent of any connection.

use muster_model::ids::Revision;

/// Position up to which everything was delivered: the start of a resumed watch, and the filter of
/// duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchPosition(Option<Revision>);

impl WatchPosition {
    /// Position before any delivery: after a revision, or at the start of the watch.
    #[must_use]
    pub const fn after(from: Option<Revision>) -> Self {
        Self(from)
    }

    /// Revision after which events are outstanding; none for the newest one.
    #[must_use]
    pub const fn revision(self) -> Option<Revision> {
        self.0
    }

    /// Records the events of a revision; false if they were delivered before.
    pub fn deliver(&mut self, revision: Revision) -> bool {
        let is_new = self.0.is_none_or(|position| revision > position);
        self.bookmark(revision);
        is_new
    }

    /// Records that no event matched up to a revision.
    pub fn bookmark(&mut self, revision: Revision) {
        self.0 = self.0.max(Some(revision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revision_is_delivered_once() {
        let mut position = WatchPosition::after(None);
        position.bookmark(Revision(4));
        assert!(!position.deliver(Revision(4)));
        assert!(position.deliver(Revision(6)));
        // A lagging replica repeats events of another one.
        assert!(!position.deliver(Revision(5)));
        position.bookmark(Revision(3));
        assert_eq!(position.revision(), Some(Revision(6)));
    }
}
