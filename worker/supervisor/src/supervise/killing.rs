//! Kill of a task: repeated until no process of it is alive, and reported as stuck if that takes too long.

use std::fs;

use muster_model::time::MonotonicMs;

use crate::limits::UNKILLABLE_MS;
use crate::link::protocol::{SupervisorMessage, UnkillableTask};
use crate::process::ProcessEntry;
use crate::supervise::{Supervisor, Watched, exit_of};

/// Maximum number of processes that are named in a report about an unkillable task.
const NAMED_MAX: usize = 4;

/// Progress of a kill.
#[derive(Debug, Default)]
pub(super) struct Killing {
    since: Option<MonotonicMs>,
}

impl Killing {
    /// Starts the kill, unless it has started. True if it starts now.
    pub(super) fn begin(&mut self, now: MonotonicMs) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert(now);
        begins
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Whether it has taken longer than it may.
    fn has_failed(&self, now: MonotonicMs) -> bool {
        self.since
            .is_some_and(|since| now.since(since) >= UNKILLABLE_MS)
    }
}

impl Supervisor<'_> {
    /// Kills the task, and reports once if that does not help.
    pub(super) fn kill(&mut self, killing: &Killing, task: &Watched, now: MonotonicMs) {
        task.tree.kill();
        if self.reports.stuck.is_some() || !killing.has_failed(now) {
            return;
        }
        let status = task.tree.status();
        let stuck = UnkillableTask {
            detail: detail(&task.tree.survivors()),
            exit: status.map(|status| {
                task.tree
                    .account(exit_of(Some(status), self.expired), &self.container_end())
            }),
        };
        self.connections
            .send_to_agent(&SupervisorMessage::Stuck(stuck.clone()));
        self.reports.stuck = Some(stuck);
    }
}

/// Describes the remaining processes: `process 4711 (python) hangs in the kernel (in fuse_wait)`.
fn detail(left: &[ProcessEntry]) -> String {
    let mut texts: Vec<String> = left.iter().take(NAMED_MAX).map(describe).collect();
    if left.len() > NAMED_MAX {
        texts.push(format!("{} more", left.len() - NAMED_MAX));
    }
    let texts = texts.join(", ");
    let who = if texts.is_empty() {
        "a process of the task"
    } else {
        &texts
    };
    format!(
        "{who} did not die within {} s after SIGKILL",
        UNKILLABLE_MS / 1_000
    )
}

fn describe(entry: &ProcessEntry) -> String {
    let read = |file: &str| {
        let text = fs::read_to_string(format!("/proc/{}/{file}", entry.pid)).unwrap_or_default();
        text.trim().to_owned()
    };
    let (name, place) = (read("comm"), read("wchan"));
    match (entry.hangs(), place.as_str()) {
        (true, "" | "0") => format!("process {} ({name}), which hangs in the kernel,", entry.pid),
        (true, place) => format!(
            "process {} ({name}), which hangs in the kernel ({place}),",
            entry.pid
        ),
        (false, _) => format!("process {} ({name})", entry.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_counts_as_failed_once_it_has_taken_too_long() {
        let mut killing = Killing::default();
        let start = MonotonicMs(1_000);
        assert!(!killing.has_failed(start.after(9 * UNKILLABLE_MS)));
        assert!(killing.begin(start) && !killing.begin(start.after(5)));
        assert!(!killing.has_failed(start.after(UNKILLABLE_MS - 1)));
        assert!(killing.has_failed(start.after(UNKILLABLE_MS)));
    }
}
