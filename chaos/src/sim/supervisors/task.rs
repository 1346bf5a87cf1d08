//! One simulated supervisor and its task.

use muster_model::command::Exit;
use muster_model::desired::TaskAssignment;
use muster_model::time::MonotonicMs;
use muster_model::timings::KILL_MS_MAX;

/// Number of the SIGKILL signal.
const SIGKILL: i32 = 9;

/// Time after which a supervisor reports that it cannot kill its task, in milliseconds.
const UNKILLABLE_MS: u64 = KILL_MS_MAX;

/// Behaviour of an undisturbed simulated task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Run time in milliseconds.
    pub run_ms: u64,
    /// Exit code at the end.
    pub exit_code: i32,
    /// Whether it ends when asked to; otherwise it is killed at the end of the grace period.
    pub heeds_stop: bool,
    /// Milliseconds for which it hangs in the kernel when it is killed.
    pub hang_ms: u64,
}

/// A task with its supervisor.
#[derive(Clone, Debug)]
pub(super) struct Supervised {
    pub(super) assignment: Box<TaskAssignment>,
    pub(super) behaviour: Behaviour,
    pub(super) ends_at: MonotonicMs,
    pub(super) deadline: MonotonicMs,
    pub(super) kill_at: Option<MonotonicMs>,
    pub(super) exit: Option<Exit>,
    /// Remaining work of a paused task, in milliseconds.
    pub(super) left_ms: Option<u64>,
    /// Whether it is prepared and waits for its gang, without a running process.
    pub(super) waits: bool,
    /// Present while it is killed but hangs.
    pub(super) hang: Option<Hang>,
    /// Whether its supervisor was released while it was alive.
    pub(super) released: bool,
}

/// A killed task that hangs in the kernel.
#[derive(Clone, Debug)]
pub(super) struct Hang {
    /// Time at which its supervisor reports that it cannot kill it.
    reported_at: MonotonicMs,
    /// Whether the supervisor has reported it.
    is_reported: bool,
    /// Time at which it is finally dead.
    until: MonotonicMs,
    /// Its exit status then.
    exit: Exit,
}

/// A due change of a task.
pub(super) enum TaskChange {
    /// It was killed, and hangs.
    Killed,
    /// Its supervisor gives up killing it.
    Stuck,
    /// It is dead.
    Ended(Exit),
}

impl Supervised {
    pub(super) fn new(
        assignment: &TaskAssignment,
        deadline: MonotonicMs,
        behaviour: Behaviour,
        now: MonotonicMs,
    ) -> Self {
        Self {
            assignment: Box::new(assignment.clone()),
            behaviour,
            ends_at: now.after(behaviour.run_ms),
            deadline,
            kill_at: None,
            exit: None,
            left_ms: None,
            waits: assignment.barrier && !assignment.released,
            hang: None,
            released: false,
        }
    }

    /// Time of the next change, if nothing else intervenes.
    pub(super) fn due(&self) -> Option<MonotonicMs> {
        if self.exit.is_some() {
            return None;
        }
        if let Some(hang) = &self.hang {
            let reported_at = (!hang.is_reported).then_some(hang.reported_at);
            return Some(reported_at.map_or(hang.until, |at| at.min(hang.until)));
        }
        let kill_at = self.kill_at.unwrap_or(MonotonicMs(u64::MAX));
        let ends_at = if self.waits || self.left_ms.is_some() {
            MonotonicMs(u64::MAX)
        } else {
            self.ends_at
        };
        Some(ends_at.min(self.deadline).min(kill_at))
    }

    pub(super) fn settle(&mut self, now: MonotonicMs) -> Option<TaskChange> {
        if self.due()? > now {
            return None;
        }
        if let Some(hang) = &mut self.hang {
            if hang.until > now {
                hang.is_reported = true;
                return Some(TaskChange::Stuck);
            }
            self.exit = Some(hang.exit.clone());
            return self.exit.clone().map(TaskChange::Ended);
        }
        let mut exit = Exit {
            code: None,
            signal: None,
            out_of_memory: false,
            lease_expired: false,
            start_error: None,
            ..Exit::default()
        };
        if self.waits {
            exit.start_error = Some("it ended before its gang was released".to_owned());
            exit.lease_expired = self.deadline <= now;
        } else if self.ends_at <= now && self.left_ms.is_none() {
            exit.code = Some(self.behaviour.exit_code);
        } else {
            exit.signal = Some(SIGKILL);
            exit.lease_expired = self.deadline <= now;
        }
        if exit.signal.is_some() && self.behaviour.hang_ms > 0 {
            self.hang = Some(Hang {
                reported_at: now.after(UNKILLABLE_MS),
                is_reported: false,
                until: now.after(self.behaviour.hang_ms),
                exit,
            });
            return Some(TaskChange::Killed);
        }
        self.exit = Some(exit.clone());
        Some(TaskChange::Ended(exit))
    }

    /// Whether its program runs, or would if its host were not paused.
    pub(super) const fn runs(&self) -> bool {
        self.exit.is_none() && self.hang.is_none() && !self.waits
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.exit.is_none() && self.hang.as_ref().is_some_and(|hang| hang.is_reported)
    }
}
