//! Guard of forked supervisors: it kills a supervisor that is frozen past its task's lease, and the processes
//! that a dead one left.
//! The agent does the same while it is alive and not frozen itself. The process that forks supervisors
//! outlives the agent for as long as one of them runs, so no task depends on a single process for its end.

use std::collections::BTreeMap;
use std::io;
use std::slice::ChunksExact;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

use crate::lease::clock::boottime_ms;
use crate::limits::{GUARDED_MAX, SUPERVISOR_OVERDUE_MS_MAX, SUPERVISOR_SILENT_MS_MAX};
use crate::output::log_error;
use crate::process::{ProcessEntry, descendants, kill_pid};
use crate::sys;

/// Number of values that one supervisor shares with its guard in memory.
const NUMBERS: usize = 3;
/// Index of the time until which it need not act on its task, in milliseconds of `CLOCK_BOOTTIME`; 0 while it
/// has none.
const UNTIL: usize = 0;
/// Index of the time at which it last checked its clock.
const SEEN: usize = 1;
/// Index of the flag that is 1 once no process of its task is alive.
const OVER: usize = 2;

/// Values that a supervisor publishes to its guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardedState(&'static [AtomicU64]);

impl GuardedState {
    /// The supervisor must act by this time of `CLOCK_BOOTTIME` at the latest.
    pub(crate) fn set_deadline(self, boottime_ms: u64) {
        self.0[UNTIL].store(boottime_ms, Ordering::Relaxed);
    }

    /// Records that the supervisor has checked its clock.
    pub(crate) fn clock_checked(self) {
        self.0[SEEN].store(boottime_ms(), Ordering::Relaxed);
    }

    /// Records that the supervisor begins with a task.
    pub(crate) fn begin(self) {
        self.0[OVER].store(0, Ordering::Relaxed);
    }

    /// Records that no process of its task is alive: it has no deadline anymore.
    pub(crate) fn task_ended(self) {
        self.0[UNTIL].store(0, Ordering::Relaxed);
        self.0[OVER].store(1, Ordering::Relaxed);
    }

    fn clear(self) {
        for number in self.0 {
            number.store(0, Ordering::Relaxed);
        }
    }

    fn read(self, number: usize) -> u64 {
        self.0[number].load(Ordering::Relaxed)
    }

    /// Whether its supervisor missed its task's deadline and no longer checks its clock.
    fn is_frozen(self, now_ms: u64) -> bool {
        let until = self.read(UNTIL);
        until > 0
            && now_ms > until.saturating_add(SUPERVISOR_OVERDUE_MS_MAX)
            && now_ms > self.read(SEEN).saturating_add(SUPERVISOR_SILENT_MS_MAX)
    }
}

/// All live supervisors that this process forked.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Unused slots.
    fresh: ChunksExact<'static, AtomicU64>,
    /// Slots of supervisors that have ended.
    free: Vec<GuardedState>,
    /// By process id, which is not reused before the process is reaped here. `None` if no slot was free.
    guarded: BTreeMap<i32, Option<GuardedState>>,
    /// Whether a supervisor died and left processes.
    has_orphans: bool,
    checked_at_ms: u64,
}

impl Guard {
    /// Creates a guard without supervisors. Processes left by dead supervisors become children of this
    /// process.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn new() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let numbers = sys::shared_numbers(GUARDED_MAX * NUMBERS)?;
        Ok(Self {
            fresh: numbers.chunks_exact(NUMBERS),
            free: Vec::new(),
            guarded: BTreeMap::new(),
            has_orphans: false,
            checked_at_ms: boottime_ms(),
        })
    }

    /// Slot for the next supervisor.
    pub(crate) fn next(&mut self) -> Option<GuardedState> {
        if self.free.is_empty() {
            self.free.extend(self.fresh.next().map(GuardedState));
        }
        self.free.last().copied()
    }

    /// Registers a forked supervisor, which has the slot of [`Self::next`].
    pub(crate) fn begin(&mut self, pid: i32) {
        self.guarded.insert(pid, self.free.pop());
    }

    /// Whether nothing is left to guard.
    pub(crate) fn is_idle(&self) -> bool {
        self.guarded.is_empty() && !self.has_orphans
    }

    /// Reaps ended supervisors, and kills frozen ones and the processes that dead ones left.
    pub(crate) fn check(&mut self) {
        self.collect();
        let now_ms = boottime_ms();
        // After a suspend of the whole machine every supervisor gets time to act by itself.
        let was_away = now_ms > self.checked_at_ms.saturating_add(SUPERVISOR_SILENT_MS_MAX);
        self.checked_at_ms = now_ms;
        if !was_away {
            self.kill_frozen(now_ms);
        }
        if self.has_orphans {
            self.kill_orphans();
        }
    }

    fn collect(&mut self) {
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let Some(pulse) = self.guarded.remove(&pid) else {
                continue;
            };
            self.has_orphans |= pulse.is_none_or(|pulse| pulse.read(OVER) == 0);
            if let Some(pulse) = pulse {
                pulse.clear();
                self.free.push(pulse);
            }
        }
    }

    fn kill_frozen(&self, now_ms: u64) {
        for (pid, pulse) in &self.guarded {
            if pulse.is_some_and(|pulse| pulse.is_frozen(now_ms)) {
                log_error(&format!(
                    "supervisor {pid} is frozen past its task's lease or grace: killing it"
                ));
                kill_pid(*pid);
            }
        }
    }

    /// Kills children of this process that are not supervisors: a dead supervisor started them.
    fn kill_orphans(&mut self) {
        let Ok(entries) = ProcessEntry::all() else {
            return;
        };
        let me = getpid().as_raw_nonzero().get();
        let children = entries.iter().filter(|entry| entry.parent == me);
        let strangers: Vec<i32> = children
            .map(|entry| entry.pid)
            .filter(|pid| !self.guarded.contains_key(pid))
            .collect();
        self.has_orphans = !strangers.is_empty();
        for stranger in strangers {
            for pid in descendants(&entries, stranger) {
                kill_pid(pid);
            }
            kill_pid(stranger);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn only_a_supervisor_that_does_not_read_its_clock_counts_as_frozen() {
        let pulse = GuardedState(sys::shared_numbers(NUMBERS).unwrap());
        assert!(!pulse.is_frozen(u64::MAX), "it has no task yet");
        pulse.set_deadline(5_000);
        pulse.0[SEEN].store(5_000, Ordering::Relaxed);
        assert!(!pulse.is_frozen(5_000 + SUPERVISOR_OVERDUE_MS_MAX));
        assert!(pulse.is_frozen(5_001 + SUPERVISOR_OVERDUE_MS_MAX));
        // A supervisor that cannot kill a task stuck in the kernel keeps checking.
        pulse.0[SEEN].store(60_000, Ordering::Relaxed);
        assert!(!pulse.is_frozen(60_000 + SUPERVISOR_SILENT_MS_MAX));
    }
}
