//! Ends programs with all that they started.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::time::timeout;

use crate::limits::PROGRAM_REAP_MAX;

/// Ends a program that leads a process group, and all of its group. One that hangs in the kernel is left.
pub(crate) async fn kill(child: &mut Child) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let killed = group.map(|group| kill_process_group(group, Signal::KILL));
    if let Some(Err(error)) = killed {
        tracing::warn!(%error, "a program that hangs cannot be killed");
    }
    if timeout(PROGRAM_REAP_MAX, child.wait()).await.is_err() {
        tracing::warn!("a program that was killed hangs in the kernel");
    }
}
