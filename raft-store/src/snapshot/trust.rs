//! Which snapshot is known to be whole.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a snapshot that was read whole counts as whole. While a member is dead the newest one is asked for twice a second, and
/// nothing is applied while it is read.
pub(super) const TRUST_MAX: Duration = Duration::from_secs(60);

/// The snapshot that was read whole last, until that is long ago or somebody has reason to doubt it.
#[derive(Debug, Default)]
pub(super) struct Trust(Mutex<Option<Whole>>);

#[derive(Debug)]
struct Whole {
    name: String,
    read_at: Instant,
}

impl Trust {
    /// Whether a file need not be read.
    pub(super) fn covers(&self, name: &str) -> bool {
        let whole = self.lock();
        whole
            .as_ref()
            .is_some_and(|whole| whole.name == name && whole.read_at.elapsed() < TRUST_MAX)
    }

    /// A file was read, and is whole.
    pub(super) fn gain(&self, name: &str) {
        *self.lock() = Some(Whole {
            name: name.to_owned(),
            read_at: Instant::now(),
        });
    }

    /// A file may have decayed.
    pub(super) fn lose(&self, name: &str) {
        let mut whole = self.lock();
        if whole.as_ref().is_some_and(|whole| whole.name == name) {
            *whole = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Whole>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
