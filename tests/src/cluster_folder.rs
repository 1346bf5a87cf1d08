//! Final check of a cluster: no process may remain.

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::processes::{in_folder, is_alive, kill};

/// Maximum time for a process to end.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Polling interval.
const POLL: Duration = Duration::from_millis(10);

/// Kills every process of the cluster in this folder; returns those that survive.
pub(crate) fn sweep(folder: &Path) -> Vec<i32> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let alive = in_folder(folder);
        if alive.is_empty() || Instant::now() >= deadline {
            return alive;
        }
        alive.iter().copied().for_each(kill);
        pause();
    }
}

/// Asks a process to end, and waits until it is gone or the time is up.
pub(crate) fn ask_to_end(pid: i32) {
    let deadline = Instant::now() + TIMEOUT;
    // It may already have ended.
    let _gone = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::TERM));
    while is_alive(pid) && Instant::now() < deadline {
        pause();
    }
}

/// Asks `muster dev` to end, and waits for it; kills it if it does not.
pub(crate) fn end(dev: &mut Child) -> Option<ExitStatus> {
    // It may already have ended.
    let _gone = kill_process(Pid::from_child(dev), Signal::TERM);
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = dev.try_wait() {
            return Some(status);
        }
        pause();
    }
    drop(dev.kill());
    drop(dev.wait());
    None
}

#[expect(
    clippy::disallowed_methods,
    reason = "cleaning up happens in destructors, where nothing can be awaited"
)]
fn pause() {
    std::thread::sleep(POLL);
}
