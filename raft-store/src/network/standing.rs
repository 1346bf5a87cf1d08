//! Whether the group knows this replica's data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Nobody has addressed this replica by an incarnation yet.
const UNKNOWN: u8 = 0;
/// A member has addressed the incarnation that this replica is.
const OWNED: u8 = 1;
/// Members address another incarnation.
const DISOWNED: u8 = 2;

/// What the addresses of received messages tell of a replica's data directory; clones share it.
///
/// A data directory is lost or replaced only while its replica is down. So once a message was addressed to this
/// incarnation, one that is not is an old one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing(Arc<AtomicU8>);

impl Standing {
    /// A message was addressed to this incarnation.
    pub(crate) fn accepted(&self) {
        self.0.store(OWNED, Ordering::Relaxed);
    }

    /// A message was addressed to another incarnation; true the first time that this tells something.
    pub(crate) fn refused(&self) -> bool {
        let order = Ordering::Relaxed;
        let changed = self.0.compare_exchange(UNKNOWN, DISOWNED, order, order);
        changed.is_ok()
    }

    /// Whether the group knows this replica with other data.
    pub(crate) fn is_disowned(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DISOWNED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_tells_and_a_message_of_its_own_ends_it() {
        let standing = Standing::default();
        assert!(!standing.is_disowned());
        assert_eq!((standing.refused(), standing.refused()), (true, false));
        assert!(standing.is_disowned());
        standing.accepted();
        assert!(!standing.is_disowned());
        // From somebody who does not know yet that this replica was added again.
        assert!(!standing.refused());
        assert!(!standing.is_disowned());
    }
}
