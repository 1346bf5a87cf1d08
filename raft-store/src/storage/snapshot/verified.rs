//! Cache of the snapshot last verified.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a verified snapshot counts as intact. While a member is down the newest one is requested
/// twice a second, and nothing is applied while it is read.
pub(super) const TRUST_MAX: Duration = Duration::from_secs(60);

/// The snapshot verified last, until that is too long ago or there is reason to doubt it.
#[derive(Debug, Default)]
pub(super) struct VerifiedSnapshot(Mutex<Option<Verified>>);

#[derive(Debug)]
struct Verified {
    name: String,
    read_at: Instant,
}

impl VerifiedSnapshot {
    /// Whether the file need not be read.
    pub(super) fn covers(&self, name: &str) -> bool {
        let whole = self.lock();
        whole
            .as_ref()
            .is_some_and(|whole| whole.name == name && whole.read_at.elapsed() < TRUST_MAX)
    }

    /// Records that a file was verified.
    pub(super) fn mark_verified(&self, name: &str) {
        *self.lock() = Some(Verified {
            name: name.to_owned(),
            read_at: Instant::now(),
        });
    }

    /// Records that a file may have decayed.
    pub(super) fn mark_suspect(&self, name: &str) {
        let mut whole = self.lock();
        if whole.as_ref().is_some_and(|whole| whole.name == name) {
            *whole = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Verified>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
