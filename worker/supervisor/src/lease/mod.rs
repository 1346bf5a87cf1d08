//! Lease deadline of a task: a pure function of the supervisor's clock.

pub(super) mod alarm;
pub mod clock;
pub(super) mod guard;

use muster_model::time::MonotonicMs;

/// Lease and grace of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    deadline: MonotonicMs,
    kill_at: Option<MonotonicMs>,
    /// How long before the deadline the task is asked to stop, in milliseconds; 0 if it is not asked.
    warning_ms: u64,
}

/// State of the lease at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The task may live until at least this instant, when the lease must be checked again.
    LivesUntil(MonotonicMs),
    /// The task was asked to stop, and its grace is over.
    GraceOver,
    /// The lease has expired.
    LeaseOver,
}

impl Lease {
    /// A lease that ends at `deadline`; the task is asked to stop `warning_ms` milliseconds earlier.
    pub(crate) const fn new(deadline: MonotonicMs, warning_ms: u64) -> Self {
        Self {
            deadline,
            kill_at: None,
            warning_ms,
        }
    }

    pub(crate) const fn deadline(&self) -> MonotonicMs {
        self.deadline
    }

    /// Extends the deadline; never shortens it. An expired lease stays expired.
    pub(crate) fn extend(&mut self, now: MonotonicMs, deadline: MonotonicMs) {
        if now < self.deadline {
            self.deadline = self.deadline.max(deadline);
        }
    }

    /// Starts the grace; a later request can only shorten it. True for the first one.
    pub(crate) fn stop(&mut self, now: MonotonicMs, grace_ms: u64) -> bool {
        let kill_at = now.after(grace_ms);
        let first = self.kill_at.is_none();
        self.kill_at = Some(self.kill_at.map_or(kill_at, |known| known.min(kill_at)));
        first
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.kill_at.is_some()
    }

    /// Milliseconds left to a task that must be asked to stop now because its lease is about to end.
    pub(crate) fn grace_left(&self, now: MonotonicMs) -> Option<u64> {
        let is_due = self.asks_at().is_some_and(|at| now >= at) && now < self.deadline;
        is_due.then(|| self.deadline.since(now))
    }

    fn asks_at(&self) -> Option<MonotonicMs> {
        let is_asked = self.warning_ms > 0 && self.kill_at.is_none();
        is_asked.then(|| MonotonicMs(self.deadline.0.saturating_sub(self.warning_ms)))
    }

    pub(crate) fn verdict(&self, now: MonotonicMs) -> Verdict {
        if now >= self.deadline {
            return Verdict::LeaseOver;
        }
        match self.kill_at {
            Some(kill_at) if now >= kill_at => Verdict::GraceOver,
            Some(kill_at) => Verdict::LivesUntil(self.deadline.min(kill_at)),
            None => Verdict::LivesUntil(self.asks_at().unwrap_or(self.deadline)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: MonotonicMs = MonotonicMs(1_000);

    #[test]
    fn a_lease_that_ran_out_is_not_extended() {
        // The supervisor was frozen past its deadline; the first message that it reads is an extension.
        let mut lease = Lease::new(START.after(100), 0);
        lease.extend(START.after(100), START.after(9_000));
        assert_eq!(lease.verdict(START.after(100)), Verdict::LeaseOver);
    }

    #[test]
    fn an_older_deadline_changes_nothing() {
        let mut lease = Lease::new(START.after(100), 0);
        lease.extend(START, START.after(50));
        assert_eq!(lease.verdict(START), Verdict::LivesUntil(START.after(100)));
    }

    #[test]
    fn the_shortest_grace_counts() {
        let mut lease = Lease::new(START.after(10_000), 0);
        assert!(lease.stop(START, 500));
        assert!(!lease.stop(START, 5_000));
        assert_eq!(lease.verdict(START), Verdict::LivesUntil(START.after(500)));
        assert!(!lease.stop(START.after(1), 0));
        assert_eq!(lease.verdict(START.after(1)), Verdict::GraceOver);
    }

    #[test]
    fn a_task_is_asked_before_its_lease_ends_unless_it_is_extended() {
        let mut lease = Lease::new(START.after(10_000), 3_000);
        assert_eq!(
            lease.verdict(START),
            Verdict::LivesUntil(START.after(7_000))
        );
        assert_eq!(lease.grace_left(START.after(6_999)), None);
        lease.extend(START.after(6_999), START.after(12_000));
        assert_eq!(lease.grace_left(START.after(7_000)), None);
        assert_eq!(lease.grace_left(START.after(9_500)), Some(2_500));
        // A stop request is not withdrawn when contact returns.
        lease.stop(START.after(9_500), 2_500);
        lease.extend(START.after(9_600), START.after(90_000));
        assert_eq!(lease.grace_left(START.after(9_600)), None);
        assert_eq!(lease.verdict(START.after(12_000)), Verdict::GraceOver);
        assert_eq!(
            Lease::new(START.after(100), 50).grace_left(START.after(100)),
            None
        );
    }

    #[test]
    fn a_lease_ends_within_a_grace() {
        let mut lease = Lease::new(START.after(100), 0);
        lease.stop(START, 30_000);
        assert_eq!(lease.verdict(START.after(100)), Verdict::LeaseOver);
    }
}
