//! The one place that reads the wall clock: tasks stamp files with it, in other processes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the named place: only the wall clock is shared between processes"
)]
pub(crate) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
