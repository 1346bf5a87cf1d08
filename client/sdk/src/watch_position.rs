//! Where a watch stands, apart from any connection.

use muster_model::ids::Revision;

/// Everything up to here was delivered: what a watch asks for when it goes on, and what of it is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchPosition(Option<Revision>);

impl WatchPosition {
    /// Before anything was delivered: after a revision, or from whenever the watch begins.
    #[must_use]
    pub const fn after(from: Option<Revision>) -> Self {
        Self(from)
    }

    /// The revision after which events are still to come; none if it is whichever is the newest.
    #[must_use]
    pub const fn revision(self) -> Option<Revision> {
        self.0
    }

    /// The events of a revision come; false if they were delivered before.
    pub fn deliver(&mut self, revision: Revision) -> bool {
        let is_new = self.0.is_none_or(|position| revision > position);
        self.bookmark(revision);
        is_new
    }

    /// Nothing came up to a revision.
    pub fn bookmark(&mut self, revision: Revision) {
        self.0 = self.0.max(Some(revision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_delivered_is_new_once() {
        let mut position = WatchPosition::after(None);
        position.bookmark(Revision(4));
        assert!(!position.deliver(Revision(4)));
        assert!(position.deliver(Revision(6)));
        // A replica that is behind says again what another one had said.
        assert!(!position.deliver(Revision(5)));
        position.bookmark(Revision(3));
        assert_eq!(position.revision(), Some(Revision(6)));
    }
}
