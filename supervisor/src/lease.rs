//! When a supervisor must kill its task: a pure function of its clock.

use muster_core::time::MonotonicMs;

/// How long a task may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    deadline: MonotonicMs,
    kill_at: Option<MonotonicMs>,
}

/// What the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The task may live until this instant at least.
    LivesUntil(MonotonicMs),
    /// It was asked to stop, and its grace is over.
    GraceOver,
    /// Its lease ran out.
    LeaseOver,
}

impl Lease {
    /// A lease that ends at `deadline`.
    pub(crate) const fn new(deadline: MonotonicMs) -> Self {
        Self {
            deadline,
            kill_at: None,
        }
    }

    pub(crate) const fn deadline(&self) -> MonotonicMs {
        self.deadline
    }

    /// Pushes the end out; never pulls it in. A lease that has run out stays so.
    pub(crate) fn extend(&mut self, now: MonotonicMs, deadline: MonotonicMs) {
        if now < self.deadline {
            self.deadline = self.deadline.max(deadline);
        }
    }

    /// Begins the grace; a later order can only shorten it. True for the first one.
    pub(crate) fn stop(&mut self, now: MonotonicMs, grace_ms: u64) -> bool {
        let kill_at = now.after(grace_ms);
        let first = self.kill_at.is_none();
        self.kill_at = Some(self.kill_at.map_or(kill_at, |known| known.min(kill_at)));
        first
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.kill_at.is_some()
    }

    pub(crate) fn verdict(&self, now: MonotonicMs) -> Verdict {
        if now >= self.deadline {
            return Verdict::LeaseOver;
        }
        match self.kill_at {
            Some(kill_at) if now >= kill_at => Verdict::GraceOver,
            Some(kill_at) => Verdict::LivesUntil(self.deadline.min(kill_at)),
            None => Verdict::LivesUntil(self.deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: MonotonicMs = MonotonicMs(1_000);

    #[test]
    fn a_lease_that_ran_out_is_not_extended() {
        // The supervisor was frozen past its deadline; the first thing it reads is an extension.
        let mut lease = Lease::new(START.after(100));
        lease.extend(START.after(100), START.after(9_000));
        assert_eq!(lease.verdict(START.after(100)), Verdict::LeaseOver);
    }

    #[test]
    fn an_older_deadline_changes_nothing() {
        let mut lease = Lease::new(START.after(100));
        lease.extend(START, START.after(50));
        assert_eq!(lease.verdict(START), Verdict::LivesUntil(START.after(100)));
    }

    #[test]
    fn the_shortest_grace_counts() {
        let mut lease = Lease::new(START.after(10_000));
        assert!(lease.stop(START, 500));
        assert!(!lease.stop(START, 5_000));
        assert_eq!(lease.verdict(START), Verdict::LivesUntil(START.after(500)));
        assert!(!lease.stop(START.after(1), 0));
        assert_eq!(lease.verdict(START.after(1)), Verdict::GraceOver);
    }

    #[test]
    fn a_lease_ends_within_a_grace() {
        let mut lease = Lease::new(START.after(100));
        lease.stop(START, 30_000);
        assert_eq!(lease.verdict(START.after(100)), Verdict::LeaseOver);
    }
}
