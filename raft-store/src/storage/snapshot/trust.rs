//! Cache of the snapshot last verified.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a verified snapshot counts as intact. While a member is down the newest one is requested
/// twice a second, and nothing is applied while it is read.
pub(super) const TRUST_MAX: Duration = Duration::from_secs(60);

/// The snapshot verified last, until that is too long ago or there is reason to doubt it.
#[derive(Debug, Default)]
pub(super) struct Trust(Mutex<Option<Whole>>);

#[derive(Debug)]
struct Whole {
    name: String,
    read_at: Instant,
}

impl Trust {
    /// Whether the file need not be read.
    pub(super) fn covers(&self, name: &str) -> bool {
        let whole = self.lock();
        whole
            .as_ref()
            .is_some_and(|whole| whole.name == name && whole.read_at.elapsed() < TRUST_MAX)
    }

    /// Records that a file was verified.
    pub(super) fn gain(&self, name: &str) {
        *self.lock() = Some(Whole {
            name: name.to_owned(),
            read_at: Instant::now(),
        });
    }

    /// Records that a file may have decayed.
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
