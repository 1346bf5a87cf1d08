//! Wall clock access: tasks in other processes stamp files with the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the only access: only the wall clock is shared between processes"
)]
pub(crate) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
