//! Watches over supervisors that were forked: one that is frozen past its task's lease is killed, and so is what a dead
//! one left.
//!
//! The agent does the same while it lives and is not frozen itself. The process that forks supervisors outlives the agent
//! for as long as one of them runs, so no task depends on a single process for its end.

use std::collections::BTreeMap;
use std::io;
use std::slice::ChunksExact;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};

use crate::clock::boottime_ms;
use crate::limits::{GUARDED_MAX, SUPERVISOR_OVERDUE_MS_MAX, SUPERVISOR_SILENT_MS_MAX};
use crate::output::complain;
use crate::process::{ProcessEntry, descendants, kill_pid};
use crate::sys;

/// Numbers of one supervisor, in the memory that it shares with its guard.
const NUMBERS: usize = 3;
/// Until when it need do nothing about its task, in milliseconds of `CLOCK_BOOTTIME`; 0 while it has none.
const UNTIL: usize = 0;
/// When it looked at its clock last.
const SEEN: usize = 1;
/// 1 once nothing of its task lives.
const OVER: usize = 2;

/// What a supervisor shows its guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse(&'static [AtomicU64]);

impl Pulse {
    /// The supervisor must act by this time of `CLOCK_BOOTTIME` at the latest.
    pub(crate) fn until(self, boottime_ms: u64) {
        self.0[UNTIL].store(boottime_ms, Ordering::Relaxed);
    }

    /// The supervisor has looked at its clock.
    pub(crate) fn looked(self) {
        self.0[SEEN].store(boottime_ms(), Ordering::Relaxed);
    }

    /// The supervisor begins with a task.
    pub(crate) fn begin(self) {
        self.0[OVER].store(0, Ordering::Relaxed);
    }

    /// Nothing of its task lives any more: it may take its time.
    pub(crate) fn over(self) {
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

    /// Whether its supervisor has let its task's time pass and does not look at its clock any more.
    fn is_frozen(self, now_ms: u64) -> bool {
        let until = self.read(UNTIL);
        until > 0
            && now_ms > until.saturating_add(SUPERVISOR_OVERDUE_MS_MAX)
            && now_ms > self.read(SEEN).saturating_add(SUPERVISOR_SILENT_MS_MAX)
    }
}

/// All supervisors that this process forked and that live.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Numbers that nobody has had yet.
    fresh: ChunksExact<'static, AtomicU64>,
    /// Numbers of supervisors that have ended.
    free: Vec<Pulse>,
    /// By their process numbers, which nobody else gets before they are collected here. None: there was no room.
    guarded: BTreeMap<i32, Option<Pulse>>,
    /// Whether a supervisor died and left something.
    has_orphans: bool,
    looked_at_ms: u64,
}

impl Guard {
    /// A guard of nobody. What dead supervisors leave becomes this process's children.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let numbers = sys::shared_numbers(GUARDED_MAX * NUMBERS)?;
        Ok(Self {
            fresh: numbers.chunks_exact(NUMBERS),
            free: Vec::new(),
            guarded: BTreeMap::new(),
            has_orphans: false,
            looked_at_ms: boottime_ms(),
        })
    }

    /// The numbers for the next supervisor.
    pub(crate) fn next(&mut self) -> Option<Pulse> {
        if self.free.is_empty() {
            self.free.extend(self.fresh.next().map(Pulse));
        }
        self.free.last().copied()
    }

    /// A supervisor was forked, with [`Self::next`] as its numbers.
    pub(crate) fn begin(&mut self, pid: i32) {
        self.guarded.insert(pid, self.free.pop());
    }

    /// Whether nothing is left to look after.
    pub(crate) fn is_idle(&self) -> bool {
        self.guarded.is_empty() && !self.has_orphans
    }

    /// Collects who has ended, and kills who is frozen and what the dead have left.
    pub(crate) fn look(&mut self) {
        self.collect();
        let now_ms = boottime_ms();
        // After a sleep of the whole machine everybody gets time to see to it himself.
        let was_away = now_ms > self.looked_at_ms.saturating_add(SUPERVISOR_SILENT_MS_MAX);
        self.looked_at_ms = now_ms;
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
                complain(&format!(
                    "supervisor {pid} is frozen past its task's lease or grace: killing it"
                ));
                kill_pid(*pid);
            }
        }
    }

    /// Whoever is a child of this process and no supervisor was started by one that is dead.
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
    fn only_who_does_not_look_at_his_clock_is_frozen() {
        let pulse = Pulse(sys::shared_numbers(NUMBERS).unwrap());
        assert!(!pulse.is_frozen(u64::MAX), "it has no task yet");
        pulse.until(5_000);
        pulse.0[SEEN].store(5_000, Ordering::Relaxed);
        assert!(!pulse.is_frozen(5_000 + SUPERVISOR_OVERDUE_MS_MAX));
        assert!(pulse.is_frozen(5_001 + SUPERVISOR_OVERDUE_MS_MAX));
        // One that cannot kill a task that hangs in the kernel goes on looking.
        pulse.0[SEEN].store(60_000, Ordering::Relaxed);
        assert!(!pulse.is_frozen(60_000 + SUPERVISOR_SILENT_MS_MAX));
    }
}
