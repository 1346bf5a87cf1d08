//! Termination of programs with all their processes.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::time::timeout;

use crate::limits::PROGRAM_REAP_MAX;

/// Kills a process group and waits for its leader. A process that hangs in the kernel is left.
pub async fn kill(child: &mut Child) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let killed = group.map(|group| kill_process_group(group, Signal::KILL));
    if let Some(Err(error)) = killed {
        tracing::warn!(%error, "a hanging program cannot be killed");
    }
    if timeout(PROGRAM_REAP_MAX, child.wait()).await.is_err() {
        tracing::warn!("a killed program hangs in the kernel");
    }
}
